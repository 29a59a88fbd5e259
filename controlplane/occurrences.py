"""How often a schedule happens, for forecasts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from cells.domain.job import Schedule
from cells.domain.schedule import compile_schedule, normalise


def occurrences_of(document: Mapping[str, Any], now: datetime, span: timedelta) -> int:
    """How many occurrences of a schedule, as in a job, lie in the span from now on. Calendars are the
    tenant's cell's: what one excludes is counted. Raises `ScheduleError` or `msgspec.ValidationError`."""
    alone = {name: value for name, value in document.items() if name not in ("calendar", "roll")}
    schedule = normalise(msgspec.convert(alone, Schedule), now)
    compiled = compile_schedule(schedule)
    return 1 if schedule.type == "NOW" else compiled.count(now, now + span)
