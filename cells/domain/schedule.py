"""Schedules: checked, compiled, and asked for their next occurrence.

The next occurrence is the first one strictly after the previous *scheduled* instant, never
after now. Occurrences are whole seconds; none lies at or after `end_at`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TypeVar
from zoneinfo import ZoneInfo

import msgspec

from cells.domain.cron import parse_cron
from cells.domain.faults import ScheduleError
from cells.domain.instants import format_instant, parse_end, parse_instant, parse_time
from cells.domain.job import Dst, Gap, Overlap, Schedule, ScheduleType
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
    "anchored", "compile_schedule", "normalise", "preview", "to_local", "transitions",
]  # fmt: skip

T = TypeVar("T")

MAX_EVERY_SECONDS = 10 * 366 * 86_400
MAX_PREVIEW = 100

_TICK = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
#: Walked before bisection takes over: a short outage is the usual case.
_SHORT_WALK = 8
#: Overlaps are half an hour at least.
_SHORTEST_OVERLAP_SECONDS = 1800

_FIELDS_OF = {
    ScheduleType.ONCE: {"run_at", "time_zone", "dst"},
    ScheduleType.CRON: {"cron", "time_zone", "start_at", "end_at", "dst"},
    ScheduleType.RATE: {"every_seconds", "start_at", "end_at"},
    ScheduleType.NOW: set[str](),
}


class Compiled(ABC):
    """A schedule ready to be asked. All instants are aware, in UTC."""

    @abstractmethod
    def first(self, now: datetime) -> Occurrence | None:
        """What a job created at `now` waits for. Of a ONCE it is its time even if that is
        past (the misfire policy decides); of the others the first occurrence after now."""

    @abstractmethod
    def next(self, after: datetime) -> Occurrence | None:
        """The first occurrence strictly after an instant, or None if there is none left."""

    @abstractmethod
    def count(self, after: datetime, until: datetime) -> int:
        """How many occurrences lie in (after, until]; exact, without walking over each."""

    def period_seconds(self) -> int | None:
        """The shortest distance between two occurrences; None if there is only one."""
        return None

    def gaps(self, after: datetime, until: datetime) -> Sequence[tuple[datetime, int]]:
        """DST gaps in (after, until] that swallowed occurrences under the SKIP policy: the
        first instant after each, and how many it swallowed."""
        return ()

    def latest(self, known: datetime, until: datetime) -> datetime:
        """The last occurrence at or before `until`, where `known` is one of them. Few steps,
        however long the time between was."""
        low, high = known, until
        for _ in range(_SHORT_WALK):
            found = self.next(low)
            if found is None or found.at > until:
                return low
            low = found.at
        while high - low >= _SECOND:
            middle = low + (high - low) / 2
            found = self.next(middle)
            if found is not None and found.at <= until:
                low = found.at
            else:
                high = middle
        return low


@dataclass(frozen=True, slots=True)
class _Now(Compiled):
    """Due at once, once."""

    def first(self, now: datetime) -> Occurrence | None:
        return Occurrence(now.astimezone(UTC).replace(microsecond=0))

    def next(self, after: datetime) -> Occurrence | None:
        return None

    def count(self, after: datetime, until: datetime) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class _Once(Compiled):
    """One instant; two where a local time happens twice and both passes are wanted."""

    occurrences: tuple[Occurrence, ...]

    def first(self, now: datetime) -> Occurrence | None:
        return self.occurrences[0] if self.occurrences else None

    def next(self, after: datetime) -> Occurrence | None:
        return next((o for o in self.occurrences if o.at > after), None)

    def count(self, after: datetime, until: datetime) -> int:
        return sum(after < o.at <= until for o in self.occurrences)

    def period_seconds(self) -> int | None:
        if len(self.occurrences) < 2:
            return None
        return (self.occurrences[1].at - self.occurrences[0].at) // _SECOND


@dataclass(frozen=True, slots=True)
class _Rate(Compiled):
    """Every so many elapsed seconds, anchored at (and including) its start."""

    start: datetime
    every: timedelta
    end: datetime

    def first(self, now: datetime) -> Occurrence | None:
        return self.next(now)

    def next(self, after: datetime) -> Occurrence | None:
        at = self.start + self.every * max(0, self._through(after))
        return Occurrence(at) if at < self.end else None

    def count(self, after: datetime, until: datetime) -> int:
        until = min(until, self.end - _TICK)
        return max(0, self._through(until) - max(0, self._through(after))) if until > after else 0

    def _through(self, at: datetime) -> int:
        """How many occurrences lie at or before an instant (not positive before the start)."""
        return (min(at, LATEST) - self.start) // self.every + 1

    def period_seconds(self) -> int | None:
        return self.every // _SECOND


@dataclass(frozen=True, slots=True)
class _Cron(Compiled):
    """Wall-clock recurrence between a start (inclusive) and an end (exclusive)."""

    clock: WallClock
    start: datetime
    end: datetime

    def first(self, now: datetime) -> Occurrence | None:
        return self.next(now)

    def next(self, after: datetime) -> Occurrence | None:
        after = max(after, self.start - _TICK)
        if after >= self.end:
            return None
        found = self.clock.next(after.astimezone(UTC))
        return found if found is not None and found.at < self.end else None

    def count(self, after: datetime, until: datetime) -> int:
        return self.clock.count(*self._inside(after, until))

    def period_seconds(self) -> int | None:
        wall = self.clock.cron.period_seconds
        if self.clock.overlap is Overlap.BOTH and not self.clock.cron.frequent:
            return min(wall, _SHORTEST_OVERLAP_SECONDS)
        return wall

    def gaps(self, after: datetime, until: datetime) -> Sequence[tuple[datetime, int]]:
        return list(self.clock.gaps(*self._inside(after, until)))

    def _inside(self, after: datetime, until: datetime) -> tuple[datetime, datetime]:
        return (
            max(after, self.start - _TICK).astimezone(UTC),
            min(until, self.end - _TICK).astimezone(UTC),
        )


@lru_cache(maxsize=16_384)
def compile_schedule(schedule: Schedule) -> Compiled:
    """The compiled form of a normalised schedule, cached by its content.

    Raises `ScheduleError` with every fault.
    """
    faults: list[tuple[str, str]] = [
        (f"/schedule/{name}", f"a {schedule.type.value} schedule has no {name}")
        for name in ("run_at", "cron", "every_seconds", "time_zone", "start_at", "end_at", "dst")
        if name not in _FIELDS_OF[schedule.type] and getattr(schedule, name) not in (None, Dst())
    ]
    compiled = _BUILDERS[schedule.type](schedule, faults)
    if faults or compiled is None:
        raise ScheduleError.of(faults)
    return compiled


class _Reader:
    """Calls parsers and collects what they complain about, so that all faults are told at once."""

    def __init__(self, schedule: Schedule, faults: list[tuple[str, str]]) -> None:
        self.schedule, self.faults = schedule, faults

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


def _once(schedule: Schedule, faults: list[tuple[str, str]]) -> Compiled | None:
    reader = _Reader(schedule, faults)
    tz = reader.read(zone, "time_zone")
    at = reader.read(parse_time, "run_at")
    if schedule.run_at is None:
        reader.fault("run_at", "required for a ONCE schedule")
    if at is None:
        return None
    if at.tzinfo is not None:
        return _Once((Occurrence(at),))
    if schedule.time_zone is None:
        reader.fault("time_zone", "required for a local run_at; or give run_at an offset such as Z")
    return None if tz is None else _Once(_once_local(tz, at, schedule.dst))


def _once_local(tz: ZoneInfo, wall: datetime, dst: Dst) -> tuple[Occurrence, ...]:
    reading = read_wall(tz, wall)
    if reading.kind is Kind.PLAIN:
        return (Occurrence(reading.first),)
    if reading.kind is Kind.GAP:
        return (Occurrence(reading.first, SHIFTED),) if dst.gap is Gap.SHIFT else ()
    both = (Occurrence(reading.first, FIRST_PASS), Occurrence(reading.second, SECOND_PASS))
    return {Overlap.FIRST: both[:1], Overlap.SECOND: both[1:], Overlap.BOTH: both}[dst.overlap]


def _cron(schedule: Schedule, faults: list[tuple[str, str]]) -> Compiled | None:
    reader = _Reader(schedule, faults)
    tz = reader.read(zone, "time_zone")
    cron = reader.read(lambda text, _: parse_cron(text), "cron")
    if schedule.cron is None:
        reader.fault("cron", "required for a CRON schedule")
    if schedule.time_zone is None:
        reader.fault("time_zone", "required for a CRON schedule")
    start, end = reader.bounds()
    if cron is None or tz is None:
        return None
    return _Cron(WallClock(cron, tz, schedule.dst.gap, schedule.dst.overlap), start, end)


def _rate(schedule: Schedule, faults: list[tuple[str, str]]) -> Compiled | None:
    reader = _Reader(schedule, faults)
    every = schedule.every_seconds
    if every is None:
        reader.fault("every_seconds", "required for a RATE schedule")
    elif not 1 <= every <= MAX_EVERY_SECONDS:
        reader.fault("every_seconds", f"must be a whole number from 1 to {MAX_EVERY_SECONDS}")
        every = None
    if schedule.start_at is None:
        reader.fault("start_at", "required for a stored RATE schedule")
    start, end = reader.bounds()
    return None if every is None else _Rate(start, timedelta(seconds=every), end)


_BUILDERS: dict[ScheduleType, Callable[[Schedule, list[tuple[str, str]]], Compiled | None]] = {
    ScheduleType.ONCE: _once,
    ScheduleType.CRON: _cron,
    ScheduleType.RATE: _rate,
    ScheduleType.NOW: lambda schedule, faults: _Now(),
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
