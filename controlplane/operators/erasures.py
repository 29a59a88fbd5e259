"""Erasures of tenants: a plan with numbers first, then how far each is, and its certificate."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.adminsite import operator
from controlplane.console.erasing import attachment
from controlplane.custody import erasing
from controlplane.custody.models import ERASURE, Erasure, ErasureState
from controlplane.errors import NotFound, Refused
from controlplane.identity import TENANT, decode, encode
from controlplane.operators.pages import act, operator_page, page
from controlplane.tenants.models import Tenant

_NEWEST = 100


@operator_page("GET", "POST")
def erasure_list(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/erasures/?tenant=… shows erasures, and what one of that tenant would remove; POST
    asks for it."""
    slug = (request.POST if request.method == "POST" else request.GET).get("tenant", "").strip()
    tenant = Tenant.objects.filter(slug=slug).first() if slug else None
    link, faults = "", []
    if request.method == "POST" and tenant is not None:
        try:
            link = erasing.request_erasure(
                tenant_id=tenant.id, confirm=request.POST.get("confirm", "").strip(),
                reason=request.POST.get("reason", "").strip(), actor=operator(request),
            ).link  # fmt: skip
        except Refused as refused:
            faults = [str(refused)]
    if slug and tenant is None:
        faults = [f"there is no tenant {slug}"]
    answer = page(
        request, "erasures.html", "Erasures", status=422 if faults and request.method == "POST" else 200,
        erasures=[_sight(one) for one in Erasure.objects.order_by("-id")[:_NEWEST]], slug=slug,
        plan=None if tenant is None else erasing.plan(tenant.id), link=link, faults=faults,
        open=None if tenant is None else erasing.open_erasure(tenant.id), steps=len(erasing.STEPS),
    )  # fmt: skip
    if link:
        answer["Cache-Control"] = "no-store"
    return answer


def _sight(erasure: Erasure) -> dict[str, Any]:
    return {"it": erasure, "tenant": encode(TENANT, erasure.tenant_id), "open": erasure.state in _CANCELLABLE}


_CANCELLABLE = (ErasureState.REQUESTED,)


def _erasure(text: str) -> Erasure:
    try:
        return erasing.find_erasure(decode(ERASURE, text))
    except NotFound:
        raise Http404 from None


@operator_page("POST")
def erasure_cancel(request: HttpRequest, erasure: str) -> HttpResponse:
    """POST /admin/pages/erasures/<id>/cancel"""
    act(
        request, erasing.cancel_erasure, "The tenant is not erased; nothing was changed.",
        erasure_id=_erasure(erasure).id, reason="",
    )  # fmt: skip
    return redirect("operators:erasures")


@operator_page()
def erasure_certificate(request: HttpRequest, erasure: str) -> HttpResponse:
    """GET /admin/pages/erasures/<id>/certificate"""
    found = _erasure(erasure)
    if found.certificate is None:
        messages.error(request, "The certificate is there once everything is erased.")
        return redirect("operators:erasures")
    return attachment(found, found.certificate)
