"""Calendars of excluded dates: the list, one with its dates, a new one, its deletion."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.acting import Form, ask
from controlplane.console.cells_client import CellAway, Fault, Refused, path
from controlplane.console.lists import PAGE, next_page
from controlplane.console.visit import Visit, tenant_page

_FIELDS = ("calendar_id", "name", "dates", "ics", "weekdays")
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
#: What is read of an uploaded file; a cell takes less, and says how much.
_LARGEST = 2_000_000
_TAKEN = "There is a calendar with that id already. Take another one, or change that one."
_OVERTAKEN = (
    "Somebody saved this calendar while you were editing. Nothing was changed; saving now puts yours in the "
    "place of theirs."
)


@tenant_page(Scope.JOBS_READ)
def calendar_list(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/calendars/"""
    found = visit.cell.get("/v1/calendars", limit=PAGE, cursor=visit.request.GET.get("cursor", ""))
    return visit.page(
        "console/calendars/list.html",
        section="jobs",
        calendars=found["items"],
        next=next_page(visit, {}, found["next_cursor"]),
        paged=bool(visit.request.GET.get("cursor")),
    )


@tenant_page(Scope.JOBS_WRITE, "GET", "POST")
def calendar_new(visit: Visit) -> HttpResponse:
    """GET shows the form; POST makes the calendar."""
    if visit.request.method == "GET":
        return _form(visit, Form(values={"weekdays": []}))
    form, body = _read(visit)
    calendar_id = form.values["calendar_id"]
    if not re.fullmatch(r"cal_[A-Za-z0-9_-]{1,64}", calendar_id):
        form.faults["calendar_id"] = ["is cal_ and 1 to 64 letters, digits, _ or -"]
    if form.faults:
        return _form(visit, form, 422)
    return _put(visit, form, calendar_id, body, only_create=True)


@tenant_page(Scope.JOBS_READ, "GET", "POST")
def calendar(visit: Visit, calendar_id: str) -> HttpResponse:
    """GET /t/<slug>/calendars/<calendar_id>/ shows its dates; POST puts others in their place."""
    found = visit.cell.get(path("calendars", calendar_id))
    if visit.request.method == "GET":
        values = {
            "name": found["name"] or "",
            "dates": "\n".join(f"{day['date']} {day['name'] or ''}".strip() for day in found["dates"]),
            "weekdays": found["weekdays"],
        }
        return _form(visit, Form(values=values), found=found)
    if not visit.may_write:
        raise Refused(403, {})
    form, body = _read(visit)
    if form.faults:
        return _form(visit, form, 422, found=found)
    seen = visit.request.POST.get("version", "")
    version = int(seen) if seen.isascii() and seen.isdecimal() and len(seen) < 10 else 0
    return _put(visit, form, calendar_id, body, found=found, version=version)


@tenant_page(Scope.JOBS_WRITE, "GET", "POST")
def calendar_delete(visit: Visit, calendar_id: str) -> HttpResponse:
    """GET says what is lost; POST deletes it."""
    here = visit.url("calendar", calendar_id)
    if visit.request.method == "GET":
        found = visit.cell.get(path("calendars", calendar_id))
        return ask(
            visit,
            title=f"Delete {found['name'] or calendar_id}?",
            points=[
                f"{found['count']} dates and {len(found['weekdays'])} days of the week are forgotten.",
                "Nothing is deleted while a scheduled or paused job refers to it.",
            ],
            verb="Delete the calendar",
            back=here,
            keep="Keep it",
            section="jobs",
        )
    try:
        visit.cell.delete(path("calendars", calendar_id))
    except Refused as refused:
        if refused.status in (403, 404):
            raise
        messages.error(visit.request, refused.detail)
        return redirect(here)
    except CellAway as away:
        messages.error(visit.request, f"{away} Nothing was deleted.")
        return redirect(here)
    messages.success(visit.request, f"The calendar {calendar_id} is deleted.")
    return redirect(visit.url("calendars"))


def _read(visit: Visit) -> tuple[Form, dict[str, Any]]:
    """What was typed and uploaded, and the API's body of it."""
    posted = visit.request.POST
    values: dict[str, Any] = {name: posted.get(name, "").strip() for name in ("calendar_id", "name", "dates")}
    values["weekdays"] = [day for day in posted.getlist("weekdays") if day in _WEEKDAYS]
    form = Form(values=values)
    body: dict[str, Any] = {"weekdays": values["weekdays"], "dates": read_dates(values["dates"])}
    if values["name"]:
        body["name"] = values["name"]
    uploaded = visit.request.FILES.get("ics")
    if uploaded is not None:
        try:
            body["ics"] = uploaded.read(_LARGEST).decode("utf-8-sig")
        except UnicodeDecodeError:
            form.faults["ics"] = ["is no text in UTF-8, as iCalendar files are"]
    return form, body


def read_dates(text: str) -> list[dict[str, Any]]:
    """Lines of a date and perhaps what it is: `2026-12-25 Christmas Day`. Pure."""
    found = []
    for line in text.splitlines():
        day, _, name = line.strip().partition(" ")
        if day:
            found.append({"date": day[:20], "name": name.strip() or None})
    return found


def place_faults(form: Form, faults: Iterable[Fault]) -> None:
    """The API's faults at the fields they are about; of a date, with its line."""
    for fault in faults:
        name, _, rest = fault.place.strip("/").partition("/")
        index = rest.partition("/")[0]
        detail = fault.detail
        if name == "dates" and index.isdecimal():
            detail = f"line {int(index) + 1}: {detail}"
        if name in _FIELDS:
            form.faults.setdefault(name, []).append(detail)
        else:
            form.general.append(f"{fault.place} {detail}".strip())


def _put(
    visit: Visit,
    form: Form,
    calendar_id: str,
    body: Mapping[str, Any],
    *,
    found: Mapping[str, Any] | None = None,
    version: int | None = None,
    only_create: bool = False,
) -> HttpResponse:
    target = path("calendars", calendar_id)
    try:
        saved = visit.cell.put(target, body, version=version, only_create=only_create).document
    except Refused as refused:
        if refused.status in (403, 404):
            raise
        if refused.status == 412:
            form.general.append(_TAKEN if found is None else _OVERTAKEN)
            return _form(visit, form, 409, found=found)
        place_faults(form, refused.faults or [Fault(place="", detail=refused.detail)])
        return _form(visit, form, 422, found=found)
    except CellAway as away:
        form.general.append(f"{away} Nothing was changed; what you typed is still here.")
        return _form(visit, form, 503, found=found)
    messages.success(
        visit.request,
        f"Saved as version {saved['version']} with {saved['count']} dates. Jobs that refer to it follow"
        " within seconds.",
    )
    return redirect(visit.url("calendar", saved["calendar_id"]))


def _form(
    visit: Visit, form: Form, status: int = 200, *, found: Mapping[str, Any] | None = None
) -> HttpResponse:
    return visit.page(
        "console/calendars/form.html",
        status=status,
        section="jobs",
        form=form,
        calendar=found,
        days=[(day, day.capitalize(), day in form.values["weekdays"]) for day in _WEEKDAYS],
        may_save=visit.may_write,
    )
