"""What the workspace's runs waited for: its own doing, or its neighbours' on the cell."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.http import HttpResponse

from cells.contract import Scope
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.wording import instant

#: How far back may be looked, as it is said and in hours.
SPANS = {"1h": ("1 hour", 1), "24h": ("24 hours", 24), "7d": ("7 days", 168)}
#: part → (what it is called, what can be done about it, where)
PARTS = {
    "window": (
        "Their own dispatch windows",
        "Asked for by the jobs; a shorter window starts them sooner.",
        "herd",
    ),
    "retries": ("Retries", "Earlier attempts and the waiting between them.", "dlq"),
    "quota": ("Your own limits", "Limits, a pause or a spent budget held them.", "limits"),
    "workers": ("Your own workers", "No worker fetched them; start more of them.", "queues"),
    "own_queue": ("Your own other runs", "They came all at once; windows spread them.", "herd"),
    "others": (
        "Other tenants of the cell",
        "The cell was busy with others. Its operators see this, too.",
        "",
    ),
    "target": ("A free place at the target", "Its limit was reached; a faster target takes more.", "targets"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One row of the page."""

    name: str
    words: str
    advice: str
    href: str
    ms: int
    mean_ms: float | None
    share: float | None


@tenant_page(Scope.JOBS_READ)
def delays(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/delays?span=1h|24h|7d"""
    span = visit.request.GET.get("span", "24h")
    if span not in SPANS:
        span = "24h"
    since = visit.now - timedelta(hours=SPANS[span][1])
    told: dict[str, Any] = visit.cell.get("/v1/delays", since=instant(since), until=instant(visit.now))
    return visit.page(
        "console/delays.html",
        section="overview",
        span=span,
        spans=[(value, words) for value, (words, _) in SPANS.items()],
        told=told,
        parts=[_part(visit, part) for part in sorted(told["parts"], key=lambda p: -p["ms"])],
    )


def _part(visit: Visit, told: dict[str, Any]) -> Part:
    words, advice, where = PARTS.get(told["part"], (told["part"], "", ""))
    return Part(
        name=told["part"],
        words=words,
        advice=advice,
        href=visit.url(where) if where else "",
        ms=told["ms"],
        mean_ms=told["mean_ms"],
        share=told["share"],
    )
