"""Jobs: list, detail, and what can be done to one."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.axis import SCALES, Due, build, scale_for
from controlplane.console.cells_client import CellAway, Refused, path
from controlplane.console.lists import PAGE, asked, due_of_jobs, label, last_runs, next_page, run_bars
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.why import PASSED_OVER, obstacles
from controlplane.console.wording import counted, parse

_RUNS = 50
_COMING = 50
EDITABLE = ("SCHEDULED", "PAUSED")
_STATES = ("SCHEDULED", "PAUSED", "COMPLETED", "CANCELLED")


@tenant_page(Scope.JOBS_READ)
def job_list(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/jobs/"""
    filters = asked(visit, "state", "target", "tag", "name_prefix")
    context: dict[str, Any] = {
        "section": "jobs",
        "filters": filters,
        "states": _STATES,
        "jobs": [],
        "faults": [],
    }
    try:
        found = visit.cell.get("/v1/jobs", limit=PAGE, cursor=visit.request.GET.get("cursor", ""), **filters)
    except Refused as refused:
        if refused.status != 422:
            raise
        context["faults"] = [f"{fault.place} {fault.detail}" for fault in refused.faults] or [refused.detail]
        return visit.page("console/jobs/list.html", status=422, **context)
    outcomes = last_runs(visit, found["items"])
    context["jobs"] = [
        {**job, "label": label(job), "last": outcomes.get(job["job_id"])} for job in found["items"]
    ]
    context["next"] = next_page(visit, filters, found["next_cursor"])
    context["paged"] = bool(visit.request.GET.get("cursor"))
    return visit.page("console/jobs/list.html", **context)


@tenant_page(Scope.JOBS_READ)
def job_detail(visit: Visit, job_id: str) -> HttpResponse:
    """GET /t/<slug>/jobs/<job_id>/"""
    return visit.page("console/jobs/detail.html", section="jobs", **_job(visit, job_id))


@tenant_page(Scope.JOBS_READ)
def job_live(visit: Visit, job_id: str) -> HttpResponse:
    """GET /t/<slug>/jobs/<job_id>/live: the parts that change."""
    return visit.page("console/jobs/live.html", **_job(visit, job_id))


def _job(visit: Visit, job_id: str) -> dict[str, Any]:
    job = visit.cell.get(path("jobs", job_id))
    its_target = path("targets", job["target"]["target_id"])
    target = visit.cell.get_many([its_target]).get(its_target)
    runs = visit.cell.get("/v1/runs", job_id=job_id, limit=_RUNS)
    coming = _coming(visit, job)
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
        "runs": runs["items"],
        "more_runs": bool(runs["next_cursor"]),
        "coming": coming[:8],
        "obstacles": obstacles(job, target, suspended=visit.tenant.state == "SUSPENDED"),
        "passed_over": PASSED_OVER,
        "axis": axis,
        "editable": visit.may_write and job["status"] in EDITABLE,
        "actions": [action for action in ACTIONS.values() if action.offered(visit, job)],
    }


def _coming(visit: Visit, job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The next occurrences, the one that is planned first."""
    if job["status"] != "SCHEDULED" or job["schedule"]["type"] not in ("CRON", "RATE"):
        return []
    planned = parse(job["next_run_at"]) or visit.now
    body = {
        "schedule": job["schedule"],
        "after": f"{planned - timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}",
        "count": _COMING,
    }
    try:
        answer = visit.cell.post("/v1/schedules:preview", body)
    except Refused:
        return []
    return [{**item, "when": parse(item["at"])} for item in answer.document["occurrences"]]


# --- what can be done to a job -----------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """A verb: who may, when, what it will touch, and what it did."""

    verb: str
    word: str
    scope: Scope
    statuses: tuple[str, ...]
    danger: bool = False

    def offered(self, visit: Visit, job: Mapping[str, Any]) -> bool:
        return visit.may(self.scope) and job["status"] in self.statuses


ACTIONS: dict[str, Action] = {
    action.verb: action
    for action in (
        Action(
            verb="trigger",
            word="Run now",
            scope=Scope.JOBS_TRIGGER,
            statuses=("SCHEDULED", "PAUSED", "COMPLETED"),
        ),
        Action(verb="pause", word="Pause", scope=Scope.JOBS_WRITE, statuses=("SCHEDULED",)),
        Action(verb="resume", word="Resume", scope=Scope.JOBS_WRITE, statuses=("PAUSED",)),
        Action(
            verb="cancel",
            word="Cancel job",
            scope=Scope.JOBS_WRITE,
            statuses=("SCHEDULED", "PAUSED"),
            danger=True,
        ),
    )
}


@tenant_page(Scope.JOBS_READ, "GET", "POST")
def job_action(visit: Visit, job_id: str, verb: str) -> HttpResponse:
    """GET says what the action will touch, POST does it."""
    action = ACTIONS.get(verb)
    if action is None:
        raise Http404
    if visit.request.method == "POST":
        return _do(visit, job_id, action)
    job = visit.cell.get(path("jobs", job_id))
    if not action.offered(visit, job):
        messages.info(visit.request, f"This is not possible now: the job is {job['status'].lower()}.")
        return redirect(visit.url("job", job_id))
    template = "console/jobs/confirm_part.html" if visit.request.htmx else "console/jobs/confirm.html"  # type: ignore[attr-defined]
    return visit.page(
        template,
        section="jobs",
        job=job,
        label=label(job),
        action=action,
        touched=_touched(visit, job, action),
        token=str(uuid.uuid4()),
    )


def _touched(visit: Visit, job: Mapping[str, Any], action: Action) -> list[str]:
    """What an action will touch, in numbers."""
    if action.verb == "trigger":
        return ["1 run starts at once, beside the schedule. The schedule does not change."]
    if action.verb == "resume":
        return [
            "1 occurrence, the next one after now, is planned again.",
            "What was missed while paused does not run.",
        ]
    said = ["1 planned occurrence"] if job["next_run_at"] else ["0 planned occurrences"]
    if action.verb == "pause":
        return [f"{said[0]} will not run until you resume.", "Runs under way go on."]
    waiting = sum(
        len(visit.cell.get("/v1/runs", job_id=job["job_id"], state=state, limit=200)["items"])
        for state in ("DUE", "RETRY_WAIT")
    )
    running = len(visit.cell.get("/v1/runs", job_id=job["job_id"], state="RUNNING", limit=200)["items"])
    return [
        f"{said[0]} and {counted(waiting, 'waiting run')} will be cancelled.",
        f"{counted(running, 'run')} under way will go on to the end.",
        "A cancelled job cannot be started again; create a new one instead.",
    ]


def _do(visit: Visit, job_id: str, action: Action) -> HttpResponse:
    here = visit.url("job", job_id)
    try:
        if action.verb == "cancel":
            visit.cell.delete(path("jobs", job_id))
            messages.success(visit.request, "The job is cancelled.")
        else:
            token = visit.request.POST.get("token", "")[:64] or None
            answer = visit.cell.post(path("jobs", job_id, verb=action.verb), {}, idempotency_key=token)
            if action.verb == "trigger":
                messages.success(visit.request, "A run was started.", extra_tags=answer.document["run_id"])
                return redirect(visit.url("run", answer.document["run_id"]))
            done = "paused" if action.verb == "pause" else "scheduled again"
            messages.success(visit.request, f"The job is {done}.")
    except Refused as refused:
        if refused.status == 404:
            raise
        messages.error(visit.request, refused.detail)
    except CellAway as away:
        messages.error(visit.request, str(away))
    return redirect(here)
