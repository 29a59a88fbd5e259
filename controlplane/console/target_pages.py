"""One target: what it is, how it does, who calls it, and what can be done to it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.acting import first_use, not_used
from controlplane.console.axis import SCALES, build
from controlplane.console.capacity import capacity
from controlplane.console.cells_client import CellAway, NotDone, Refused, path
from controlplane.console.lists import (
    LONGEST,
    at_most_shown,
    due_of_jobs,
    label,
    labels_of,
    run_bars,
    sentences,
)
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.wording import parse, readable

_JOBS = 12
#: A test call ends before the console stops waiting for the cell.
_TEST_SECONDS = 4
_CHANGED = (
    "Nothing was approved: somebody changed this target since you looked."
    " Look at its address again, and approve it then."
)
_ENDED = ("SUCCEEDED", "FAILED", "SUCCEEDED_AFTER_CANCEL", "UNKNOWN")
_DONE = {
    "approve": "{} is approved: jobs may call it.",
    "disable": "{} is disabled: nothing calls it until it is approved again.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """What the latest runs say about a target."""

    looked_at: int
    since: str | None  # the scheduled instant of the oldest run looked at
    succeeded: int
    failed: int
    retrying: int
    p50_ms: float | None
    p99_ms: float | None
    slow: int  # calls that took longer than the target promised
    dots: tuple[Dot, ...]

    @property
    def success(self) -> str | None:
        ended = self.succeeded + self.failed
        return None if not ended else f"{100 * self.succeeded / ended:.1f}".removesuffix(".0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Dot:
    """One call of the latency drawing; places in percent."""

    x: float
    height: float
    look: str
    title: str
    run_id: str


@tenant_page(Scope.JOBS_READ)
def target_detail(visit: Visit, target_id: str) -> HttpResponse:
    """GET /t/<slug>/targets/<target_id>/"""
    return visit.page("console/targets/detail.html", section="targets", **_target(visit, target_id))


@tenant_page(Scope.JOBS_READ)
def target_live(visit: Visit, target_id: str) -> HttpResponse:
    """GET /t/<slug>/targets/<target_id>/live: the parts that change."""
    return visit.page("console/targets/live.html", **_target(visit, target_id))


def _target(visit: Visit, target_id: str) -> dict[str, Any]:
    target = visit.cell.get(path("targets", target_id))
    told = visit.cell.get(path("targets", target_id) + "/health")
    runs = visit.cell.get("/v1/runs", target=target_id, limit=LONGEST)
    jobs = visit.cell.get("/v1/jobs", target=target_id, state="SCHEDULED", limit=LONGEST)
    scale = visit.request.GET.get("scale", "")
    scale = scale if scale in SCALES else "1h"
    names = {job["job_id"]: label(job) for job in jobs["items"]}
    shown = runs["items"][:8]
    names |= labels_of(visit, (run["job_id"] for run in shown if run["job_id"] not in names))
    return {
        "target": target,
        "capacity": capacity(told),
        "drill": told.get("drill"),
        "health": health(runs["items"], int(target["latency_slo_ms"])),
        "latest": [{**run, "label": names.get(run["job_id"])} for run in shown],
        "jobs": [{"job": job, "label": label(job)} for job in jobs["items"][:_JOBS]],
        "jobs_count": at_most_shown(jobs),
        "axis": build(
            now=visit.now,
            scale=scale,
            zone=visit.zone,
            due=due_of_jobs(visit, jobs["items"]),
            bars=run_bars(visit, runs["items"], names=names),
        ),
    }


def health(runs: Sequence[Mapping[str, Any]], promised_ms: int) -> Health:
    """From a target's latest runs, newest first. Latency is that of the last call of each."""
    ended = [run for run in runs if run["state"] in _ENDED]
    calls = [(run, ms) for run in ended if (ms := run["where_the_time_went"].get("run_ms")) is not None]
    times = sorted(ms for _, ms in calls)
    highest = max([promised_ms, *times])
    width = 100 / max(len(calls), 60)
    dots = tuple(
        Dot(
            x=round(100 - (index + 1) * width, 3),
            height=round(max(3.0, ms / highest * 100), 2),
            look="bad" if run["state"] == "FAILED" else "wait" if ms > promised_ms else "good",
            title=f"{run['scheduled_for']}: {ms} ms, {run['state'].lower()}",
            run_id=run["run_id"],
        )
        for index, (run, ms) in enumerate(calls)
    )
    succeeded = sum(run["state"] in ("SUCCEEDED", "SUCCEEDED_AFTER_CANCEL") for run in ended)
    return Health(
        looked_at=len(runs),
        since=runs[-1]["scheduled_for"] if runs else None,
        succeeded=succeeded,
        failed=len(ended) - succeeded,
        retrying=sum(run["state"] == "RETRY_WAIT" for run in runs),
        p50_ms=_quantile(times, 0.5),
        p99_ms=_quantile(times, 0.99),
        slow=sum(ms > promised_ms for ms in times),
        dots=dots,
    )


def _quantile(ordered: Sequence[float], q: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None


# --- what can be done to a target -------------------------------------------------------------
@tenant_page(Scope.JOBS_READ, "GET", "POST")
def target_action(visit: Visit, target_id: str, verb: str) -> HttpResponse:
    """GET says what approve, rotate, disable or test will touch; POST does it."""
    act = _ACTIONS.get(verb)
    if act is None:
        raise Http404
    needed, do = act
    if not visit.may(needed) or (verb == "disable" and not visit.may_edit_targets):
        raise Refused(403, {})
    if visit.request.method == "GET":
        return _confirm(visit, target_id, verb)
    try:
        return do(visit, target_id)
    except Refused as refused:
        if refused.status in (403, 404):
            raise
        messages.error(visit.request, refused.detail)
    except CellAway as away:
        messages.error(visit.request, str(away))
    return redirect(visit.url("target", target_id))


def _approve(visit: Visit, target_id: str) -> HttpResponse:
    seen = visit.request.POST.get("version", "")
    version = int(seen) if seen.isascii() and seen.isdecimal() and len(seen) < 19 else 0
    try:
        visit.cell.post(path("targets", target_id, verb="approve"), {}, version=version)
    except Refused as refused:
        if refused.status != 412:
            raise
        messages.error(visit.request, _CHANGED)
        return redirect(visit.url("target", target_id))
    messages.success(visit.request, _DONE["approve"].format(target_id))
    return redirect(visit.url("target", target_id))


def _disable(visit: Visit, target_id: str) -> HttpResponse:
    visit.cell.patch(path("targets", target_id), {"disabled": True})
    messages.success(visit.request, _DONE["disable"].format(target_id))
    return redirect(visit.url("target", target_id))


def _rotate(visit: Visit, target_id: str) -> HttpResponse:
    token = visit.request.POST.get("token", "")[:64]
    if not first_use(visit.request, token):
        messages.info(
            visit.request,
            "This was asked for before: if the cell did it, the new secret was shown once, then. To be sure,"
            " rotate it again.",
        )
        return redirect(visit.url("target", target_id))
    try:
        answer = visit.cell.post(path("targets", target_id, verb="rotate-secret"), {})
    except (Refused, NotDone):
        not_used(visit.request, token)
        raise
    return secret_page(visit, answer.document, "has a new secret")


def _test(visit: Visit, target_id: str) -> HttpResponse:
    """One call, with its answer on the page."""
    posted = visit.request.POST
    method, below = posted.get("method", "POST"), posted.get("path", "").strip()
    body: dict[str, Any] = {"method": method, "timeout_seconds": _TEST_SECONDS}
    if below:
        body["path"] = below
    if text := posted.get("payload", "").strip():
        try:
            msgspec.json.decode(text.encode())
        except msgspec.DecodeError as fault:
            messages.error(visit.request, f"Nothing was called: the payload is not JSON ({fault}).")
            return redirect(visit.url("target", target_id))
        body["payload"] = msgspec.Raw(text.encode())
    try:
        tested = visit.cell.post(path("targets", target_id, verb="test"), body).document
    except Refused as refused:
        if refused.status in (403, 404):
            raise
        for said in sentences(refused.faults, refused.detail):
            messages.error(visit.request, f"Nothing was called: {said}")
        return redirect(visit.url("target", target_id))
    target = visit.cell.get(path("targets", target_id))
    return visit.page(
        "console/targets/tested.html",
        section="targets",
        target=target,
        tested=tested,
        answer=readable(tested.get("body")),
    )


_ACTIONS: dict[str, tuple[Scope, Callable[[Visit, str], HttpResponse]]] = {
    "approve": (Scope.TARGETS_APPROVE, _approve),
    "rotate": (Scope.TARGETS_APPROVE, _rotate),
    "disable": (Scope.JOBS_WRITE, _disable),
    "test": (Scope.JOBS_WRITE, _test),
}


def _confirm(visit: Visit, target_id: str, verb: str) -> HttpResponse:
    target = visit.cell.get(path("targets", target_id))
    jobs = visit.cell.get("/v1/jobs", target=target_id, state="SCHEDULED", limit=LONGEST)
    soon = visit.now + timedelta(hours=24)
    due = [at for job in jobs["items"] if (at := parse(job["due_at"])) and at < soon]
    part = "_part" if visit.request.htmx else ""  # type: ignore[attr-defined]
    return visit.page(
        f"console/targets/confirm{part}.html",
        section="targets",
        target=target,
        verb=verb,
        number=at_most_shown(jobs),
        one=at_most_shown(jobs) == "1",
        due=len(due),
        token=str(uuid.uuid4()),
        methods=("POST", "GET", "PUT", "PATCH", "DELETE"),
    )


def secret_page(visit: Visit, target: dict[str, Any], happened: str) -> HttpResponse:
    """A target with its signing secret, which is shown this once."""
    return visit.page("console/targets/secret.html", section="targets", target=target, happened=happened)
