"""From the schedule of a request to one that is stored: checked, with its calendar, first occurrence
and window."""

from __future__ import annotations

from datetime import datetime

import msgspec
from pydantic import TypeAdapter, ValidationError

from cells.api.models import CronIn, DstIn, NowIn, OnceIn, RateIn, ScheduleIn
from cells.api.problems import Fault, invalid, schedule_faults
from cells.api.reading import Fields
from cells.api.routing import Call
from cells.api.services import Services
from cells.domain.calendars import Roll
from cells.domain.dialects import eventbridge_at, eventbridge_rate
from cells.domain.faults import ScheduleError
from cells.domain.job import Dialect, Dst, Schedule, ScheduleType
from cells.domain.schedule import compile_schedule, normalise
from cells.domain.windows import window_for
from cells.ports import TenantConfig

_schedule: TypeAdapter[ScheduleIn] = TypeAdapter(ScheduleIn)


def read_schedule(raw: bytes) -> ScheduleIn | None:
    """A schedule as it was written; None if it is none."""
    try:
        return _schedule.validate_json(raw)
    except ValidationError:
        return None


def to_schedule(given: ScheduleIn) -> Schedule:
    """The schedule as the domain knows it, unchecked. What EventBridge writes as `rate(...)` and
    `at(...)` is a RATE and a ONCE. Raises `ScheduleError` where such a text cannot be read."""
    match given:
        case OnceIn():
            return Schedule(
                type=ScheduleType.ONCE, run_at=given.run_at, time_zone=given.time_zone, dst=_dst(given.dst)
            )
        case CronIn():
            if given.dialect is Dialect.EVENTBRIDGE and (other := _eventbridge(given)) is not None:
                return other
            return Schedule(
                type=ScheduleType.CRON,
                cron=given.cron,
                dialect=given.dialect,
                calendar=given.calendar,
                roll=given.roll,
                time_zone=given.time_zone,
                start_at=given.start_at,
                end_at=given.end_at,
                dst=_dst(given.dst),
            )
        case RateIn():
            return Schedule(
                type=ScheduleType.RATE,
                every_seconds=given.every_seconds,
                start_at=given.start_at,
                end_at=given.end_at,
            )
        case NowIn():
            return Schedule(type=ScheduleType.NOW)


def _eventbridge(given: CronIn) -> Schedule | None:
    seconds = eventbridge_rate(given.cron)
    if seconds is not None:
        return Schedule(
            type=ScheduleType.RATE,
            every_seconds=seconds,
            start_at=given.start_at,
            end_at=given.end_at,
            calendar=given.calendar,
            roll=given.roll,
        )
    at = eventbridge_at(given.cron)
    if at is None:
        return None
    return Schedule(
        type=ScheduleType.ONCE,
        run_at=at,
        time_zone=given.time_zone or "UTC",
        start_at=given.start_at,
        end_at=given.end_at,
        calendar=given.calendar,
        roll=given.roll,
        dst=_dst(given.dst),
    )


def _dst(given: DstIn) -> Dst:
    return Dst(gap=given.gap, overlap=given.overlap)


async def checked_schedule(call: Call, given: ScheduleIn, now: datetime) -> Schedule:
    """The schedule as it is stored, or a 422 with every fault."""
    try:
        return normalise(await with_calendar(call, to_schedule(given)), now)
    except ScheduleError as error:
        raise invalid(schedule_faults(error)) from None


async def with_calendar(call: Call, schedule: Schedule) -> Schedule:
    """The schedule with what its calendar excludes now; as it was where there is no such calendar."""
    if schedule.calendar is None:
        return schedule
    row = await call.services.store.get_calendar(call.tenant_id, schedule.calendar)
    if row is None:
        return schedule
    return msgspec.structs.replace(schedule, calendar_version=row.version, excluded=row.calendar)


def check_runs_again(schedule: Schedule, now: datetime) -> None:
    """A 422 if a stored schedule has no occurrence left."""
    try:
        normalise(schedule, now)
    except ScheduleError as error:
        raise invalid(schedule_faults(error)) from None


def more_schedule_faults(services: Services, fields: Fields) -> list[Fault]:
    """What the domain says against the schedule of a body that has other faults as well."""
    raw = fields.get("schedule")
    if raw is None:
        return []
    try:
        schedule = to_schedule(_schedule.validate_json(bytes(raw)))
        # Whether there is such a calendar is told when everything else is right.
        normalise(msgspec.structs.replace(schedule, calendar=None, roll=Roll.SKIP), services.now())
    except ValidationError:
        return []  # told already
    except ScheduleError as error:
        return schedule_faults(error)
    return []


class Planner:
    """First occurrences and windows as of one moment, each worked out once: the jobs of a batch have
    most of them in common."""

    def __init__(self, config: TenantConfig, now: datetime):
        self._config = config
        self._now = now
        self._schedules: dict[bytes, Schedule] = {}
        self._first: dict[int, datetime | None] = {}
        self._windows: dict[tuple[int, int], int] = {}
        self._kept: list[Schedule] = []  # so that their ids stay theirs

    async def schedule(self, call: Call, raw: bytes, given: ScheduleIn) -> Schedule:
        """`checked_schedule`, by the text it was given in."""
        found = self._schedules.get(raw)
        if found is None:
            found = self._schedules[raw] = await checked_schedule(call, given, self._now)
        return found

    def first(self, schedule: Schedule) -> datetime | None:
        """The first occurrence."""
        key = id(schedule)
        if key not in self._first:
            first = compile_schedule(schedule).first(self._now)
            self._first[key] = first.at if first is not None else None
            self._kept.append(schedule)
        return self._first[key]

    def window_ms(self, schedule: Schedule, requested_seconds: int) -> int:
        """The window of a job on that schedule; a 422 if it cannot be."""
        key = (id(schedule), requested_seconds)
        found = self._windows.get(key)
        if found is None:
            try:
                found = self._windows[key] = window_for(schedule, requested_seconds, self._config)
            except ScheduleError as error:
                raise invalid(schedule_faults(error)) from None
            self._kept.append(schedule)
        return found
