"""The workspace goes for good: asked for by its owners, followed, cancelled; and what whoever has the link
to the certificate sees when it is gone."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from cells.contract import Scope
from controlplane.console.acting import Form, done, not_done
from controlplane.console.visit import Visit, tenant_page
from controlplane.custody import certificates, erasing
from controlplane.custody.models import ERASURE, Erasure, ErasureState
from controlplane.errors import NotFound, Refused
from controlplane.identity import decode


def _owners_only(visit: Visit) -> None:
    if not visit.actor.owner or visit.guest is not None:
        raise PermissionDenied


@tenant_page(Scope.ADMIN, "GET", "POST")
def erasure(visit: Visit) -> HttpResponse:
    """GET …/settings/erasure says what would go, in numbers; POST asks for it."""
    _owners_only(visit)
    form, link = Form(values={"confirm": "", "reason": ""}), ""
    if visit.request.method == "POST":
        values = {name: visit.request.POST.get(name, "").strip() for name in ("confirm", "reason")}
        try:
            link = erasing.request_erasure(tenant_id=visit.tenant.id, **values, actor=visit.actor).link
        except Refused as refused:
            form = Form.refused(values, refused, fields=("confirm",))
    answer = visit.page(
        "console/settings/erasure.html", status=422 if form.faults or form.general else 200,
        section="settings", tab="erasure", form=form, link=link, plan=erasing.plan(visit.tenant.id),
        hours=_hours(), erasure=erasing.open_erasure(visit.tenant.id),
    )  # fmt: skip
    if link:
        answer["Cache-Control"] = "no-store"
    return answer


def _hours() -> int:
    return int(settings.CUSTODY["grace_seconds"]) // 3600


@tenant_page(Scope.ADMIN, "POST")
def cancel(visit: Visit) -> HttpResponse:
    """POST …/settings/erasure/cancel"""
    _owners_only(visit)
    found = erasing.open_erasure(visit.tenant.id)
    if found is not None:
        try:
            erasing.cancel_erasure(erasure_id=found.id, actor=visit.actor, reason="")
        except Refused as refused:
            not_done(visit, refused)
        else:
            done(visit, "The workspace is not erased; nothing was changed.")
    return redirect(visit.url("erasure"))


def attachment(found: Erasure, content: dict[str, Any]) -> HttpResponse:
    """A certificate as a file."""
    text = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True)
    name = f"{found.public_id}.json"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return HttpResponse(text, content_type="application/json", headers=headers)


@never_cache
@require_http_methods(["GET", "POST"])
def certificate(request: HttpRequest, erasure_id: str, secret: str) -> HttpResponse:
    """GET /erasures/<id>/<secret> says how far it is; POST fetches the certificate, once. No account."""
    found_id = decode(ERASURE, erasure_id)
    try:
        found = erasing.by_link(found_id, secret)
    except NotFound:
        return render(request, "console/erased.html", {"erasure": None}, status=404)
    why = ""
    if request.method == "POST":
        try:
            return attachment(found, erasing.fetch_by_link(found_id, secret))
        except Refused as refused:
            why = str(refused)
    context = {
        "erasure": found, "why": why, "steps": len(erasing.STEPS),
        "ready": found.state == ErasureState.DONE and found.fetched_at is None,
    }  # fmt: skip
    return render(request, "console/erased.html", context, status=409 if why else 200)


@require_GET
def keys(request: HttpRequest) -> JsonResponse:
    """GET /erasures/keys: the public keys that certificates are checked with."""
    return JsonResponse({"keys": certificates.published()})
