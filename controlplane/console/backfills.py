"""Backfills: a stretch of a job's past that is run after all, with its numbers first."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.acting import Form, first_use
from controlplane.console.cells_client import CellAway, Fault, Refused, path
from controlplane.console.job_form import LOCAL_TIME
from controlplane.console.lists import PAGE, asked, label, labels_of, next_page
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.wording import instant

_FIELDS = ("from", "until", "max_per_second")
_DAY = timedelta(days=1)


@tenant_page(Scope.JOBS_TRIGGER, "GET", "POST")
def job_backfill(visit: Visit, job_id: str) -> HttpResponse:
    """GET asks which stretch; POST says in numbers what would run, and with `start` begins it."""
    job = visit.cell.get(path("jobs", job_id))
    if visit.request.method == "GET":
        local = visit.now.astimezone(visit.zone)
        values = {
            "from": f"{local - _DAY:%Y-%m-%dT%H:%M:%S}",
            "until": f"{local:%Y-%m-%dT%H:%M:%S}",
            "max_per_second": "10",
        }
        return _form(visit, job, Form(values=values))
    posted = visit.request.POST
    form = Form(values={name: posted.get(name, "").strip()[:40] for name in _FIELDS})
    asked_for = {
        "from": _instant(visit, form.values["from"]),
        "until": _instant(visit, form.values["until"]),
        "max_per_second": _number(form.values["max_per_second"]),
    }
    # Only what the numbers were shown of is begun.
    planned = " ".join(map(str, asked_for.values()))
    start = "start" in posted and posted.get("planned") == planned
    if "start" in posted and not start:
        form.general.append("The stretch or the pace was changed since: these are its numbers now.")
    if start and not first_use(visit.request, posted.get("token", "")[:64]):
        messages.info(visit.request, "This backfill was asked for already.")
        return redirect(f"{visit.url('backfills')}?job_id={job_id}")
    body = {**asked_for, "dry_run": not start}
    try:
        found = visit.cell.post(path("jobs", job_id, verb="backfill"), body).document
    except Refused as refused:
        if refused.status in (403, 404):
            raise
        for fault in refused.faults or [Fault(place="", detail=refused.detail)]:
            name = fault.place.strip("/")
            if name in _FIELDS:
                form.faults.setdefault(name, []).append(fault.detail)
            else:
                form.general.append(f"{fault.place} {fault.detail}".strip())
        return _form(visit, job, form, status=409 if refused.status == 409 else 422)
    except CellAway as away:
        form.general.append(f"{away} Nothing was started.")
        return _form(visit, job, form, status=503)
    if start:
        messages.success(visit.request, "The backfill has begun.")
        return redirect(visit.url("backfill", found["backfill_id"]))
    return _form(visit, job, form, plan=found, planned=planned)


@tenant_page(Scope.JOBS_READ)
def backfill_list(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/backfills/?job_id="""
    filters = asked(visit, "job_id")
    cursor = visit.request.GET.get("cursor", "")
    found = visit.cell.get("/v1/backfills", limit=PAGE, cursor=cursor, **filters)
    labels = labels_of(visit, (item["job_id"] for item in found["items"]))
    return visit.page(
        "console/backfills/list.html",
        section="jobs",
        backfills=[{**item, "label": labels.get(item["job_id"])} for item in found["items"]],
        filters=filters,
        next=next_page(visit, filters, found["next_cursor"]),
        paged=bool(cursor),
    )


@tenant_page(Scope.JOBS_READ)
def backfill(visit: Visit, backfill_id: str) -> HttpResponse:
    """GET /t/<slug>/backfills/<backfill_id>/"""
    return visit.page("console/backfills/detail.html", section="jobs", **_backfill(visit, backfill_id))


@tenant_page(Scope.JOBS_READ)
def backfill_live(visit: Visit, backfill_id: str) -> HttpResponse:
    """GET /t/<slug>/backfills/<backfill_id>/live: the parts that change."""
    return visit.page("console/backfills/live.html", **_backfill(visit, backfill_id))


@tenant_page(Scope.JOBS_TRIGGER, "POST")
def backfill_stop(visit: Visit, backfill_id: str) -> HttpResponse:
    """POST /t/<slug>/backfills/<backfill_id>/stop"""
    try:
        visit.cell.post(path("backfills", backfill_id, verb="stop"), {})
        messages.success(visit.request, "It is stopped. What it has started runs; nothing else is started.")
    except Refused as refused:
        if refused.status in (403, 404):
            raise
        messages.error(visit.request, refused.detail)
    except CellAway as away:
        messages.error(visit.request, str(away))
    return redirect(visit.url("backfill", backfill_id))


def _backfill(visit: Visit, backfill_id: str) -> dict[str, Any]:
    found = visit.cell.get(path("backfills", backfill_id))
    total, processed = int(found["total"]), int(found["processed"])
    return {
        "backfill": {**found, "since": found["from"]},
        "label": labels_of(visit, [found["job_id"]]).get(found["job_id"]),
        "over": found["state"] != "RUNNING",
        "left": max(0, total - processed),
        "share": round(100 * processed / total, 1) if total else 100.0,
    }


def _form(
    visit: Visit,
    job: Mapping[str, Any],
    form: Form,
    *,
    plan: Mapping[str, Any] | None = None,
    planned: str = "",
    status: int = 200,
) -> HttpResponse:
    values = {**form.values, "since": form.values["from"]}
    return visit.page(
        "console/backfills/new.html",
        status=status,
        section="jobs",
        job=job,
        label=label(job),
        form=form,
        values=values,
        plan=plan,
        planned=planned,
        token=str(uuid.uuid4()),
        in_turn=job.get("overlap_policy", "ALLOW") != "ALLOW",
    )


def _instant(visit: Visit, text: str) -> str:
    """A local time of the viewer as an instant; anything else as it was typed: the API says what is wrong."""
    if not LOCAL_TIME.fullmatch(text):
        return text
    try:
        return instant(datetime.fromisoformat(text).replace(tzinfo=visit.zone))
    except (ValueError, OverflowError):
        return text


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text
