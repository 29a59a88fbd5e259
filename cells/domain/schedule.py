"""Schedules: checked, compiled, and asked for their next occurrence.

The next occurrence is the first one strictly after the previous *scheduled* instant, never
after now. Occurrences are whole seconds; none lies at or after `end_at`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TypeVar
from zoneinfo import ZoneInfo

import msgspec

from cells.domain.calendars import OpenDays, Roll
from cells.domain.compiled import Compiled, CronSchedule, NowSchedule, OnceSchedule, RateSchedule
from cells.domain.dialects import parse_dialect
from cells.domain.faults import ScheduleError
from cells.domain.instants import format_instant, parse_end, parse_instant, parse_time
from cells.domain.job import Dialect, Dst, Gap, Overlap, Schedule, ScheduleType
from cells.domain.wallclock import FIRST_PASS, SECOND_PASS, SHIFTED, Occurrence, WallClock
from cells.domain.zones import (
    EARLIEST,
    LATEST,
    TZDATA_VERSION,
    Kind,
    ZoneTransition,
    read_wall,
    to_local,
    transitions,
    zone,
)

__all__ = [
    "TZDATA_VERSION", "Compiled", "Occurrence", "Preview", "ScheduleError", "ZoneTransition",
    "anchored", "build_schedule", "compile_schedule", "excluded_between", "jump_note", "normalise", "preview",
    "to_local", "transitions",
]  # fmt: skip

T = TypeVar("T")
FindZone = Callable[[str, str], ZoneInfo]

MAX_EVERY_SECONDS = 10 * 366 * 86_400
MAX_PREVIEW = 100

_TICK = timedelta(microseconds=1)
_DAY = timedelta(days=1)
_LONG_BEFORE = timedelta(days=366)

#: The fields a schedule may have, with what they are where it says nothing.
_DEFAULTS: dict[str, object] = {
    "run_at": None,
    "cron": None,
    "dialect": Dialect.UNIX,
    "every_seconds": None,
    "time_zone": None,
    "start_at": None,
    "end_at": None,
    "dst": Dst(),
    "calendar": None,
    "roll": Roll.SKIP,
}
_FIELDS_OF = {
    ScheduleType.ONCE: {"run_at", "time_zone", "dst"},
    ScheduleType.CRON: {"cron", "dialect", "time_zone", "start_at", "end_at", "dst", "calendar", "roll"},
    ScheduleType.RATE: {"every_seconds", "start_at", "end_at"},
    ScheduleType.NOW: set[str](),
}


@lru_cache(maxsize=16_384)
def compile_schedule(schedule: Schedule) -> Compiled:
    """The compiled form of a normalised schedule, cached by its content.

    Raises `ScheduleError` with every fault.
    """
    return build_schedule(schedule, zone)


def build_schedule(schedule: Schedule, find_zone: FindZone) -> Compiled:
    """The compiled form under other time-zone data: `find_zone` takes a name and a pointer. Raises
    `ScheduleError` with every fault."""
    faults: list[tuple[str, str]] = [
        (f"/schedule/{name}", f"a {schedule.type.value} schedule has no {name}")
        for name, default in _DEFAULTS.items()
        if name not in _FIELDS_OF[schedule.type] and getattr(schedule, name) != default
    ]
    compiled = _BUILDERS[schedule.type](_Reader(schedule, faults, find_zone))
    if faults or compiled is None:
        raise ScheduleError.of(faults)
    return compiled


class _Reader:
    """Calls parsers and collects what they complain about, so that all faults are told at once."""

    def __init__(self, schedule: Schedule, faults: list[tuple[str, str]], find_zone: FindZone) -> None:
        self.schedule, self.faults, self.find_zone = schedule, faults, find_zone

    def read(self, parse: Callable[[str, str], T], name: str) -> T | None:
        """The parsed member, None if it is absent or wrong."""
        text: str | None = getattr(self.schedule, name)
        if text is None:
            return None
        try:
            return parse(text, f"/schedule/{name}")
        except ScheduleError as error:
            self.faults += error.faults
            return None

    def fault(self, name: str, detail: str) -> None:
        """Complain about a member."""
        self.faults.append((f"/schedule/{name}", detail))

    def bounds(self) -> tuple[datetime, datetime]:
        """start_at and end_at, or the ends of the calendar."""
        start = self.read(parse_instant, "start_at") or EARLIEST
        end = self.read(parse_end, "end_at") or LATEST
        if end <= start:
            self.fault("end_at", "must lie after start_at")
        return start, end


def _once(reader: _Reader) -> Compiled | None:
    schedule = reader.schedule
    tz = reader.read(reader.find_zone, "time_zone")
    at = reader.read(parse_time, "run_at")
    if schedule.run_at is None:
        reader.fault("run_at", "required for a ONCE schedule")
    if at is None:
        return None
    if at.tzinfo is not None:
        return OnceSchedule((Occurrence(at),))
    if schedule.time_zone is None:
        reader.fault("time_zone", "required for a local run_at; or give run_at an offset such as Z")
    return None if tz is None else OnceSchedule(_once_local(tz, at, schedule.dst))


def _once_local(tz: ZoneInfo, wall: datetime, dst: Dst) -> tuple[Occurrence, ...]:
    reading = read_wall(tz, wall)
    if reading.kind is Kind.PLAIN:
        return (Occurrence(reading.first),)
    if reading.kind is Kind.GAP:
        return (Occurrence(reading.first, SHIFTED),) if dst.gap is Gap.SHIFT else ()
    both = (Occurrence(reading.first, FIRST_PASS), Occurrence(reading.second, SECOND_PASS))
    return {Overlap.FIRST: both[:1], Overlap.SECOND: both[1:], Overlap.BOTH: both}[dst.overlap]


def _cron(reader: _Reader) -> Compiled | None:
    schedule = reader.schedule
    tz = reader.read(reader.find_zone, "time_zone")
    cron = reader.read(lambda text, _: parse_dialect(text, schedule.dialect), "cron")
    if schedule.cron is None:
        reader.fault("cron", "required for a CRON schedule")
    if schedule.time_zone is None:
        reader.fault("time_zone", "required for a CRON schedule")
    start, end = reader.bounds()
    if schedule.calendar is None and schedule.roll is not Roll.SKIP:
        reader.fault("roll", "needs a calendar to move away from")
    if schedule.calendar is not None and schedule.excluded is None:
        reader.fault(
            "calendar", f"there is no calendar {schedule.calendar[:80]}; PUT /v1/calendars/… makes one"
        )
    if cron is None or tz is None:
        return None
    if schedule.excluded is not None:
        cron = OpenDays(cron, schedule.excluded, schedule.roll)
    return CronSchedule(WallClock(cron, tz, schedule.dst.gap, schedule.dst.overlap), start, end)


def _rate(reader: _Reader) -> Compiled | None:
    schedule = reader.schedule
    every = schedule.every_seconds
    if every is None:
        reader.fault("every_seconds", "required for a RATE schedule")
    elif not 1 <= every <= MAX_EVERY_SECONDS:
        reader.fault("every_seconds", f"must be a whole number from 1 to {MAX_EVERY_SECONDS}")
        every = None
    if schedule.start_at is None:
        reader.fault("start_at", "required for a stored RATE schedule")
    start, end = reader.bounds()
    return None if every is None else RateSchedule(start, timedelta(seconds=every), end)


_BUILDERS: dict[ScheduleType, Callable[[_Reader], Compiled | None]] = {
    ScheduleType.ONCE: _once,
    ScheduleType.CRON: _cron,
    ScheduleType.RATE: _rate,
    ScheduleType.NOW: lambda reader: NowSchedule(),
}


def normalise(schedule: Schedule, now: datetime) -> Schedule:
    """The schedule as it is stored, checked: a RATE is anchored (at `now` if it says nothing),
    a CRON without a zone is in UTC. Raises `ScheduleError` with every fault, also for a
    schedule that would never run. A ONCE in the past is fine: its misfire policy decides."""
    schedule = anchored(schedule, now)
    compiled = compile_schedule(schedule)
    if compiled.first(now) is None:
        raise ScheduleError(*_never(schedule))
    return schedule


def anchored(schedule: Schedule, now: datetime) -> Schedule:
    """The schedule with what it leaves to us filled in, unchecked."""
    if schedule.type is ScheduleType.RATE and schedule.start_at is None:
        return msgspec.structs.replace(schedule, start_at=format_instant(now))
    if schedule.type is ScheduleType.CRON and schedule.time_zone is None:
        return msgspec.structs.replace(schedule, time_zone="UTC")
    return schedule


def _never(schedule: Schedule) -> tuple[str, str]:
    if schedule.type is ScheduleType.ONCE:
        return "/schedule/run_at", (
            f"{schedule.run_at} does not exist in {schedule.time_zone} (the clock jumps over it),"
            " and dst.gap is SKIP: it would never run"
        )
    if schedule.end_at is not None:
        return "/schedule/end_at", "no occurrence is left before it"
    if schedule.type is ScheduleType.RATE:
        return "/schedule/start_at", "no occurrence is left before the calendar ends"
    if schedule.calendar is not None:
        return "/schedule/calendar", "the calendar excludes all its days: it would never run"
    if schedule.dialect is not Dialect.UNIX:
        return (
            "/schedule/cron",
            "it never fires again: its years are over, or all its times fall into DST gaps",
        )
    return "/schedule/cron", "it never fires: all its times fall into DST gaps of this zone"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """One coming occurrence, for people."""

    at: datetime
    local: str  # with the zone's offset at that instant
    note: str | None  # what daylight saving did to it


def preview(schedule: Schedule, after: datetime, count: int) -> list[Preview]:
    """The next `count` (at most 100) occurrences strictly after an instant. A schedule that is
    not normalised yet is anchored there. Raises `ScheduleError`."""
    after = min(max(after, EARLIEST), LATEST)
    if schedule.type is ScheduleType.NOW:
        compile_schedule(schedule)
        return [Preview(at=after, local=to_local(after, None), note=None)]
    compiled = compile_schedule(anchored(schedule, after))
    found: list[Preview] = []
    while len(found) < min(count, MAX_PREVIEW):
        occurrence = compiled.next(found[-1].at if found else after)
        if occurrence is None:
            break
        local = to_local(occurrence.at, schedule.time_zone)
        found.append(Preview(at=occurrence.at, local=local, note=occurrence.note))
    return found


def excluded_between(schedule: Schedule, after: datetime, until: datetime) -> list[datetime]:
    """The first occurrences (at most 100) that its calendar excludes in (after, until]."""
    compiled = compile_schedule(anchored(schedule, after))
    found: list[datetime] = []
    while len(found) < MAX_PREVIEW:
        skipped = compiled.excluded(found[-1] if found else after, until)
        if skipped is None:
            break
        found.append(skipped[0])
    return found


def jump_note(schedule: Schedule, jump: ZoneTransition) -> str:
    """What a jump of the clock does to a schedule, in a sentence."""
    compiled = compile_schedule(anchored(schedule, jump.at - _LONG_BEFORE))
    if not isinstance(compiled, CronSchedule):
        return "No occurrence is touched."
    clock = compiled.clock
    if clock.cron.frequent:
        return "It runs at every real time that matches; none is lost and none is added."
    if jump.kind == Kind.GAP.value:
        lost = sum(n for _, n in replace(clock, gap=Gap.SKIP).gaps(jump.at - _TICK, jump.at))
        if not lost:
            return "No occurrence is touched."
        times = "One time does" if lost == 1 else f"{lost} times do"
        end = (
            "at the first instant after the gap, once"
            if clock.gap is Gap.SHIFT
            else "not at all; it is recorded"
        )
        return f"{times} not exist: it runs {end}."
    twice = replace(clock, overlap=Overlap.BOTH).count(jump.at - _DAY, jump.at + _DAY)
    once = replace(clock, overlap=Overlap.FIRST).count(jump.at - _DAY, jump.at + _DAY)
    if twice == once:
        return "No occurrence is touched."
    times = "One time happens" if twice - once == 1 else f"{twice - once} times happen"
    which = {
        Overlap.FIRST: "it runs the first time",
        Overlap.SECOND: "it runs the second time",
        Overlap.BOTH: "it runs both times",
    }
    return f"{times} twice: {which[clock.overlap]}."
