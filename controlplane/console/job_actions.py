"""What can be done to one job: each verb says what it will touch, in numbers, before it does it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.cells_client import CellAway, Refused, path
from controlplane.console.lists import LONGEST, label
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.wording import counted, parse


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
        if job["schedule"]["type"] in ("ONCE", "NOW"):
            return [_resumed_once(visit, job)]
        return [
            "1 occurrence, the next one after now, is planned again.",
            "What was missed while paused does not run.",
        ]
    said = ["1 planned occurrence"] if job["next_run_at"] else ["0 planned occurrences"]
    if action.verb == "pause":
        return [f"{said[0]} will not run until you resume.", "Runs under way go on."]
    waiting = sum(
        len(visit.cell.get("/v1/runs", job_id=job["job_id"], state=state, limit=LONGEST)["items"])
        for state in ("DUE", "RETRY_WAIT")
    )
    running = len(visit.cell.get("/v1/runs", job_id=job["job_id"], state="RUNNING", limit=LONGEST)["items"])
    return [
        f"{said[0]} and {counted(waiting, 'waiting run')} will be cancelled.",
        f"{counted(running, 'run')} under way will go on to the end.",
        "A cancelled job cannot be started again; create a new one instead.",
    ]


def _resumed_once(visit: Visit, job: Mapping[str, Any]) -> str:
    at = parse(job["schedule"].get("run_at") or job["created_at"])
    if at is not None and at > visit.now:
        return "Its 1 run is planned again, at the time it had."
    return "Its time went by while it was paused: its 1 run starts as soon as you resume it."


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
