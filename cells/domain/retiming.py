"""Where a stored instant belongs under other time-zone data."""

from __future__ import annotations

from datetime import datetime, timedelta

from cells.domain.compiled import Compiled
from cells.domain.job import Schedule, ScheduleType

_TICK = timedelta(microseconds=1)
#: No offset ever moved by more than a day.
_FURTHEST = timedelta(hours=26)


def follows_a_clock(schedule: Schedule) -> bool:
    """Whether its instants depend on a time zone's rules."""
    if schedule.time_zone is None:
        return False
    return schedule.type in (ScheduleType.CRON, ScheduleType.ONCE)


def moved_to(compiled: Compiled, waited_for: datetime) -> datetime | None:
    """The occurrence that a job waits for, by the rules that hold now: the nearest one to what was
    stored (the earlier of two). None if there is none within reach: then it stays."""
    ahead = compiled.next(waited_for - _TICK)
    if ahead is not None and ahead.at == waited_for:
        return waited_for
    near = compiled.next(waited_for - _FURTHEST)
    before = None
    if near is not None and near.at < waited_for:
        before = compiled.latest(near.at, waited_for)
    found = [at for at in (before, ahead.at if ahead is not None else None) if at is not None]
    found = [at for at in found if abs(at - waited_for) <= _FURTHEST]
    return min(found, key=lambda at: (abs(at - waited_for), at), default=None)
