"""The page that answers “why did it not run?” for one job and one time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.cells_client import Refused, path
from controlplane.console.lists import label, settled
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.why import Finding, after, verdict
from controlplane.console.wording import instant, parse

#: "At nine" means nine o'clock, give or take this.
_TOLERANCE = timedelta(seconds=90)
_COMING = 20
#: More records within the tolerance than this are not told apart.
_RECORDS = 20


@tenant_page(Scope.JOBS_READ)
def job_why(visit: Visit, job_id: str) -> HttpResponse:
    """GET /t/<slug>/jobs/<job_id>/why?at=…: what became of the occurrence at that time."""
    if elsewhere := settled(visit, "at"):
        return redirect(elsewhere)
    job = visit.cell.get(path("jobs", job_id))
    at = parse(visit.request.GET.get("at", ""))
    part = visit.request.htmx  # type: ignore[attr-defined]
    return visit.page(
        "console/jobs/why_part.html" if part else "console/jobs/why.html",
        section="jobs",
        job=job,
        label=label(job),
        asked_at=instant(at) if at else None,
        findings=_findings(visit, job, at) if at else None,
    )


def _findings(visit: Visit, job: Mapping[str, Any], at: datetime) -> list[Finding]:
    ledger = visit.cell.get(
        path("jobs", job["job_id"], "occurrences"),
        until=instant(at + _TOLERANCE + timedelta(seconds=1)),
        limit=_RECORDS,
        count=1,
    )
    return verdict(
        job,
        at,
        now=visit.now,
        ledger=ledger["past"],
        occurrences=_occurrences(visit, job, at),
        tolerance=_TOLERANCE,
    )


def _occurrences(visit: Visit, job: Mapping[str, Any], at: datetime) -> list[Mapping[str, Any]]:
    kind = job["schedule"]["type"]
    if kind not in ("CRON", "RATE"):
        return [{"at": job["next_run_at"]}] if job["next_run_at"] else []
    try:
        body = {"schedule": job["schedule"], "after": after(at, _TOLERANCE), "count": _COMING}
        answer = visit.cell.post("/v1/schedules:preview", body)
    except Refused:
        return []
    found: list[Mapping[str, Any]] = answer.document["occurrences"]
    return found
