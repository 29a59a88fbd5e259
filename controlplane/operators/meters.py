"""Meters and months: conflicts and drift that need a person, periods and what holds their close up."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, date
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from billing.by_hand import close_without_cells, settle_conflict, settle_drift
from billing.models import BillingPeriod, DirtyDay, DriftCheck, DriftFinding, MeterConflict
from billing.usage_models import PeriodState
from controlplane.operators.pages import act, operator_page, page
from controlplane.tenants.models import Tenant

_PAGE = 50


def slugs_of(ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Tenants' slugs by their ids."""
    return dict(Tenant.objects.filter(pk__in=set(ids)).values_list("pk", "slug"))


def named(rows: list[Any]) -> list[Any]:
    """Rows of tenants, each with `slug`; empty where the tenant is gone."""
    slugs = slugs_of(row.tenant_id for row in rows)
    for row in rows:
        row.slug = slugs.get(row.tenant_id, "")
    return rows


def place(request: HttpRequest) -> int | None:
    """Where the page before ended, in a list by number."""
    text = request.GET.get("after", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


@operator_page()
def meter_list(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/meters/?after=: what is open, oldest first."""
    conflicts = MeterConflict.objects.filter(settled_at=None).order_by("id")
    if (after := place(request)) is not None:
        conflicts = conflicts.filter(pk__gt=after)
    rows = list(conflicts[: _PAGE + 1])
    more, rows = len(rows) > _PAGE, rows[:_PAGE]
    findings = DriftFinding.objects.filter(settled_at=None).order_by("day", "id")
    return page(
        request,
        "meters.html",
        "Meters",
        conflicts=named(rows),
        conflict_count=MeterConflict.objects.filter(settled_at=None).count(),
        after=rows[-1].pk if more else None,
        findings=named(list(findings[:_PAGE])),
        finding_count=findings.count(),
        dirty=DirtyDay.objects.count(),
        checks=DriftCheck.objects.order_by("-at")[:10],
    )


@operator_page("POST")
def conflict_settle(request: HttpRequest, conflict_id: int) -> HttpResponse:
    """POST /admin/pages/meters/conflicts/<id>: `verb` is keep or accept."""
    verb = request.POST.get("verb", "")
    if verb not in ("keep", "accept"):
        raise Http404
    done = {
        "keep": "Settled: what stood is right.",
        "accept": "Settled: the ledger is corrected, and its day is added up again.",
    }[verb]
    act(
        request, settle_conflict, done, conflict_id=min(conflict_id, 2**63 - 1), accept=verb == "accept",
        reason=request.POST.get("reason", "").strip()[:300],
    )  # fmt: skip
    return redirect("operators:meters")


@operator_page("POST")
def drift_settle(request: HttpRequest, finding_id: int) -> HttpResponse:
    """POST /admin/pages/meters/drift/<id>"""
    act(
        request, settle_drift, "Settled.", finding_id=min(finding_id, 2**63 - 1),
        reason=request.POST.get("reason", "").strip()[:300],
    )  # fmt: skip
    return redirect("operators:meters")


@operator_page()
def period_list(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/periods/?month=&state=&after=: months that are not closed, or all of one."""
    asked = {name: request.GET.get(name, "").strip()[:40] for name in ("month", "state")}
    periods = BillingPeriod.objects.order_by("id")
    if asked["state"] in PeriodState.values:
        periods = periods.filter(state=asked["state"])
    else:
        periods = periods.exclude(state=PeriodState.CLOSED)
    if asked["month"]:
        try:
            periods = periods.filter(month=date.fromisoformat(f"{asked['month']}-01"))
        except ValueError:
            messages.error(request, f"{asked['month']} is no month: YYYY-MM.")
    if (after := place(request)) is not None:
        periods = periods.filter(pk__gt=after)
    rows = list(periods[: _PAGE + 1])
    more, rows = len(rows) > _PAGE, rows[:_PAGE]
    return page(
        request,
        "periods.html",
        "Billing periods",
        periods=named(rows),
        asked=asked,
        states=PeriodState.values,
        after=rows[-1].pk if more else None,
    )


@operator_page("POST")
def period_close(request: HttpRequest, slug: str, month: str) -> HttpResponse:
    """POST /admin/pages/periods/<slug>/<YYYY-MM>/close: without the cells that will not seal it."""
    tenant = Tenant.objects.filter(slug=slug).first()
    try:
        first = date.fromisoformat(f"{month}-01")
    except ValueError:
        raise Http404 from None
    if tenant is None:
        raise Http404
    act(
        request, close_without_cells, f"{first:%B %Y} of {tenant.name} is closed for good.",
        tenant_id=tenant.id, month=first, today=timezone.now().astimezone(UTC).date(),
        reason=request.POST.get("reason", "").strip()[:300],
    )  # fmt: skip
    return redirect("operators:periods")
