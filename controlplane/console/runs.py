"""Runs: list, one run with its time and attempts, cancel, and once more after it failed for good."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from cells.domain.job import QUEUE_LABEL, WORKFLOW_LABEL
from cells.domain.outcome import HOLDER_DIED, fingerprint
from cells.domain.run import TERMINAL, RunState
from controlplane.console.axis import SCALES, build, scale_for
from controlplane.console.cells_client import CellAway, Refused, path
from controlplane.console.lists import (
    PAGE,
    asked,
    label,
    labels_of,
    next_page,
    run_bars,
    sentences,
    settled,
    targets_of,
)
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.waterfall import waterfall
from controlplane.console.wording import STEP, instant, of_workflow, parse, readable, time_split

#: A run's page looks back.
_NOW_AT = 0.85
_CANCELLABLE = ("DUE", "READY", "RUNNING", "RETRY_WAIT")
_TIMES = ("scheduled_from", "scheduled_until", "finished_from", "finished_until", "due_from", "due_until")
_RANGES = (
    ("1 h", timedelta(hours=1)),
    ("24 h", timedelta(hours=24)),
    ("7 d", timedelta(days=7)),
    ("30 d", timedelta(days=30)),
)


@tenant_page(Scope.JOBS_READ)
def run_list(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/runs/"""
    if elsewhere := settled(visit, *_TIMES):
        return redirect(elsewhere)
    filters = asked(visit, "state", "job_id", "target", *_TIMES)
    context: dict[str, Any] = {
        "section": "runs",
        "filters": filters,
        "states": list(RunState),
        # More than one can be asked for by links; the form keeps them.
        "several": [state] if "," in (state := filters.get("state", "")) else [],
        "runs": [],
        "ranges": [(word, instant(visit.now - span)) for word, span in _RANGES],
    }
    try:
        found = visit.cell.get("/v1/runs", limit=PAGE, cursor=visit.request.GET.get("cursor", ""), **filters)
    except Refused as refused:
        if refused.status != 422:
            raise
        context["faults"] = sentences(refused.faults, refused.detail)
        return visit.page("console/runs/list.html", status=422, **context)
    labels = labels_of(visit, [*(run["job_id"] for run in found["items"]), *job_asked(filters)])
    context["runs"] = [{**run, "label": labels.get(run["job_id"])} for run in found["items"]]
    context["targets"] = targets_of(visit, (run["target_id"] for run in found["items"]))
    context["job_label"] = labels.get(filters.get("job_id", ""))
    context["next"] = next_page(visit, filters, found["next_cursor"])
    # Said only where somebody looked for something that is not found by its scheduled time.
    context["looked_back_to"] = found.get("looked_back_to") if "scheduled_from" not in filters else None
    context["paged"] = bool(visit.request.GET.get("cursor"))
    return visit.page("console/runs/list.html", **context)


def job_asked(filters: Mapping[str, str]) -> list[str]:
    """The job a list is limited to, if it is."""
    return [filters["job_id"]] if "job_id" in filters else []


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
    step = of_workflow(run["job_id"])
    job = None if step else visit.cell.get(path("jobs", run["job_id"]))
    scheduled = parse(run["scheduled_for"]) or visit.now
    scale = visit.request.GET.get("scale", "")
    if scale not in SCALES:
        age = visit.now - scheduled
        scale = scale_for([visit.now + age], visit.now, now_at=1 - _NOW_AT)
    dead = run["state"] in ("FAILED", "UNKNOWN")
    return {
        "run": run,
        "pulled": _is_pulled(run),
        "job": job,
        "label": STEP if job is None else label(job),
        "done": run["state"] in TERMINAL,
        "split": time_split(run["where_the_time_went"]),
        "waterfall": waterfall(run, visit.now),
        "attempts": [_attempt(run, job, attempt) for attempt in run["attempts"]],
        "cancellable": visit.may_write and run["state"] in _CANCELLABLE,
        "again": _may_run_again(visit, run, job),
        "fingerprint": _fingerprint(run) if dead else None,
        "axis": build(
            now=visit.now, scale=scale, zone=visit.zone, bars=run_bars(visit, [run]), now_at=_NOW_AT
        ),
    }


def _may_run_again(visit: Visit, run: Mapping[str, Any], job: Mapping[str, Any] | None) -> bool:
    """Whether a new run of the job would stand for this one. A call that told of an end is no run of it."""
    if job is None or job["status"] == "CANCELLED" or run.get("callback_of"):
        return False
    return visit.may_trigger and run["state"] in ("FAILED", "UNKNOWN")


def _fingerprint(run: Mapping[str, Any]) -> str:
    """The way it failed, as the dead letters are grouped."""
    last = run["attempts"][-1] if run["attempts"] else {}
    lost = last.get("outcome") == "LOST"
    error = HOLDER_DIED[run["state"]] if lost else last.get("error")
    return fingerprint(run["target_id"] or "", None if lost else run["http_status"], error)


def _is_pulled(run: Mapping[str, Any]) -> bool:
    """Whether a worker polls for it; then nothing is called."""
    return str(run["target_id"] or "").startswith(QUEUE_LABEL)


def _attempt(
    run: Mapping[str, Any], job: Mapping[str, Any] | None, attempt: Mapping[str, Any]
) -> dict[str, Any]:
    """An attempt with what its call said about itself, and the answer."""
    started = parse(attempt["started_at"])
    headers = {
        "Idempotency-Key": run["idempotency_key"],
        "X-Fencing-Token": attempt["epoch"],
        "X-Clockhouse-Attempt": attempt["number"],
        "webhook-id": run["idempotency_key"],
        "webhook-timestamp": int(started.timestamp()) if started else "–",
        "webhook-signature": "v1,…",
    }
    # The last attempt of a run that failed for good was not followed by another, whatever its answer allowed.
    over = attempt["outcome"] == "RETRYABLE" and attempt["retry_in_ms"] is None
    outcome = "TERMINAL" if over else attempt["outcome"]
    # A callback carries none of the job's headers.
    its_own = job and job["version"] == run["version"] and not run.get("callback_of")
    own = (job.get("headers") or {}) if job and its_own else {}
    called = started and not str(run["target_id"] or "").startswith((QUEUE_LABEL, WORKFLOW_LABEL))
    more = {"sent": headers if called else {}, "own": own, "answer": readable(attempt.get("body"))}
    return {**attempt, "outcome": outcome, **more}


@tenant_page(Scope.JOBS_WRITE, "GET", "POST")
def run_cancel(visit: Visit, run_id: str) -> HttpResponse:
    """GET says what will happen, POST asks the run to end."""
    if visit.request.method == "GET":
        run = visit.cell.get(path("runs", run_id))
        return _confirm(visit, "console/runs/confirm", run=run, step=of_workflow(run["job_id"]))
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


@tenant_page(Scope.JOBS_TRIGGER, "GET", "POST")
def run_again(visit: Visit, run_id: str) -> HttpResponse:
    """GET says what a new run of the same job would do, POST starts it."""
    run = visit.cell.get(path("runs", run_id))
    job = visit.cell.get(path("jobs", run["job_id"]))
    if visit.request.method == "GET":
        more = {"run": run, "job": job, "label": label(job), "token": str(uuid.uuid4())}
        return _confirm(visit, "console/runs/again", **more)
    token = visit.request.POST.get("token", "")[:64] or None
    try:
        answer = visit.cell.post(path("jobs", job["job_id"], verb="trigger"), {}, idempotency_key=token)
    except Refused as refused:
        if refused.status == 404:
            raise
        messages.error(visit.request, refused.detail)
    except CellAway as away:
        messages.error(visit.request, str(away))
    else:
        messages.success(visit.request, f"A new run of {label(job)} was started. This is it.")
        return redirect(visit.url("run", answer.document["run_id"]))
    return redirect(visit.url("run", run_id))


def _confirm(visit: Visit, template: str, **context: Any) -> HttpResponse:
    part = "_part" if visit.request.htmx else ""  # type: ignore[attr-defined]
    return visit.page(f"{template}{part}.html", section="runs", **context)
