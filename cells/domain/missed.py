"""Occurrences that somebody's decision passed over: a pause, an edit, a cancel.

Each is accounted for, as those are that a claim skips: one SKIPPED row stands for all of them.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from cells.domain.claiming import Skip
from cells.domain.job import Schedule
from cells.domain.schedule import compile_schedule
from cells.domain.zones import LATEST

PAUSED = "paused"  # the job was paused at that time
EDITED = "edited"  # the time had come, the run had not begun, and the schedule was changed
CANCELLED = "cancelled"  # the same, and the job was cancelled

_TICK = timedelta(microseconds=1)


def missed(
    schedule: Schedule, waited_for: datetime | None, until: datetime | None, reason: str
) -> Skip | None:
    """What a job that waited for `waited_for` will not run any more: its occurrences from there to
    `until` (not included; None: to the schedule's end). None if that is nothing."""
    if waited_for is None or (until is not None and waited_for >= until):
        return None
    compiled = compile_schedule(schedule)
    later = compiled.count(waited_for, (until or LATEST) - _TICK)
    return Skip(waited_for, reason, 1 + later)


def through(now: datetime) -> datetime:
    """The `until` that includes `now` itself."""
    return now + _TICK
