"""The first page: what happens, what comes next, what needs attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.http import HttpResponse

from cells.contract import Scope
from controlplane.console.axis import SCALES, build
from controlplane.console.cells_client import CellAway
from controlplane.console.cost import month_so_far
from controlplane.console.lists import by_time, due_of_jobs, label, run_bars
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.wording import parse

_MINUTES = 60
_MOST = 200


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
    stats = cell.get("/v1/stats", since=_text(since))
    jobs = cell.get("/v1/jobs", limit=_MOST)
    coming = cell.get(
        "/v1/jobs", state="SCHEDULED", due_from=_text(now), due_until=_text(now + span), limit=_MOST
    )["items"]
    runs = cell.get("/v1/runs", scheduled_from=_text(now - span), scheduled_until=_text(now), limit=_MOST)[
        "items"
    ]
    dead = cell.get("/v1/dlq", limit=1)
    names = {job["job_id"]: label(job) for job in (*jobs["items"], *coming)}
    following = by_time(coming) or by_time(jobs["items"])
    total = stats["total"]
    ended = total["succeeded"] + total["failed"]
    pending = cell.get("/v1/targets", state="PENDING", limit=_MOST)["items"]
    return {
        "cost": month_so_far(visit),
        "empty": not jobs["items"] and not runs,
        "total": total,
        "ended": ended,
        "success": None if not ended else f"{100 * total['succeeded'] / ended:.2f}".rstrip("0").rstrip("."),
        "per_minute": round((ended + total["cancelled"]) / _MINUTES, 1),
        "columns": columns(stats["minutes"], since),
        "next_runs": [{"job": job, "label": label(job)} for job in following[:6]],
        "dead": sum(group["count"] for group in dead["groups"]),
        "dead_groups": dead["groups"][:3],
        "pending": pending,
        "paused": cell.get("/v1/jobs", state="PAUSED", limit=_MOST)["items"],
        "axis": build(
            now=now,
            scale=scale,
            zone=visit.zone,
            due=due_of_jobs(visit, coming),
            bars=run_bars(visit, runs, names=names),
        ),
    }


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


def _text(at: Any) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
