"""A cron expression in a time zone: which instants its wall times are.

`Cron` walks naive local minutes; each wall time is then read in the zone. The rules:

* ordinary times are one instant;
* a time in a gap runs once, at the first instant after the gap (SHIFT), or not (SKIP); several
  times in one gap are one run, and so is one that falls on a regular run;
* a time that happens twice runs on its first pass, its second, or both;
* a *frequent* expression (hour text begins with `*`) runs at every real instant whose wall
  clock matches, and knows neither policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cells.domain.job import Gap, Overlap
from cells.domain.walker import Cron
from cells.domain.zones import Change, Kind, changes, find_change, offset_at, offset_of, read_wall

SHIFTED = "shifted out of a DST gap"
FIRST_PASS = "first pass of an overlap"  # noqa: S105
SECOND_PASS = "second pass of an overlap"  # noqa: S105

_TICK = timedelta(microseconds=1)
#: Longer than any overlap there ever was.
_MARGIN = timedelta(days=2)
#: An expression whose only dates lie in gaps would be looked for until the calendar ends. No
#: zone has had this many gaps in a row on the dates of an expression that ever ran between them.
_GAPS_IN_A_ROW = 64


class Occurrence(NamedTuple):
    """One scheduled instant. `note` says what daylight saving did to it, if anything."""

    at: datetime
    note: str | None = None


@dataclass(frozen=True, slots=True)
class WallClock:
    """A cron expression, a zone and the policies for its transitions. Instants are in UTC."""

    cron: Cron
    tz: ZoneInfo
    gap: Gap
    overlap: Overlap

    def next(self, after: datetime) -> Occurrence | None:
        """The first occurrence strictly after an instant; None if the calendar ends first."""
        local = after.astimezone(self.tz)
        wall = local.replace(tzinfo=None, fold=0)
        ahead = self._ahead(wall, after)
        if local.fold or not (self.cron.frequent or self.overlap is not Overlap.FIRST):
            return ahead
        # In the first pass of an overlap, what comes next may stand further back on the wall.
        longer, shorter = offset_of(self.tz, wall, 0), offset_of(self.tz, wall, 1)
        if shorter >= longer:
            return ahead
        turn = find_change(self.tz, after.replace(microsecond=0), after + (longer - shorter))
        again = self.cron.next_wall((turn + shorter).replace(tzinfo=None) - _TICK)
        if again is None or again >= (turn + longer).replace(tzinfo=None):
            return ahead
        second = Occurrence((again - shorter).replace(tzinfo=UTC), SECOND_PASS)
        return second if ahead is None or second.at < ahead.at else ahead

    def _ahead(self, wall: datetime, after: datetime) -> Occurrence | None:
        """The first occurrence after `after` among the wall times after `wall`."""
        for _ in range(_GAPS_IN_A_ROW):
            found = self.cron.next_wall(wall)
            if found is None:
                return None
            reading = read_wall(self.tz, found)
            if reading.kind is Kind.PLAIN:
                return Occurrence(reading.first)
            if reading.kind is Kind.OVERLAP:
                for occurrence in self._passes(reading.first, reading.second):
                    if occurrence.at > after:
                        return occurrence
            elif not self.cron.frequent and self.gap is Gap.SHIFT and reading.first > after:
                return Occurrence(reading.first, SHIFTED)
            wall = reading.resume - _TICK
        return None

    def _passes(self, first: datetime, second: datetime) -> tuple[Occurrence, ...]:
        both = (Occurrence(first, FIRST_PASS), Occurrence(second, SECOND_PASS))
        if self.cron.frequent or self.overlap is Overlap.BOTH:
            return both
        return both[:1] if self.overlap is Overlap.FIRST else both[1:]

    def count(self, after: datetime, until: datetime) -> int:
        """How many occurrences lie in (after, until]. Work: a few steps a day, not one a run."""
        if until <= after:
            return 0
        # Between two changes of the offset, instants and matching wall times are one to one.
        total, low = 0, after
        offset = offset_at(self.tz, after)
        for change in changes(self.tz, after, until):
            total += self._walls(low, change.at - _TICK, offset)
            low, offset = change.at - _TICK, change.after
        total += self._walls(low, until, offset)
        if self.cron.frequent:
            return total
        for change in changes(self.tz, after - _MARGIN, until + _MARGIN):
            total += self._correction(change, after, until)
        return total

    def _walls(self, after: datetime, until: datetime, offset: timedelta) -> int:
        """Matching walls of the instants in (after, until] while `offset` is in force."""
        return self.cron.count_walls(
            (after + offset).replace(tzinfo=None) + _TICK, (until + offset).replace(tzinfo=None) + _TICK
        )

    def _correction(self, change: Change, after: datetime, until: datetime) -> int:
        """What the policies add to, or take from, the plain count around one change."""
        if change.after > change.before:
            if self.gap is Gap.SKIP or not after < change.at <= until:
                return 0
            wall = (change.at + change.after).replace(tzinfo=None)
            regular = self.cron.count_walls(wall, wall + _TICK)
            return int(bool(self._gap_walls(change)) and not regular)
        length = change.before - change.after
        if self.overlap is Overlap.BOTH:
            return 0
        if self.overlap is Overlap.FIRST:  # the second pass does not run
            low, high, offset = change.at - _TICK, change.at - _TICK + length, change.after
        else:  # the first pass does not
            low, high, offset = change.at - _TICK - length, change.at - _TICK, change.before
        return -self._walls(max(low, after), min(high, until), offset)

    def _gap_walls(self, change: Change) -> int:
        return self.cron.count_walls(
            (change.at + change.before).replace(tzinfo=None), (change.at + change.after).replace(tzinfo=None)
        )

    def gaps(self, after: datetime, until: datetime) -> Iterator[tuple[datetime, int]]:
        """The gaps in (after, until] that swallowed occurrences: their end, and how many."""
        if self.cron.frequent or self.gap is not Gap.SKIP:
            return
        for change in changes(self.tz, after, until):
            if change.after > change.before and (swallowed := self._gap_walls(change)):
                yield change.at, swallowed
