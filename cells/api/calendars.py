"""Calendars of excluded dates."""

from __future__ import annotations

import asyncio
import re
from datetime import date
from typing import Annotated

from fastapi import Path, Query
from starlette.responses import Response

from cells.api import documents, pagination, shapes
from cells.api.calendar_models import CalendarIn, NamedDateIn
from cells.api.finding import check_version
from cells.api.ics import read_ics
from cells.api.problems import Fault, Problem, body_fault, conflict, invalid, not_found
from cells.api.queries import Page
from cells.api.routing import Call, Routes, Rule, answer, page
from cells.api.texts import CALENDAR_ID_PATTERN
from cells.contract import ErrorCode, Scope
from cells.domain.calendars import WEEKDAYS, make_calendar, read_dates
from cells.domain.faults import ScheduleError
from cells.ports import Conflict, Terminal
from cells.scheduling import CalendarContent, CalendarRow

routes = Routes("Calendars")

CalendarId = Annotated[str, Path(description="A calendar's id.", examples=["cal_germany"])]
_CALENDAR_ID = re.compile(CALENDAR_ID_PATTERN)


@routes.add(
    "PUT",
    "/v1/calendars/{calendar_id:name}",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={
        201: ("The calendar was created.", shapes.Calendar),
        200: ("The calendar as it is now.", shapes.Calendar),
    },
    problems=(409, 412),
    etag=True,
)
async def put_calendar(call: Call, calendar_id: CalendarId, body: CalendarIn) -> Response:
    """Create a calendar, or make it exclude exactly what the body says.

    Other content is another version. The jobs that refer to the calendar follow within seconds
    (`pending` until they have): each gets a new version, and waits for its first occurrence after now
    under the new dates. What is due already still runs. The same again changes nothing.
    `If-Match` guards against a change in between, `If-None-Match: *` only creates.
    """
    if not _CALENDAR_ID.fullmatch(calendar_id):
        raise invalid([body_fault("", "a calendar's id is cal_ and 1 to 64 letters, digits, _ or -")])
    content = await _content(call, body)
    services = call.services
    current = await services.store.get_calendar(call.tenant_id, calendar_id)
    base: int | None = None
    if call.header(b"if-none-match") == "*":
        base = 0
        if current is not None:
            raise Problem(
                412, ErrorCode.PRECONDITION_FAILED, f"There is a calendar {calendar_id} already.",
                extra={"version": current.version},
            )  # fmt: skip
    elif call.header(b"if-match") is not None:
        if current is None:
            raise Problem(412, ErrorCode.PRECONDITION_FAILED, f"There is no calendar {calendar_id}.")
        check_version(call, current.version)
        base = current.version
    try:
        row, created = await services.store.put_calendar(
            call.fence, calendar_id=calendar_id, name=body.name, content=content, base_version=base,
            actor=call.caller.actor, host_id=services.host.host_id,
        )  # fmt: skip
    except Conflict as lost:
        raise conflict("The calendar was changed in the meantime; read it again.") from lost
    headers = {"ETag": f'"{row.version}"', "Location": f"/v1/calendars/{calendar_id}"}
    return answer(_document(row), 201 if created else 200, headers)


async def _content(call: Call, body: CalendarIn) -> CalendarContent:
    """What the body excludes, or a 422 with every fault."""
    given = [item if isinstance(item, NamedDateIn) else NamedDateIn(date=item) for item in body.dates]
    days, told = read_dates({i: item.date for i, item in enumerate(given)})
    named: dict[date, str | None] = {day: given[i].name for i, day in days.items()}
    if body.ics is not None:
        # A long file takes the better part of a second, in which other requests go on.
        found, more = await asyncio.to_thread(read_ics, body.ics, call.services.now())
        told += more
        named = found | named
    weekdays = [WEEKDAYS.index(name) for name in body.weekdays]
    faults: list[Fault] = [body_fault(pointer, detail) for pointer, detail in told]
    if len(set(weekdays)) < len(weekdays):
        faults.append(body_fault("/weekdays", "holds a day twice"))
    if not named and not weekdays and not faults:
        faults.append(body_fault("", "excludes nothing; give dates, weekdays or an iCalendar file"))
    if not faults:
        try:
            make_calendar(named, weekdays)
        except ScheduleError as error:
            faults = [body_fault(pointer, detail) for pointer, detail in error.faults]
    if faults:
        raise invalid(faults)
    ordered = sorted(named.items(), key=lambda item: item[0])
    return CalendarContent(
        dates=[(day.isoformat(), name) for day, name in ordered], weekdays=sorted(set(weekdays))
    )


@routes.add(
    "GET",
    "/v1/calendars",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("One page of calendars.", shapes.CalendarPage)},
)
async def list_calendars(call: Call, query: Annotated[Page, Query()]) -> Response:
    """List calendars by id, without their dates."""
    after = pagination.read_cursor(query.cursor, "calendars", {}, str)
    rows = await call.services.store.list_calendars(call.tenant_id, after=after, limit=query.limit + 1)
    cursor = None
    if len(rows) > query.limit:
        cursor = pagination.make_cursor("calendars", {}, rows[query.limit - 1].calendar_id)
    items = [_summary(row) for row in rows[: query.limit]]
    return page(items, path="/v1/calendars", filters={}, limit=query.limit, cursor=cursor)


@routes.add(
    "GET",
    "/v1/calendars/{calendar_id:name}",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The calendar.", shapes.Calendar)},
    problems=(404,),
)
async def read_calendar(call: Call, calendar_id: CalendarId) -> Response:
    """Read a calendar with its dates."""
    row = await _found(call, calendar_id)
    return answer(_document(row), headers={"ETag": f'"{row.version}"'})


@routes.add(
    "DELETE",
    "/v1/calendars/{calendar_id:name}",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={204: ("The calendar is gone.", None)},
    problems=(404, 409, 412),
    etag=True,
)
async def delete_calendar(call: Call, calendar_id: CalendarId) -> Response:
    """Delete a calendar that no scheduled or paused job refers to."""
    row = await _found(call, calendar_id)
    pinned = check_version(call, row.version)
    services = call.services
    try:
        await services.store.delete_calendar(
            call.fence, calendar_id, base_version=row.version if pinned else None,
            actor=call.caller.actor, host_id=services.host.host_id,
        )  # fmt: skip
    except Terminal as gone:
        if await services.store.get_calendar(call.tenant_id, calendar_id) is not None:
            raise
        raise not_found("calendar") from gone
    except Conflict as used:
        raise conflict(f"The calendar stays: {used}.") from used
    return Response(status_code=204)


async def _found(call: Call, calendar_id: str) -> CalendarRow:
    row = None
    if _CALENDAR_ID.fullmatch(calendar_id):
        row = await call.services.store.get_calendar(call.tenant_id, calendar_id)
    if row is None:
        raise not_found("calendar")
    return row


def _summary(row: CalendarRow) -> documents.Document:
    return {
        "calendar_id": row.calendar_id,
        "name": row.name,
        "version": row.version,
        "count": len(row.content.dates),
        "first": row.content.dates[0][0] if row.content.dates else None,
        "last": row.content.dates[-1][0] if row.content.dates else None,
        "weekdays": [WEEKDAYS[n] for n in row.content.weekdays],
        "pending": row.pending,
        "moved": row.moved,
        "created_by": row.created_by,
        "created_at": documents.instant(row.created_at),
        "updated_at": documents.instant(row.updated_at),
    }


def _document(row: CalendarRow) -> documents.Document:
    dates = [{"date": day, "name": name} for day, name in row.content.dates]
    return {**_summary(row), "dates": dates}
