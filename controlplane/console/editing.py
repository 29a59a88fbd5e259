"""An edit of a job: the same form, filled; only what changed is sent, over the version that was seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.cells_client import CellAway, Refused, path
from controlplane.console.creating import form_page
from controlplane.console.job_changes import Change, changes, fields_of, patch_of
from controlplane.console.job_form import JobForm, read_form
from controlplane.console.jobs import EDITABLE
from controlplane.console.lists import label
from controlplane.console.visit import Visit, tenant_page

_RUN_BEGAN = (
    "A run of this job began while you saved, so nothing was changed. That run keeps the definition it "
    "began with. Your changes are still here: save again."
)


@tenant_page(Scope.JOBS_WRITE, "GET", "POST")
def job_edit(visit: Visit, job_id: str) -> HttpResponse:
    """GET shows the job in the form; POST saves what was changed, or says all that is wrong with it."""
    job = visit.cell.get(path("jobs", job_id))
    if job["status"] not in EDITABLE:
        messages.info(visit.request, f"A job that is {job['status'].lower()} cannot be edited any more.")
        return redirect(visit.url("job", job_id))
    saved = JobForm(values=fields_of(job), token="")
    if visit.request.method == "GET":
        return _page(visit, job, saved)
    form = read_form(visit.request.POST.dict())
    seen = visit.request.POST.get("version", "")
    if seen != str(job["version"]):
        return _overtaken(visit, job, form)
    try:
        patch = patch_of(saved, form, payload_hidden=bool(job.get("payload_hidden")))
        if form.faults:
            return _page(visit, job, form, status=422)
        if not patch:
            messages.info(visit.request, "Nothing was changed.")
            return redirect(visit.url("job", job_id))
        after = visit.cell.patch(path("jobs", job_id), patch, version=job["version"]).document
    except Refused as refused:
        if refused.status in (403, 404):
            raise
        if refused.status == 412:
            return _overtaken(visit, visit.cell.get(path("jobs", job_id)), form)
        form.blame(refused.faults)
        if refused.code == "RUN_UNDER_WAY":
            form.general.append(_RUN_BEGAN)
        elif not refused.faults:
            form.general.append(refused.detail)
        return _page(visit, job, form, status=409 if refused.status == 409 else 422)
    except CellAway as away:
        form.general.append(f"{away} Nothing was changed; what you typed is still here.")
        return _page(visit, job, form, status=503)
    messages.success(
        visit.request, f"Saved as version {after['version']}. Runs under way keep the one before."
    )
    return redirect(visit.url("job", job_id))


def _overtaken(visit: Visit, job: Mapping[str, Any], form: JobForm) -> HttpResponse:
    """Somebody else saved in between: what saving now would do, field by field."""
    saved = JobForm(values=fields_of(job), token="")
    return _page(visit, job, form, status=409, overtaken=changes(saved, form))


def _page(
    visit: Visit,
    job: Mapping[str, Any],
    form: JobForm,
    status: int = 200,
    overtaken: list[Change] | None = None,
) -> HttpResponse:
    return form_page(visit, form, status=status, job=job, label=label(job), editing=True, overtaken=overtaken)
