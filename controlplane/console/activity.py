"""What ran, how it went and how late it started: charts, with a table of the same."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse

from cells.contract import Scope
from controlplane.console.axis import SCALES, build
from controlplane.console.charts import STEPS, bins, counts_chart, lag_chart, success_chart
from controlplane.console.lists import asked, labels_of
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.wording import instant

#: What a filter of statistics is called where runs are listed.
_IN_RUNS = {"job_id": "job_id", "target_id": "target"}


@tenant_page(Scope.JOBS_READ)
def activity(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/activity"""
    return visit.page("console/activity.html", section="activity", **_activity(visit))


@tenant_page(Scope.JOBS_READ)
def activity_live(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/activity/live: the parts that change."""
    return visit.page("console/parts/activity_live.html", **_activity(visit))


def _label(visit: Visit, of: Mapping[str, str]) -> str:
    """Of which job or target the figures are, in words; empty: of all."""
    if job_id := of.get("job_id"):
        return labels_of(visit, [job_id]).get(job_id, job_id)
    return of.get("target_id", "")


def _activity(visit: Visit) -> dict[str, Any]:
    scale = visit.request.GET.get("scale", "")
    scale = scale if scale in STEPS else "1h"
    step, span = STEPS[scale], SCALES[scale]
    # Whole minutes, as the overview has them: the same hour has the same figures on both.
    since = visit.now.replace(second=0, microsecond=0) - span + timedelta(minutes=1)
    of = asked(visit, "job_id", "target_id")
    stats = visit.cell.get("/v1/stats", since=instant(since), until=instant(visit.now), **of)
    # A first step that is not whole would be cut.
    first = since + step - timedelta(minutes=1)
    found = bins(stats["minutes"], start=first, until=visit.now, step=step)
    total = stats["total"]
    ended = total["succeeded"] + total["failed"]
    return {
        "scale": scale,
        "of": of,
        "of_label": _label(visit, of),
        # The same choice for this page's own links, and for lists of runs.
        "of_query": "".join(f"&{urlencode({name: value})}" for name, value in of.items()),
        "runs_query": "".join(f"&{urlencode({_IN_RUNS[name]: value})}" for name, value in of.items()),
        "scales": tuple(STEPS),
        "since": instant(since),
        "step_minutes": int(step.total_seconds() // 60),
        "total": total,
        "success": f"{100 * total['succeeded'] / ended:.2f}".rstrip("0").rstrip(".") if ended else None,
        "ended": ended + total["cancelled"],
        "per_minute": round((ended + total["cancelled"]) / (span.total_seconds() / 60), 1),
        "counts": counts_chart(found),
        "rate": success_chart(found),
        "lags": lag_chart(found),
        "rows": [each for each in reversed(found) if each.started or each.ended or each.skipped],
        "ticks": build(now=visit.now, scale=scale, zone=visit.zone, now_at=1.0).ticks,
    }
