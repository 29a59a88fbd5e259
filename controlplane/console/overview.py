"""The first page: what happens, what comes next, what needs attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.http import HttpResponse

from cells.contract import Scope
from controlplane.console.axis import NOW_AT, SCALES, build
from controlplane.console.cells_client import CellAway
from controlplane.console.cost import outlook
from controlplane.console.lists import (
    LONGEST,
    at_most_shown,
    by_time,
    due_of_jobs,
    label,
    labels_of,
    run_bars,
)
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.wording import instant, parse

_MINUTES = 60
_NEXT = 6
#: What comes next is looked for in these spans, the nearest first.
_SPANS = tuple(timedelta(seconds=s) for s in (10, 60, 600, 3600, 86400, 7 * 86400, 366 * 86400))


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One minute of the chart; sizes in percent."""

    x: float
    good: float
    bad: float
    title: str


@tenant_page(Scope.JOBS_READ)
def overview(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/"""
    context: dict[str, Any] = {"section": "overview", "scale": _scale(visit)}
    try:
        context |= _live(visit)
    except CellAway as away:
        context["away"] = str(away)
    if not context.get("away") and context["empty"]:
        context |= {
            "api_url": settings.PUBLIC_API_URL,
            "targets": visit.cell.get("/v1/targets", limit=5)["items"],
        }
    return visit.page("console/overview.html", **context)


@tenant_page(Scope.JOBS_READ)
def overview_live(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/live: the parts of the overview that change."""
    return visit.page("console/parts/overview_live.html", scale=_scale(visit), **_live(visit))


def _scale(visit: Visit) -> str:
    asked = visit.request.GET.get("scale", "")
    return asked if asked in SCALES else "1h"


def _live(visit: Visit) -> dict[str, Any]:
    cell, now = visit.cell, visit.now
    scale = _scale(visit)
    span = SCALES[scale]
    since = now.replace(second=0, microsecond=0) - timedelta(minutes=_MINUTES - 1)
    stats = cell.get("/v1/stats", since=instant(since))
    jobs = cell.get("/v1/jobs", limit=1)
    coming = _due(visit, span)
    runs = cell.get(
        "/v1/runs", scheduled_from=instant(now - span * NOW_AT), scheduled_until=instant(now), limit=LONGEST
    )
    dead = cell.get("/v1/dlq", limit=1)
    following = _following(visit)
    names = {job["job_id"]: label(job) for job in (*coming["items"], *following)}
    names |= labels_of(visit, (run["job_id"] for run in runs["items"] if run["job_id"] not in names))
    total = stats["total"]
    ended = total["succeeded"] + total["failed"]
    pending = cell.get("/v1/targets", state="PENDING", limit=LONGEST)
    paused = cell.get("/v1/jobs", state="PAUSED", limit=LONGEST)
    return {
        "cost": outlook(visit),
        "empty": not jobs["items"] and not runs["items"],
        "total": total,
        "ended": ended,
        "success": None if not ended else f"{100 * total['succeeded'] / ended:.2f}".rstrip("0").rstrip("."),
        "per_minute": round((ended + total["cancelled"]) / _MINUTES, 1),
        "columns": columns(stats["minutes"], since),
        "next_runs": [{"job": job, "label": label(job)} for job in following[:_NEXT]],
        "dead": sum(group["count"] for group in dead["groups"]),
        "dead_more": bool(dead["truncated"]),
        "dead_groups": dead["groups"][:3],
        "pending": at_most_shown(pending),
        "pending_one": len(pending["items"]) == 1,
        "paused": at_most_shown(paused),
        "paused_one": len(paused["items"]) == 1,
        "clear": not dead["groups"] and not pending["items"] and not paused["items"],
        "since": instant(since),
        "partly_drawn": bool(runs["next_cursor"] or coming["next_cursor"]),
        "axis": build(
            now=now,
            scale=scale,
            zone=visit.zone,
            due=due_of_jobs(visit, coming["items"]),
            bars=run_bars(visit, runs["items"], names=names),
        ),
    }


def _due(visit: Visit, span: timedelta) -> Any:
    """Jobs that start within a span from now: one page, in no order of time."""
    return visit.cell.get(
        "/v1/jobs",
        state="SCHEDULED",
        due_from=instant(visit.now),
        due_until=instant(visit.now + span),
        limit=LONGEST,
    )


def _following(visit: Visit) -> list[Mapping[str, Any]]:
    """What starts next, the nearest first. Looking further out only where the near has too little finds
    the right ones however many jobs there are."""
    found: list[Mapping[str, Any]] = []
    for span in _SPANS:
        page = _due(visit, span)
        found = by_time(page["items"])
        if len(found) >= _NEXT:
            break
    return found


def columns(minutes: list[Mapping[str, Any]], since: Any) -> list[Column]:
    """The last hour's minutes as columns, the highest reaching the top."""
    most = max((m["succeeded"] + m["failed"] + m["cancelled"] for m in minutes), default=0) or 1
    found = []
    for minute in minutes:
        at = parse(minute["minute"])
        if at is None:
            continue
        index = int((at - since).total_seconds() // 60)
        if not 0 <= index < _MINUTES:
            continue
        good, bad = minute["succeeded"] + minute["cancelled"], minute["failed"]
        found.append(
            Column(
                x=round(index / _MINUTES * 100, 3),
                good=round(good / most * 100, 2),
                bad=round(bad / most * 100, 2),
                title=f"{minute['minute'][11:16]} UTC: {good} succeeded, {bad} failed",
            )
        )
    return found
