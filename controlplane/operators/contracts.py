"""What tenants were promised: prices and minimums above the price book's, one tenant at a time."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from billing.charging.documents import MODELS, POLICIES
from billing.ids import CONTRACT, decode
from billing.pricing import contracts
from billing.pricing.accounts import account_of
from billing.pricing.models import Contract
from billing.pricing.preview import Change, preview_contract
from controlplane.adminsite import operator
from controlplane.errors import Invalid, Refused
from controlplane.operators.meters import named
from controlplane.operators.pages import act, operator_page, page
from controlplane.operators.price_form import (
    Typed,
    amount_of,
    day_of,
    faults_in_words,
    prices_of,
    rows_of,
    rows_typed,
    seal_of,
)
from controlplane.operators.prices import METRICS, in_words, today
from controlplane.operators.reads import record_read
from controlplane.refusals import of_billing
from controlplane.tenants.models import Tenant

_FIELDS = ("effective_from", "effective_until", "minimum", "note", "reason")
_PAGE = 50


def _tenant(slug: str) -> Tenant:
    found = Tenant.objects.filter(slug=slug).first()
    if found is None:
        raise Http404
    return found


@operator_page()
def contract_list(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/contracts/?tenant=&after=, newest first."""
    slug = request.GET.get("tenant", "").strip()[:48]
    rows = Contract.objects.order_by("-id")
    tenant = Tenant.objects.filter(slug=slug).first() if slug else None
    if slug:
        rows = rows.filter(tenant_id=tenant.id) if tenant else rows.none()
    if tenant is not None:
        record_read(tenant_id=tenant.id, actor=operator(request), what=request.path)
    if after := request.GET.get("after", ""):
        rows = rows.filter(pk__lt=_uuid(after))
    found = list(rows[: _PAGE + 1])
    more, found = len(found) > _PAGE, found[:_PAGE]
    day = today()
    return page(
        request,
        "contracts.html",
        "Contracts",
        slug=slug,
        tenant=tenant,
        rows=[
            {
                "contract": row,
                "prices": in_words(row.prices, _currency(row.tenant_id)),
                "ended": row.effective_until is not None and row.effective_until <= day,
            }
            for row in named(found)
        ],
        after=found[-1].public_id if more else None,
    )


def _currency(tenant_id: uuid.UUID) -> str:
    try:
        with of_billing():
            return account_of(tenant_id).currency
    except Refused:  # the tenant is gone
        return ""


def _uuid(text: str) -> uuid.UUID:
    found = decode(CONTRACT, text)
    if found is None:
        raise Http404
    return found


@operator_page("GET", "POST")
def contract_new(request: HttpRequest, slug: str) -> HttpResponse:
    """GET /admin/pages/contracts/new/<slug>/; POST shows the effect, or saves what was looked at."""
    tenant = _tenant(slug)
    record_read(tenant_id=tenant.id, actor=operator(request), what=request.path)
    if request.method == "GET":
        first = (today().replace(day=1) + timedelta(days=32)).replace(day=1)
        values = {**dict.fromkeys(_FIELDS, ""), "effective_from": first.isoformat()}
        return _form(request, tenant, Typed(values=values, rows=rows_of(())))
    typed = Typed(
        values={name: request.POST.get(name, "").strip()[:2_000] for name in _FIELDS},
        rows=rows_typed(request.POST.dict()),
    )
    effect: Change | None = None
    seal = ""
    try:
        said = _said(typed)
        seal = seal_of(said)
        with of_billing():
            drafted = contracts.drafted(tenant_id=tenant.id, **said)
            if request.POST.get("verb") == "save" and request.POST.get("previewed") == seal:
                if not typed.values["reason"]:
                    raise Invalid([])
                contracts.create_contract(
                    tenant_id=tenant.id, note=typed.values["note"], actor=operator(request),
                    reason=typed.values["reason"], **said,
                )  # fmt: skip
                messages.success(
                    request, f"{tenant.name} has this contract from {said['effective_from']} on."
                )
                return redirect(f"{reverse('operators:contracts')}?tenant={slug}")
            last = (today().replace(day=1) - timedelta(days=1)).replace(day=1)
            effect = preview_contract(tenant.id, drafted, last)
    except Invalid as refused:
        typed.faults = faults_in_words(refused, typed.rows) or ["Say why, for the audit log."]
        return _form(request, tenant, typed, status=422, effect=effect, seal=seal)
    except Refused as refused:
        typed.faults = [str(refused)]
        return _form(request, tenant, typed, status=409)
    if request.POST.get("verb") == "save":
        messages.info(request, "Nothing is saved yet: this is the effect of the contract as it stands now.")
    return _form(request, tenant, typed, effect=effect, seal=seal)


def _said(typed: Typed) -> dict[str, Any]:
    until, minimum = typed.values["effective_until"], typed.values["minimum"]
    return {
        "prices": prices_of(typed.rows),
        "minimum": amount_of(minimum, "/minimum") if minimum else None,
        "effective_from": day_of(typed.values["effective_from"], "/effective_from"),
        "effective_until": day_of(until, "/effective_until") if until else None,
    }


def _form(
    request: HttpRequest,
    tenant: Tenant,
    typed: Typed,
    *,
    status: int = 200,
    effect: Change | None = None,
    seal: str = "",
) -> HttpResponse:
    return page(
        request,
        "contract_new.html",
        f"New contract with {tenant.name}",
        status=status,
        tenant=tenant,
        currency=_currency(tenant.id),
        typed=typed,
        metrics=METRICS,
        policies=POLICIES,
        models=MODELS,
        effect=None
        if effect is None
        else {
            "month": (today().replace(day=1) - timedelta(days=1)),
            "before": f"{effect.before:,}",
            "after": f"{effect.after:,}",
            "difference": f"{effect.after - effect.before:+,}",
        },
        seal=seal,
    )


@operator_page("POST")
def contract_end(request: HttpRequest, contract_id: str) -> HttpResponse:
    """POST /admin/pages/contracts/<id>/end: says from which day on it no longer holds."""
    found = Contract.objects.filter(pk=_uuid(contract_id)).first()
    if found is None:
        raise Http404
    reason = request.POST.get("reason", "").strip()[:300]
    (row,) = named([found])
    try:
        until = day_of(request.POST.get("effective_until", ""), "/effective_until")
        if not reason:
            raise Invalid([])
    except Invalid as refused:
        messages.error(
            request, f"Nothing was changed: {refused}" if refused.faults else "Nothing was changed: say why."
        )
    else:
        act(
            request, contracts.end_contract, f"The contract ends on {until}.",
            contract_id=found.pk, effective_until=until, reason=reason,
        )  # fmt: skip
    return redirect(f"{reverse('operators:contracts')}?tenant={row.slug}")
