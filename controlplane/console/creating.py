"""A new job, with a preview of what its schedule will do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zoneinfo import available_timezones

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from cells.domain.job import ONE_REGION
from controlplane.console.axis import Due, build, scale_for
from controlplane.console.cells_client import CellAway, Refused, path
from controlplane.console.job_changes import fields_of
from controlplane.console.job_form import SCHEDULE_FIELDS, JobForm, new_form, read_form
from controlplane.console.lists import LONGEST, label
from controlplane.console.schedule_cost import schedule_cost
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.wording import OVERLAPS, ROLLS, parse
from controlplane.topology.models import Site

_SHOWN = 10
_DRAWN = 50
#: How a cron expression is read, and what its fields are.
DIALECTS = (
    ("UNIX", "Unix", "minute, hour, day, month, weekday"),
    (
        "QUARTZ",
        "Quartz",
        "second, minute, hour, day, month, weekday 1-7 from Sunday, perhaps a year; ? L W #",
    ),
    ("EVENTBRIDGE", "EventBridge", "minute, hour, day, month, weekday 1-7 from Sunday, year; ? L W #"),
)
#: Only what comes next is of interest here.
_NOW_AT = 0.06


@tenant_page(Scope.JOBS_WRITE, "GET", "POST")
def job_new(visit: Visit) -> HttpResponse:
    """GET shows the form, POST creates the job or shows all that is wrong with it."""
    if visit.request.method == "GET":
        return form_page(visit, new_form(_prefilled(visit), str(visit.zone)))
    form = read_form(visit.request.POST.dict())
    body = form.body()
    try:
        if not form.faults:
            # The token makes a second click, or a reload, the same job.
            answer = visit.cell.post("/v1/jobs", body, idempotency_key=form.token)
            for note in answer.document.get("notes") or ["The job is created."]:
                messages.success(visit.request, note)
            return redirect(visit.url("job", answer.document["job_id"]))
        preview(visit, form)
    except Refused as refused:
        form.blame(refused.faults)
        if not refused.faults:
            form.general.append(refused.detail)
            if refused.document.get("nearest_available"):
                form.general.append(f"There is room at {refused.document['nearest_available']}.")
    except CellAway as away:
        form.general.append(f"{away} Nothing was created; what you typed is still here.")
    return form_page(visit, form, status=422)


def _prefilled(visit: Visit) -> dict[str, str]:
    """What the URL fills in: fields, or those of a job to duplicate."""
    given: dict[str, str] = visit.request.GET.dict()
    original = given.get("from", "")
    if not original:
        return given
    job = visit.cell.get(path("jobs", original))
    if job.get("payload_hidden"):
        messages.info(visit.request, f"The payload is not copied: {visit.why_hidden}.")
    fields = fields_of(job)
    fields.pop("key", None)  # a key belongs to one job
    return {**fields, "name": f"{label(job)} (copy)"[:200], **given}


@tenant_page(Scope.JOBS_WRITE, "POST")
def job_preview(visit: Visit) -> HttpResponse:
    """POST /t/<slug>/jobs/preview: what the schedule in the form would do."""
    form = read_form(visit.request.POST.dict())
    context = preview(visit, form)
    slots = [(name, form.faults.get(name, [])) for name in SCHEDULE_FIELDS]
    return visit.page("console/jobs/preview.html", form=form, slots=slots, **context)


def preview(visit: Visit, form: JobForm) -> dict[str, Any]:
    """Occurrences and clock changes; or the faults are put at the form's fields."""
    policy = form.values.get("region_policy") or visit.tenant.default_region_policy
    if form.values.get("kind") == "NOW":
        return {"at_once": True, "cost": schedule_cost(visit, {"type": "NOW"}, policy)}
    try:
        answer = visit.cell.post("/v1/schedules:preview", {"schedule": form.schedule(), "count": _DRAWN})
    except Refused as refused:
        form.blame(refused.faults)
        return {"refused": None if refused.faults else refused.detail}
    coming = [{**item, "when": parse(item["at"])} for item in answer.document["occurrences"]]
    due = [Due(at=item["when"], title=item["local"], note=item["note"] or "") for item in coming]
    scale = scale_for((item.at for item in due), visit.now, now_at=_NOW_AT, least=5)
    return {
        "cost": schedule_cost(visit, form.schedule(), policy),
        "coming": coming[:_SHOWN],
        "transitions": answer.document["transitions"],
        "excluded": answer.document["excluded"][:_SHOWN],
        "excluded_more": max(0, len(answer.document["excluded"]) - _SHOWN),
        "axis": build(now=visit.now, scale=scale, zone=visit.zone, due=due, now_at=_NOW_AT),
    }


def _one_region(visit: Visit, form: JobForm, job: Mapping[str, Any] | None) -> bool:
    """Whether the job is bound to one region; only then it may be delivered at most once."""
    if job is not None:
        return job.get("region_policy") in ONE_REGION
    return (form.values.get("region_policy") or visit.tenant.default_region_policy) in ONE_REGION


def form_page(visit: Visit, form: JobForm, status: int = 200, **more: Any) -> HttpResponse:
    """The page with a job's form, new or edited."""
    context: dict[str, Any] = {
        "section": "jobs",
        "form": form,
        "zones": sorted(available_timezones()),
        "kinds": (("CRON", "Cron"), ("RATE", "Every …"), ("ONCE", "Once"), ("NOW", "Now")),
        "units": (("1", "seconds"), ("60", "minutes"), ("3600", "hours"), ("86400", "days")),
        "dialects": DIALECTS,
        "rolls": ROLLS,
        "overlaps": OVERLAPS,
        "methods": ("POST", "GET", "PUT", "PATCH", "DELETE"),
        "target_kinds": (
            ("HTTP", "Clockhouse calls a target"),
            ("TASK_QUEUE", "A worker fetches it"),
            ("WORKFLOW", "A workflow does it"),
        ),
        "one_region": _one_region(visit, form, more.get("job")),
        "several_regions": Site.objects.filter(cell__placements__tenant=visit.tenant).count() > 1,
        "callbacks": (("on_success", "When a run succeeds"), ("on_failure", "When a run fails for good")),
        "priorities": ("CRITICAL", "HIGH", "DEFAULT", "LOW"),
    }
    try:
        context["targets"] = visit.cell.get("/v1/targets", state="APPROVED", limit=200)["items"]
        context["queues"] = visit.cell.get("/v1/task-queues")["items"]
        rows = visit.cell.get("/v1/workflow-definitions", limit=LONGEST)["items"]
        context["definitions"] = list(dict.fromkeys(row["name"] for row in rows))
        context["calendars"] = visit.cell.get("/v1/calendars", limit=LONGEST)["items"]
        shown = JobForm(values=form.values, token="")
        context |= preview(visit, shown)
    except CellAway as away:
        if status == 200:
            raise
        context["away"] = str(away)
    # A job may name a target that was disabled since, or one beyond the first two hundred.
    if all(target["target_id"] != form.values.get("target_id") for target in context.get("targets", ())):
        context["other_target"] = form.values.get("target_id")
    if all(each["calendar_id"] != form.values.get("calendar") for each in context.get("calendars", ())):
        context["other_calendar"] = form.values.get("calendar")
    return visit.page("console/jobs/form.html", status=status, **context, **more)
