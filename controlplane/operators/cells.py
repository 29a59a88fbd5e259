"""Cells: health, headroom, how late they are, what waits in them, which hosts carry them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib import messages
from django.db.models import Count, Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from controlplane.adminsite import operator
from controlplane.errors import Refused
from controlplane.operators.pages import act, operator_page, page
from controlplane.topology.actions.cells import set_cell_state
from controlplane.topology.actions.windows import lengthen_windows
from controlplane.topology.models import Cell, CellState

#: A status older than this says nothing about now; beat asks every ten seconds.
STALE = timedelta(seconds=60)
LATE_MS = 2_000
_PRIORITIES = ("CRITICAL", "HIGH", "DEFAULT", "LOW")
_SETTABLE = {CellState.OPEN: "Open", CellState.CORDONED: "Cordon", CellState.RETIRED: "Retire"}

_LENGTHEN = ("from", "until", "extra_seconds", "tenant", "reason", "form_id")


@dataclass(frozen=True, kw_only=True)
class Sight:
    """A cell as its last status shows it."""

    cell: Cell
    health: str  # good, wait, bad
    why: str
    tenants: int
    promised: int
    hosts: tuple[dict[str, Any], ...]
    lag_ms: int | None
    queued: tuple[tuple[str, int], ...] | None
    past_quota: int | None
    jobs: int | None

    @property
    def headroom(self) -> int:
        return int(self.cell.capacity_runs_per_second) - self.promised

    @property
    def share(self) -> float:
        """Promised of capacity, in percent, at most 100."""
        return round(min(100.0, self.promised / self.cell.capacity_runs_per_second * 100), 1)

    @property
    def live_hosts(self) -> int:
        return sum(bool(host["live"]) for host in self.hosts)

    @property
    def waiting(self) -> int | None:
        return None if self.queued is None else sum(count for _, count in self.queued)


def sight(cell: Cell, *, now: datetime) -> Sight:
    """Reads a cell's last status. Pure; `cell` carries the counts `n` and `runs`."""
    status = cell.status or {}
    queue = status.get("queue")
    hosts = tuple(
        {**host, "started_at": parse_datetime(str(host.get("started_at", "")))}
        for host in status.get("hosts") or ()
    )
    health, why = health_of(cell, status, now)
    return Sight(
        cell=cell,
        health=health,
        why=why,
        tenants=cell.n,  # type: ignore[attr-defined]
        promised=cell.runs,  # type: ignore[attr-defined]
        hosts=hosts,
        lag_ms=status.get("lag_ms"),
        queued=None if queue is None else tuple((name, int(queue.get(name, 0))) for name in _PRIORITIES),
        past_quota=status.get("past_quota"),
        jobs=status.get("jobs_estimated"),
    )


def health_of(cell: Cell, status: dict[str, Any], now: datetime) -> tuple[str, str]:
    """good, wait or bad, and why."""
    if cell.status_error:
        return "bad", f"does not answer: {cell.status_error}"
    if cell.status_at is None or now - cell.status_at > STALE:
        return "bad", "has not been seen for more than a minute"
    if not any(host.get("live") for host in status.get("hosts") or ()):
        return "bad", "no host is live"
    if status.get("queue") is None:
        return "wait", "its Valkey is away: jobs run from PostgreSQL"
    if (status.get("lag_ms") or 0) > LATE_MS:
        return "wait", "runs start late"
    return "good", "answers, on time"


def _cells() -> Any:
    return (
        Cell.objects.select_related("region")
        .annotate(
            n=Count("placements"), runs=Sum("placements__tenant__quota__job_runs_per_second", default=0)
        )
        .order_by("region", "name")
    )


@operator_page()
def cell_list(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/cells/"""
    now = timezone.now()
    return page(request, "cells.html", "Cells", cells=[sight(cell, now=now) for cell in _cells()])


@operator_page("GET", "POST")
def one_cell(request: HttpRequest, name: str) -> HttpResponse:
    """GET /admin/pages/cells/<name>/; POST opens, cordons or retires it."""
    cell = _cells().filter(pk=name).first()
    if cell is None:
        raise Http404
    if request.method == "POST":
        state = request.POST.get("state", "")
        if state in _SETTABLE:
            act(
                request,
                set_cell_state,
                f"{name} is {state.lower()} now.",
                name=name,
                state=CellState(state),
                reason=request.POST.get("reason", "").strip()[:300],
            )
        return redirect("operators:cell", name)
    now = timezone.now()
    placements = (
        cell.placements.select_related("tenant__quota")
        .order_by("-tenant__quota__job_runs_per_second", "tenant__slug")
        .all()[:200]
    )
    return page(
        request,
        "cell.html",
        name,
        sight=sight(cell, now=now),
        stretch=[f"{now.astimezone(UTC) + timedelta(minutes=m):%Y-%m-%dT%H:%M}" for m in (1, 31)],
        form_id=uuid.uuid4().hex,
        sites=cell.sites.all(),
        placements=placements,
        relocation=cell.relocations.filter(state__in=["RUNNING", "PAUSED"]).first(),
        states=[(value, word) for value, word in _SETTABLE.items() if value != cell.state],
    )


@operator_page("POST")
def lengthen(request: HttpRequest, name: str) -> HttpResponse:
    """POST /admin/pages/cells/<name>/lengthen: LOW timers of coming minutes move later."""
    given = {field: request.POST.get(field, "").strip()[:300] for field in _LENGTHEN}
    since, until = (_utc(given[field]) for field in ("from", "until"))
    extra = given["extra_seconds"]
    if since is None or until is None or not (extra.isascii() and extra.isdecimal() and len(extra) < 7):
        messages.error(request, "Nothing was changed: two times in UTC and whole seconds are needed.")
        return redirect("operators:cell", name)
    try:
        done = lengthen_windows(
            cell=name,
            since=since,
            until=until,
            extra_seconds=int(extra),
            tenant=given["tenant"] or None,
            form_id=given["form_id"] or None,
            actor=operator(request),
            reason=given["reason"],
        )
    except Refused as refused:
        messages.error(request, f"Windows were not lengthened: {refused}")
    else:
        once = " That was done already, and not a second time." if done.get("again") else ""
        messages.success(request, f"{done['jobs']} LOW timers of {name} start later.{once}")
    return redirect("operators:cell", name)


def _utc(text: str) -> datetime | None:
    """A local time of a form, which is UTC here; None if it is none that can be told in UTC."""
    try:
        found = parse_datetime(text)
        if found is None or found.tzinfo is not None:
            return found and found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return found.replace(tzinfo=UTC)
