"""When a paused job runs next, once it is resumed."""

from __future__ import annotations

from datetime import datetime

from cells.domain.job import Schedule, ScheduleType
from cells.domain.schedule import compile_schedule


def resumes_at(schedule: Schedule, waited_for: datetime | None, now: datetime) -> datetime | None:
    """A recurring job at its first occurrence after now; a one-off time that went by meanwhile is
    late, as after an outage. None if nothing is left."""
    if schedule.type in (ScheduleType.ONCE, ScheduleType.NOW):
        return waited_for
    first = compile_schedule(schedule).first(now)
    return None if first is None else first.at
