"""Runs and dead letters."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from cells.domain.run import TERMINAL, RunState
from controlplane.console.axis import SCALES, build, scale_for
from controlplane.console.cells_client import CellAway, Refused, path
from controlplane.console.lists import PAGE, asked, label, next_page, run_bars
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.wording import parse, time_split

#: A run's page looks back.
_NOW_AT = 0.85


@tenant_page(Scope.JOBS_READ)
def run_list(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/runs/"""
    filters = asked(visit, "state", "job_id", "target", "scheduled_from", "scheduled_until")
    context: dict[str, Any] = {"section": "runs", "filters": filters, "states": list(RunState), "runs": []}
    try:
        found = visit.cell.get("/v1/runs", limit=PAGE, cursor=visit.request.GET.get("cursor", ""), **filters)
    except Refused as refused:
        if refused.status != 422:
            raise
        context["faults"] = [f"{fault.place} {fault.detail}" for fault in refused.faults] or [refused.detail]
        return visit.page("console/runs/list.html", status=422, **context)
    names = {job["job_id"]: label(job) for job in visit.cell.get("/v1/jobs", limit=200)["items"]}
    context["runs"] = [{**run, "label": names.get(run["job_id"])} for run in found["items"]]
    context["next"] = next_page(visit, filters, found["next_cursor"])
    context["paged"] = bool(visit.request.GET.get("cursor"))
    return visit.page("console/runs/list.html", **context)


@tenant_page(Scope.JOBS_READ)
def run_detail(visit: Visit, run_id: str) -> HttpResponse:
    """GET /t/<slug>/runs/<run_id>/"""
    return visit.page("console/runs/detail.html", section="runs", **_run(visit, run_id))


@tenant_page(Scope.JOBS_READ)
def run_live(visit: Visit, run_id: str) -> HttpResponse:
    """GET /t/<slug>/runs/<run_id>/live: the parts that change."""
    return visit.page("console/runs/live.html", **_run(visit, run_id))


def _run(visit: Visit, run_id: str) -> dict[str, Any]:
    run = visit.cell.get(path("runs", run_id))
    job = visit.cell.get(path("jobs", run["job_id"]))
    scheduled = parse(run["scheduled_for"]) or visit.now
    scale = visit.request.GET.get("scale", "")
    if scale not in SCALES:
        age = visit.now - scheduled
        scale = scale_for([visit.now + age], visit.now, now_at=1 - _NOW_AT)
    return {
        "run": run,
        "job": job,
        "label": label(job),
        "done": run["state"] in TERMINAL,
        "split": time_split(run["where_the_time_went"]),
        "cancellable": visit.may_write and run["state"] in ("DUE", "READY", "RUNNING", "RETRY_WAIT"),
        "axis": build(
            now=visit.now, scale=scale, zone=visit.zone, bars=run_bars(visit, [run]), now_at=_NOW_AT
        ),
    }


@tenant_page(Scope.JOBS_WRITE, "GET", "POST")
def run_cancel(visit: Visit, run_id: str) -> HttpResponse:
    """GET says what will happen, POST asks the run to end."""
    if visit.request.method == "GET":
        run = visit.cell.get(path("runs", run_id))
        template = "console/runs/confirm_part.html" if visit.request.htmx else "console/runs/confirm.html"  # type: ignore[attr-defined]
        return visit.page(template, section="runs", run=run)
    try:
        answer = visit.cell.post(path("runs", run_id, verb="cancel"), {})
        waits = answer.document["state"] == "RUNNING"
        done = "The run is asked to end; it will not be retried." if waits else "The run is cancelled."
        messages.success(visit.request, done)
    except Refused as refused:
        if refused.status == 404:
            raise
        messages.error(visit.request, refused.detail)
    except CellAway as away:
        messages.error(visit.request, str(away))
    return redirect(visit.url("run", run_id))


@tenant_page(Scope.JOBS_READ)
def dead_letters(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/dlq/"""
    filters = asked(visit, "target", "fingerprint")
    found = visit.cell.get("/v1/dlq", limit=PAGE, cursor=visit.request.GET.get("cursor", ""), **filters)
    return visit.page(
        "console/runs/dlq.html",
        section="dlq",
        filters=filters,
        groups=found["groups"],
        items=found["items"],
        next=next_page(visit, filters, found["next_cursor"]),
    )
