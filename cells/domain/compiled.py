"""Schedules ready to be asked: one class for each type.

The next occurrence is the first one strictly after the previous *scheduled* instant, never
after now. Occurrences are whole seconds; none lies at or after `end_at`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from cells.domain.calendars import OpenDays
from cells.domain.job import Overlap
from cells.domain.wallclock import Occurrence, WallClock
from cells.domain.zones import LATEST

_TICK = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
#: Walked before bisection takes over: a short outage is the usual case.
_SHORT_WALK = 8
#: Overlaps are half an hour at least.
_SHORTEST_OVERLAP_SECONDS = 1800

#: What a preview says of an occurrence that a calendar moved.
ROLLED = "moved here by the calendar"


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

    def excluded(self, after: datetime, until: datetime) -> tuple[datetime, int] | None:
        """What its calendar excludes in (after, until]: the first instant, and how many there are."""
        return None

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
class NowSchedule(Compiled):
    """Due at once, once."""

    def first(self, now: datetime) -> Occurrence | None:
        return Occurrence(now.astimezone(UTC).replace(microsecond=0))

    def next(self, after: datetime) -> Occurrence | None:
        return None

    def count(self, after: datetime, until: datetime) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class OnceSchedule(Compiled):
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
class RateSchedule(Compiled):
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
class CronSchedule(Compiled):
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
        if found is None or found.at >= self.end:
            return None
        cron = self.clock.cron
        if found.note is not None or not isinstance(cron, OpenDays):
            return found
        if not cron.base.matches_day(found.at.astimezone(self.clock.tz).date()):
            return Occurrence(found.at, ROLLED)
        return found

    def count(self, after: datetime, until: datetime) -> int:
        return self.clock.count(*self._inside(after, until))

    def period_seconds(self) -> int | None:
        wall = self.clock.cron.period_seconds
        if self.clock.overlap is Overlap.BOTH and not self.clock.cron.frequent:
            return min(wall, _SHORTEST_OVERLAP_SECONDS)
        return wall

    def gaps(self, after: datetime, until: datetime) -> Sequence[tuple[datetime, int]]:
        return list(self.clock.gaps(*self._inside(after, until)))

    def excluded(self, after: datetime, until: datetime) -> tuple[datetime, int] | None:
        cron = self.clock.cron
        if not isinstance(cron, OpenDays) or until <= after:
            return None
        clock = replace(self.clock, cron=cron.excluded)
        low, high = self._inside(after, until)
        count = clock.count(low, high)
        first = clock.next(low) if count else None
        return None if first is None else (first.at, count)

    def _inside(self, after: datetime, until: datetime) -> tuple[datetime, datetime]:
        return (
            max(after, self.start - _TICK).astimezone(UTC),
            min(until, self.end - _TICK).astimezone(UTC),
        )
