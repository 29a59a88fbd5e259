"""Jobs: the list, and one job with its ledger. What can be done to it is in `job_actions.py`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.http import HttpResponse

from cells.contract import Scope
from controlplane.console.axis import SCALES, Due, build, scale_for
from controlplane.console.bulk import ACTS, FILTERS
from controlplane.console.cells_client import Refused, path
from controlplane.console.job_actions import ACTIONS
from controlplane.console.lists import (
    PAGE,
    asked,
    due_of_jobs,
    label,
    next_page,
    run_bars,
    sentences,
    targets_of,
)
from controlplane.console.schedule_cost import schedule_cost, schedule_costs
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.why import LOOKS, obstacles
from controlplane.console.wording import instant, is_called, parse

_DRAWN = 50
_LISTED = 12
_NEXT = 8
EDITABLE = ("SCHEDULED", "PAUSED")
_RANGES = (("10 min", timedelta(minutes=10)), ("1 h", timedelta(hours=1)), ("24 h", timedelta(hours=24)))
_STATES = ("SCHEDULED", "PAUSED", "COMPLETED", "CANCELLED")


@tenant_page(Scope.JOBS_READ)
def job_list(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/jobs/"""
    filters = asked(visit, *FILTERS)
    context: dict[str, Any] = {
        "section": "jobs",
        "filters": filters,
        "states": _STATES,
        "jobs": [],
        "faults": [],
        "acts": ACTS.values(),
        "api_url": settings.PUBLIC_API_URL,
        "now_at": instant(visit.now),
        "ranges": [(word, instant(visit.now + span)) for word, span in _RANGES],
    }
    try:
        found = visit.cell.get(
            "/v1/jobs",
            limit=PAGE,
            cursor=visit.request.GET.get("cursor", ""),
            include="last_run",
            **filters,
        )
    except Refused as refused:
        if refused.status != 422:
            raise
        context["faults"] = sentences(refused.faults, refused.detail)
        return visit.page("console/jobs/list.html", status=422, **context)
    scheduled = [job for job in found["items"] if job["status"] == "SCHEDULED"]
    costs = schedule_costs(visit, [(job["schedule"], job["region_policy"]) for job in scheduled])
    by_job = {job["job_id"]: cost for job, cost in zip(scheduled, costs, strict=True)}
    context["jobs"] = [
        {**job, "label": label(job), "cost": by_job.get(job["job_id"])} for job in found["items"]
    ]
    context["targets"] = targets_of(visit, (job["target"].get("target_id") for job in found["items"]))
    context["next"] = next_page(visit, filters, found["next_cursor"])
    context["unreachable"] = found.get("unreachable_regions")
    context["paged"] = bool(visit.request.GET.get("cursor"))
    return visit.page("console/jobs/list.html", **context)


@tenant_page(Scope.JOBS_READ)
def job_detail(visit: Visit, job_id: str) -> HttpResponse:
    """GET /t/<slug>/jobs/<job_id>/"""
    found = _job(visit, job_id)
    job = found["job"]
    cost = None
    if job["status"] == "SCHEDULED":
        cost = schedule_cost(visit, job["schedule"], job["region_policy"])
    return visit.page("console/jobs/detail.html", section="jobs", cost=cost, **found)


@tenant_page(Scope.JOBS_READ)
def job_live(visit: Visit, job_id: str) -> HttpResponse:
    """GET /t/<slug>/jobs/<job_id>/live: the parts that change."""
    return visit.page("console/jobs/live.html", **_job(visit, job_id))


def _job(visit: Visit, job_id: str) -> dict[str, Any]:
    job = visit.cell.get(path("jobs", job_id))
    target = None
    if is_called(job["target"]):
        its_target = path("targets", job["target"]["target_id"])
        target = visit.cell.get_many([its_target]).get(its_target)
    runs = visit.cell.get("/v1/runs", job_id=job_id, limit=_DRAWN)
    ledger = visit.cell.get(path("jobs", job_id, "occurrences"), limit=_LISTED, count=_DRAWN)
    by_id = {run["run_id"]: run for run in runs["items"]}
    coming = [{**item, "when": parse(item["at"])} for item in ledger["next"]]
    scale = visit.request.GET.get("scale", "")
    if scale not in SCALES:
        scale = scale_for((item["when"] for item in coming), visit.now)
    due = [Due(at=item["when"], title=item["local"], note=item["note"] or "") for item in coming]
    axis = build(
        now=visit.now,
        scale=scale,
        zone=visit.zone,
        due=due or due_of_jobs(visit, [job]),
        bars=run_bars(visit, runs["items"]),
    )
    return {
        "job": job,
        "label": label(job),
        "ledger": [
            {**item, "look": LOOKS.get(item["verdict"], "mute"), "run": by_id.get(item["run_id"])}
            for item in ledger["past"]
        ],
        "more": bool(ledger["next_cursor"]),
        "coming": coming[:_NEXT],
        "obstacles": obstacles(job, target, suspended=visit.tenant.state == "SUSPENDED"),
        "axis": axis,
        "may_backfill": visit.may_trigger
        and job["status"] != "CANCELLED"
        and job["schedule"]["type"] != "NOW",
        "editable": visit.may_write and job["status"] in EDITABLE,
        "actions": [action for action in ACTIONS.values() if action.offered(visit, job)],
    }
