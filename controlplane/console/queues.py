"""Task queues: all of them, one with its workers and the tasks they hold, pause and resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from cells.domain.job import QUEUE_LABEL
from controlplane.console.acting import ask
from controlplane.console.axis import SCALES, build
from controlplane.console.cells_client import CellAway, Refused, path
from controlplane.console.lists import LONGEST, at_most_shown, due_of_jobs, label, labels_of, run_bars
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.wording import limited, readable_value

_JOBS = 12
#: Tasks under way that a page lists; each may be of another job, whose name is asked for.
_HELD = 25


@tenant_page(Scope.JOBS_READ)
def queue_list(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/queues/"""
    return visit.page("console/queues/list.html", section="queues", **_queues(visit))


@tenant_page(Scope.JOBS_READ)
def queues_live(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/queues/live: the table."""
    return visit.page("console/queues/list_live.html", **_queues(visit))


def _queues(visit: Visit) -> dict[str, Any]:
    return {"queues": visit.cell.get("/v1/task-queues")["items"]}


@tenant_page(Scope.JOBS_READ)
def queue_detail(visit: Visit, queue: str) -> HttpResponse:
    """GET /t/<slug>/queues/<queue>/"""
    return visit.page("console/queues/detail.html", section="queues", **_queue(visit, queue))


@tenant_page(Scope.JOBS_READ)
def queue_live(visit: Visit, queue: str) -> HttpResponse:
    """GET /t/<slug>/queues/<queue>/live: the parts that change."""
    return visit.page("console/queues/live.html", **_queue(visit, queue))


def _queue(visit: Visit, name: str) -> dict[str, Any]:
    found = visit.cell.get(path("task-queues", name))
    its_label = QUEUE_LABEL + name
    runs = visit.cell.get("/v1/runs", target=its_label, limit=LONGEST)
    jobs = visit.cell.get("/v1/jobs", target=its_label, state="SCHEDULED", limit=LONGEST)
    names = {job["job_id"]: label(job) for job in jobs["items"]}
    held = found["held"][:_HELD]
    names |= labels_of(visit, (task["job_id"] for task in held if task["job_id"] not in names))
    scale = visit.request.GET.get("scale", "")
    return {
        "queue": found,
        "label": its_label,
        "held": [{**task, "label": names.get(task["job_id"]), "said": _said(task)} for task in held],
        "jobs": [{"job": job, "label": label(job)} for job in jobs["items"][:_JOBS]],
        "jobs_count": at_most_shown(jobs),
        "axis": build(
            now=visit.now,
            scale=scale if scale in SCALES else "1h",
            zone=visit.zone,
            due=due_of_jobs(visit, jobs["items"]),
            bars=run_bars(visit, runs["items"], names=names),
        ),
    }


def _said(task: Mapping[str, Any]) -> str | None:
    """What its worker told of its progress, in a line."""
    return readable_value(task.get("progress"), limit=120)


# --- what can be done to a queue ---------------------------------------------------------------
@tenant_page(Scope.JOBS_WRITE, "GET", "POST")
def queue_action(visit: Visit, queue: str, verb: str) -> HttpResponse:
    """GET says what pause or resume will touch; POST does it."""
    if verb not in ("pause", "resume"):
        raise Http404
    if visit.request.method == "GET":
        return _ask(visit, visit.cell.get(path("task-queues", queue)), verb)
    try:
        after = visit.cell.post(path("task-queues", queue, verb=verb)).document
    except Refused as refused:
        if refused.status in (403, 404):
            raise
        messages.error(visit.request, refused.detail)
    except CellAway as away:
        messages.error(visit.request, f"{away} Nothing was changed.")
    else:
        waits = limited(after["backlog"])
        messages.success(
            visit.request,
            f"{queue} is paused. In it until it is resumed: {waits}."
            if verb == "pause"
            else f"{queue} hands out tasks again. In it: {waits}.",
        )
    return redirect(visit.url("queue", queue))


def _ask(visit: Visit, queue: Mapping[str, Any], verb: str) -> HttpResponse:
    name, waits, held = queue["task_queue"], limited(queue["backlog"]), limited(queue["leases"])
    if verb == "pause":
        points = (
            f"Workers are handed nothing more of it: in it now {waits}, and more gather.",
            f"What is under way ({held}) goes on and ends as usual. No job is changed.",
        )
    else:
        points = (f"In it: {waits}. They go to the workers that poll, what is due first before the rest.",)
    return ask(
        visit,
        title=f"{verb.capitalize()} {name}",
        points=points,
        verb=verb.capitalize(),
        back=visit.url("queue", name),
        keep="Not now",
        section="queues",
        danger=verb == "pause",
    )
