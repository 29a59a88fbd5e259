"""Calendars of excluded dates, and what they do to the days on which a schedule fires.

A calendar says on which local dates nothing runs. A schedule that refers to one says what becomes
of an occurrence on such a date: it is skipped, or it moves to the same time of day on the next or the
previous open day. What moves onto a day that has a run at that time already is one run with it. An
expression's times of day are the same on all its days, so a calendar changes nothing but the days.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping
from datetime import MAXYEAR, date, timedelta
from functools import cached_property

import msgspec

from cells.domain.faults import ScheduleError
from cells.domain.walker import Cron

#: Dates in one calendar.
MAX_DATES = 10_000
#: Excluded days in a row: an occurrence never moves further than this.
MAX_STRETCH = 366
MAX_LABEL = 120

WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_DAY = timedelta(days=1)
#: Excluded stretches passed over before an expression is taken to have no open day at all.
_STRETCHES = 2_000


class Roll(enum.StrEnum):
    """What becomes of an occurrence on an excluded date."""

    SKIP = "SKIP"  # it does not run; recorded
    NEXT = "NEXT"  # the same time of day on the next open day
    PREVIOUS = "PREVIOUS"  # the same time of day on the open day before


class Calendar(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One version of a calendar. Immutable; two are equal if they exclude the same days."""

    digest: str  # of what it excludes
    days: frozenset[int]  # ordinals of excluded dates
    weekdays: frozenset[int] = frozenset()  # excluded on every week; 0 is Sunday

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Calendar) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def excludes(self, day: date) -> bool:
        """Whether nothing runs on this local date."""
        return day.toordinal() in self.days or day.isoweekday() % 7 in self.weekdays

    def next_open(self, day: date) -> date:
        """The first open day at or after `day`."""
        while self.excludes(day) and day.year < MAXYEAR:
            day += _DAY
        return day

    def previous_open(self, day: date) -> date:
        """The last open day at or before `day`."""
        while self.excludes(day) and day.year > 1:
            day -= _DAY
        return day


def make_calendar(dates: Iterable[date], weekdays: Iterable[int] = ()) -> Calendar:
    """A calendar of what it excludes. Raises `ScheduleError` with every fault."""
    days, names = frozenset(day.toordinal() for day in dates), frozenset(weekdays)
    faults: list[tuple[str, str]] = []
    if len(days) > MAX_DATES:
        faults.append(("/dates", f"{len(days)} dates; a calendar has at most {MAX_DATES}"))
    if len(names) == 7:
        faults.append(("/weekdays", "all seven days are excluded: nothing would ever run"))
    digest = hashlib.blake2b(
        repr((sorted(days), sorted(names))).encode(), digest_size=16, person=b"ch-calendar"
    ).hexdigest()
    calendar = Calendar(digest=digest, days=days, weekdays=names)
    if not faults and (longest := _longest(calendar)) is not None:
        faults.append(
            ("/dates", f"no open day for more than {MAX_STRETCH} days from {longest.isoformat()} on")
        )
    if faults:
        raise ScheduleError.of(faults)
    return calendar


def _longest(calendar: Calendar) -> date | None:
    """The first day of a stretch that is too long, if there is one."""
    seen = 0
    for ordinal in sorted(calendar.days):
        if ordinal <= seen:
            continue
        end = calendar.next_open(date.fromordinal(ordinal)).toordinal()
        start = calendar.previous_open(date.fromordinal(ordinal)).toordinal() + 1
        if end - start > MAX_STRETCH:
            return date.fromordinal(start)
        seen = end
    return None


def read_dates(given: Mapping[int, str]) -> tuple[dict[int, date], list[tuple[str, str]]]:
    """Dates by their place in a list, and what is wrong with the others."""
    found: dict[int, date] = {}
    seen: set[date] = set()
    faults: list[tuple[str, str]] = []
    for i, text in given.items():
        try:
            day = date.fromisoformat(text) if len(text) == 10 else None
        except ValueError:
            day = None
        if day is None:
            faults.append((f"/dates/{i}", f"{text[:40]!a} is not a date like 2026-12-25"))
        elif not 1970 <= day.year <= 2199:
            faults.append((f"/dates/{i}", f"{text}: the year must lie between 1970 and 2199"))
        elif day in seen:
            faults.append((f"/dates/{i}", f"{text} is in the list already"))
        else:
            found[i] = day
            seen.add(day)
    return found, faults


class OpenDays(Cron):
    """An expression under a calendar: its own open days, and those that excluded ones move to."""

    def __init__(self, base: Cron, calendar: Calendar, roll: Roll) -> None:
        super().__init__(
            seconds=base.seconds,
            minutes=base.minutes,
            hours=base.hours,
            months=base.months,
            years=base.years,
            rule=base.rule,
            frequent=base.frequent,
        )
        self.base, self.calendar, self.roll = base, calendar, roll

    def matches_day(self, day: date) -> bool:
        """Whether it fires on this day, by itself or for one that moved here."""
        if self.calendar.excludes(day):
            return False
        return self.base.matches_day(day) or self.moved_here(day)

    def moved_here(self, day: date) -> bool:
        """Whether an excluded day's occurrences move to this open one."""
        if self.roll is Roll.SKIP:
            return False
        step = -_DAY if self.roll is Roll.NEXT else _DAY
        other = day + step
        while self.calendar.excludes(other):
            if self.base.matches_day(other):
                return True
            other += step
        return False

    def next_day(self, day: date) -> date | None:
        """The first day after `day` on which it fires."""
        calendar = self.calendar
        if self.roll is Roll.NEXT and calendar.excludes(day):
            target = calendar.next_open(day)
            if self.moved_here(target):
                return target
        found = self.base.next_day(day)
        for _ in range(_STRETCHES):
            if found is None or not calendar.excludes(found):
                return found
            if self.roll is Roll.NEXT:
                return calendar.next_open(found)
            if self.roll is Roll.PREVIOUS and (earlier := calendar.previous_open(found)) > day:
                return earlier
            found = self.base.next_day(calendar.next_open(found) - _DAY)
        return None

    def _shortest_day_gap(self) -> int:
        """What moves may come to stand beside anything."""
        return super()._shortest_day_gap() if self.roll is Roll.SKIP else 1

    @cached_property
    def excluded(self) -> ExcludedDays:
        """What of the expression falls on excluded days."""
        return ExcludedDays(self)


class ExcludedDays(Cron):
    """The occurrences of an expression on the days that its calendar excludes."""

    def __init__(self, open_days: OpenDays) -> None:
        base = open_days.base
        super().__init__(
            seconds=base.seconds,
            minutes=base.minutes,
            hours=base.hours,
            months=base.months,
            years=base.years,
            rule=base.rule,
            frequent=base.frequent,
        )
        self._base, self._calendar = base, open_days.calendar

    def matches_day(self, day: date) -> bool:
        """Whether the day is excluded and the expression would have fired."""
        return self._calendar.excludes(day) and self._base.matches_day(day)

    def next_day(self, day: date) -> date | None:
        """The first such day after `day`, within the year that follows."""
        last = day + timedelta(days=min(MAX_STRETCH, (date.max - day).days - 1))
        found = self._base.next_day(day)
        while found is not None and found <= last:
            if self._calendar.excludes(found):
                return found
            found = self._base.next_day(found)
        return None
