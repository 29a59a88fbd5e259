"""How many ticks fall into each minute ahead. Pure, and bounded: what is not counted is said."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cells.domain.faults import ScheduleError
from cells.domain.job import Schedule, ScheduleType
from cells.domain.schedule import compile_schedule

#: Timers that are counted, and jobs whose schedules are looked at; the soonest ones.
TIMERS_LIMIT = 1_000_000
JOBS_LIMIT = 50_000
#: A unit is about a microsecond of work.
BUDGET = 500_000
_WALL_CLOCK_COST = 12
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Alike:
    """Jobs on one schedule that wait for the same occurrence: how many have which offset (whole
    seconds behind it)."""

    schedule: Schedule
    waits_for: datetime
    offsets: Sequence[tuple[int, int]]  # (seconds, jobs)

    @property
    def jobs(self) -> int:
        """How many they are."""
        return sum(count for _, count in self.offsets)


@dataclass(kw_only=True, slots=True)
class Herd:
    """Ticks per minute (epoch minutes), further occurrences only."""

    minutes: Counter[int] = field(default_factory=Counter)
    expanded: int = 0  # jobs whose further occurrences are counted
    left_out: int = 0  # jobs whose further occurrences are not: the work would exceed the budget


def expand(groups: Sequence[Alike], until: datetime, herd: Herd, *, budget: int = BUDGET) -> Iterator[int]:
    """Count what follows the occurrences that jobs wait for, the biggest groups first. Yields the
    work done so far after each group, so that the caller can let others in between."""
    spent = 0
    for group in sorted(groups, key=lambda alike: -alike.jobs):
        cost = _cost(group, until)
        if spent + cost > budget:
            herd.left_out += group.jobs
            continue
        spent += cost
        _count(group, until, herd.minutes)
        herd.expanded += group.jobs
        yield spent


def _last(group: Alike, until: datetime) -> datetime:
    return until - timedelta(seconds=min(offset for offset, _ in group.offsets)) - _TICK


def _cost(group: Alike, until: datetime) -> int:
    """An upper estimate without walking."""
    try:
        compiled = compile_schedule(group.schedule)
    except ScheduleError:
        return 1
    ahead = (_last(group, until) - group.waits_for).total_seconds()
    period = compiled.period_seconds() or 1
    most = max(0, int(ahead // period)) + 1
    each = len(group.offsets) if period % 60 else _buckets(group)
    wall_clock = _WALL_CLOCK_COST if group.schedule.type is ScheduleType.CRON else 0
    return most * (wall_clock + each) + len(group.offsets)


def _buckets(group: Alike) -> int:
    seconds = [offset for offset, _ in group.offsets]
    return (max(seconds) - min(seconds)) // 60 + 2


def _count(group: Alike, until: datetime, minutes: Counter[int]) -> None:
    end = int(until.timestamp()) // 60
    by_phase: dict[int, list[tuple[int, int]]] = {}
    for at in _following(group, until):
        minute, phase = divmod(at, 60)
        spread = by_phase.get(phase)
        if spread is None:
            found: defaultdict[int, int] = defaultdict(int)
            for offset, count in group.offsets:
                found[(phase + offset) // 60] += count
            spread = by_phase[phase] = list(found.items())
        for later, count in spread:
            if minute + later < end:
                minutes[minute + later] += count


def _following(group: Alike, until: datetime) -> Iterator[int]:
    """Epoch seconds of the occurrences behind the one they wait for."""
    last = _last(group, until)
    try:
        compiled = compile_schedule(group.schedule)
    except ScheduleError:
        return
    if group.schedule.type is ScheduleType.RATE and group.schedule.every_seconds is not None:
        first, every = int(group.waits_for.timestamp()), group.schedule.every_seconds
        for i in range(1, compiled.count(group.waits_for, last) + 1):
            yield first + i * every
        return
    occurrence = compiled.next(group.waits_for)
    while occurrence is not None and occurrence.at <= last:
        yield int(occurrence.at.timestamp())
        occurrence = compiled.next(occurrence.at)
