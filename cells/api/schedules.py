"""Schedules: what would happen when."""

from __future__ import annotations

from starlette.responses import Response

from cells.api import scheduling, shapes
from cells.api.documents import instant
from cells.api.models import PreviewIn
from cells.api.problems import Fault, invalid, schedule_faults
from cells.api.reading import Fields
from cells.api.routing import Call, Routes, Rule, answer
from cells.contract import Scope
from cells.domain.faults import ScheduleError
from cells.domain.schedule import excluded_between, jump_note, normalise, preview, to_local, transitions

routes = Routes("Schedules")


async def _more_faults(call: Call, fields: Fields) -> list[Fault]:
    return scheduling.more_schedule_faults(call.services, fields)


@routes.add(
    "POST",
    "/v1/schedules:preview",
    Rule(scope=Scope.JOBS_READ, also=_more_faults),
    answers={200: ("The next occurrences, and the next two jumps of the zone's clock.", shapes.Preview)},
)
async def preview_schedule(call: Call, body: PreviewIn) -> Response:
    """Preview a schedule: its occurrences after an instant, and what daylight saving does to them."""
    after = body.after or call.services.now()
    try:
        schedule = await scheduling.with_calendar(call, scheduling.to_schedule(body.schedule))
        # Checked as a creation at that time would be.
        normalise(schedule, after)
        found = preview(schedule, after, body.count)
        excluded = excluded_between(schedule, after, found[-1].at) if found else []
        jumps = transitions(schedule.time_zone, after) if schedule.time_zone is not None else []
    except ScheduleError as error:
        raise invalid(schedule_faults(error)) from None
    return answer(
        {
            "occurrences": [
                {"at": instant(item.at), "local": item.local, "note": item.note} for item in found
            ],
            "excluded": [{"at": instant(at), "local": to_local(at, schedule.time_zone)} for at in excluded],
            "transitions": [
                {
                    "at": instant(jump.at),
                    "from_offset": jump.from_offset,
                    "to_offset": jump.to_offset,
                    "kind": jump.kind,
                    "local": jump.local,
                    "note": jump_note(schedule, jump),
                }
                for jump in jumps
            ],
        }
    )
