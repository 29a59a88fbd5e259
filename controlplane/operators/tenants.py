"""Tenants: what each uses of its quotas and costs, where it lives; quotas, suspension, visits."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import F, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from billing.live import latest_hour
from billing.reports import daily_cost, daily_cost_of
from cells.contract import Metric
from controlplane.adminsite import operator
from controlplane.console.delays import PARTS
from controlplane.events.models import AuditEvent
from controlplane.operators.models import SupportVisit
from controlplane.operators.pages import act, operator_page, page
from controlplane.operators.reads import record_read
from controlplane.operators.support import VISIT_MINUTES, begin_visit, payload_grant
from controlplane.tenants.actions.tenants import resume_tenant, set_quotas, suspend_tenant
from controlplane.tenants.models import ApiKey, Quota, Tenant, TenantState, User
from controlplane.topology.cell_client import CellUnreachable, call_cell

_PAGE = 50


@dataclass(frozen=True, kw_only=True)
class Row:
    """A tenant of the list, with what it used."""

    tenant: Tenant
    runs_per_second: float | None  # mean of the newest metered hour
    timers: int | None
    cost: Decimal
    currency: str

    @property
    def share(self) -> float | None:
        """Runs used of the quota, percent."""
        if self.runs_per_second is None:
            return None
        return round(min(100.0, self.runs_per_second / self.tenant.quota.job_runs_per_second * 100), 1)


def month_start(today: date) -> date:
    return today.replace(day=1)


def rows_of(tenants: Sequence[Tenant], today: date) -> list[Row]:
    """Use and cost of some tenants, in a fixed number of queries."""
    ids: list[uuid.UUID] = [tenant.id for tenant in tenants]
    use = latest_hour(ids, (Metric.JOB_RUNS, Metric.PENDING_TIMER_MINUTES))
    costs = daily_cost_of(ids, month_start(today), today + timedelta(days=1)) if ids else {}
    rows = []
    for tenant in tenants:
        runs = use.get((tenant.id, Metric.JOB_RUNS))
        timers = use.get((tenant.id, Metric.PENDING_TIMER_MINUTES))
        days = costs.get(tenant.id, [])
        rows.append(
            Row(
                tenant=tenant,
                runs_per_second=runs.total / (runs.minutes * 60) if runs else None,
                timers=timers.newest if timers else None,
                cost=sum((day.total for day in days), Decimal(0)),
                currency=days[-1].currency if days else "USD",
            )
        )
    return rows


@operator_page()
def tenant_list(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/tenants/?q=&cell=&state=&after="""
    asked = {name: request.GET.get(name, "").strip()[:100] for name in ("q", "cell", "state")}
    tenants = Tenant.objects.select_related("quota", "placement__cell").order_by("slug")
    if asked["q"]:
        tenants = tenants.filter(Q(slug__icontains=asked["q"]) | Q(name__icontains=asked["q"]))
    if asked["cell"]:
        tenants = tenants.filter(placement__cell=asked["cell"])
    if asked["state"] in TenantState.values:
        tenants = tenants.filter(state=asked["state"])
    if after := request.GET.get("after", "")[:48]:
        tenants = tenants.filter(slug__gt=after)
    found = list(tenants[: _PAGE + 1])
    more, found = len(found) > _PAGE, found[:_PAGE]
    return page(
        request,
        "tenants.html",
        "Tenants",
        rows=rows_of(found, timezone.now().astimezone(UTC).date()),
        asked=asked,
        states=TenantState.values,
        after=found[-1].slug if more else None,
    )


def _tenant(slug: str) -> Tenant:
    tenant = (
        Tenant.objects.select_related("quota", "placement__cell", "home_region").filter(slug=slug).first()
    )
    if tenant is None:
        raise Http404
    return tenant


@operator_page()
def one_tenant(request: HttpRequest, slug: str) -> HttpResponse:
    """GET /admin/pages/tenants/<slug>/"""
    tenant = _tenant(slug)
    record_read(tenant_id=tenant.id, actor=operator(request), what=request.path)
    today = timezone.now().astimezone(UTC).date()
    open_visit = SupportVisit.objects.filter(
        operator=request.user, tenant=tenant, ended_at=None, expires_at__gt=timezone.now()
    ).first()
    return page(
        request,
        "tenant.html",
        tenant.name,
        tenant=tenant,
        row=rows_of([tenant], today)[0],
        days=list(reversed(daily_cost(tenant.id, today - timedelta(days=13), today + timedelta(days=1)))),
        quotas=[(name, name.replace("_", " "), getattr(tenant.quota, name)) for name in Quota.NAMES],
        members=tenant.memberships.select_related("user").order_by("id")[:50],
        visits=SupportVisit.objects.select_related("operator").filter(tenant=tenant).order_by("-id")[:10],
        events=_events(tenant),
        open_visit=open_visit,
        grant=payload_grant(tenant.id),
        minutes=VISIT_MINUTES,
    )


def _events(tenant: Tenant) -> list[AuditEvent]:
    """The latest of a tenant's audit log, with `who`: people and keys by their names."""
    events = list(AuditEvent.objects.filter(tenant_id=tenant.id).order_by("-id")[:15])
    people = [id_ for event in events if (id_ := _person(event.actor)) is not None]
    keys = [event.actor.removeprefix("key:") for event in events if event.actor.startswith("key:")]
    names = {user.actor_name: user.email for user in User.objects.filter(pk__in=people)}
    names |= {f"key:{key.id}": f"key “{key.name}”" for key in ApiKey.objects.filter(pk__in=keys)}
    for event in events:
        event.who = names.get(event.actor, event.actor)  # type: ignore[attr-defined]
    return events


def _person(actor: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(actor.removeprefix("user:")) if actor.startswith("user:") else None
    except ValueError:
        return None


@operator_page("POST")
def tenant_action(request: HttpRequest, slug: str, verb: str) -> HttpResponse:
    """POST /admin/pages/tenants/<slug>/visit, /quotas, /suspend, /resume"""
    tenant = _tenant(slug)
    reason = request.POST.get("reason", "").strip()
    if verb == "visit":
        text = request.POST.get("minutes", "")
        minutes = int(text) if text.isascii() and text.isdecimal() and len(text) < 5 else 0
        begun = act(
            request, begin_visit, f"You are signed in to {tenant.name} as support.",
            tenant_id=tenant.id, operator=request.user, minutes=minutes, reason=reason,
        )  # fmt: skip
        return redirect("console:overview", slug) if begun else redirect("operators:tenant", slug)
    if verb == "quotas":
        _quotas(request, tenant, reason)
    elif verb in ("suspend", "resume"):
        use_case = suspend_tenant if verb == "suspend" else resume_tenant
        act(request, use_case, f"{tenant.name}: {verb} is done.", tenant_id=tenant.id, reason=reason)
    else:
        raise Http404
    return redirect("operators:tenant", slug)


def _quotas(request: HttpRequest, tenant: Tenant, reason: str) -> None:
    given: dict[str, Any] = {name: request.POST.get(name, "").strip() for name in Quota.NAMES}
    wrong = [name for name, text in given.items() if not (text.isascii() and text.isdecimal())]
    if wrong:
        messages.error(request, f"Nothing was changed: {', '.join(wrong)} must be whole numbers.")
        return
    act(
        request, set_quotas, "The quotas are set; the cell and the routers are told.",
        tenant_id=tenant.id, quotas={name: int(text) for name, text in given.items()},
        override="override" in request.POST, reason=reason,
    )  # fmt: skip


@operator_page()
def delays(request: HttpRequest, slug: str) -> HttpResponse:
    """GET /admin/pages/tenants/<slug>/delays?hours=24: what its runs waited for, as its own page says it."""
    tenant = _tenant(slug)
    record_read(tenant_id=tenant.id, actor=operator(request), what=request.path)
    text = request.GET.get("hours", "24")
    hours = int(text) if text in ("1", "24", "168") else 24
    until = timezone.now().astimezone(UTC).replace(microsecond=0)
    span = urlencode({"since": _utc_text(until - timedelta(hours=hours)), "until": _utc_text(until)})
    told: dict[str, Any] | None = None
    placement = getattr(tenant, "placement", None)
    if placement is not None:
        try:
            told = call_cell(
                placement.cell, "GET", f"/internal/tenants/{tenant.public_id}/delays?{span}", timeout=20.0
            )
        except CellUnreachable as away:
            messages.error(request, f"The cell does not answer: {away}")
    parts = sorted(told["parts"], key=lambda part: -part["ms"]) if told else []
    return page(
        request,
        "delays.html",
        f"Delays of {tenant.name}",
        tenant=tenant,
        hours=hours,
        told=told,
        parts=[(PARTS[part["part"]][0] if part["part"] in PARTS else part["part"], part) for part in parts],
    )


def _utc_text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def unconfirmed() -> Any:
    """Placements whose cell has not confirmed the tenant's newest version."""
    from controlplane.topology.models import Placement

    return Placement.objects.select_related("tenant").filter(confirmed_version__lt=F("tenant__version"))
