"""The walk over wall-clock seconds that a cron expression of any dialect describes.

Nothing here knows a time zone: what a wall time means is decided in `wallclock.py`. The walk is
our own because every claim of a recurring job takes one step of it; croniter, which is several
times slower, agrees with it in the tests.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import isleap
from collections.abc import Collection
from dataclasses import dataclass
from datetime import MAXYEAR, date, datetime, time
from functools import cached_property
from itertools import pairwise

_MONTH_LENGTHS = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
#: 28 years: every weekday has stood beside every date, leap day included.
_CYCLE = range(date(2001, 1, 1).toordinal(), date(2029, 1, 1).toordinal())
_DAY_SECONDS = 86_400
_NONE: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class DayRule:
    """Which days of a month match. What a month looks like follows from the weekday of its first
    day and its length, and so does the answer. Weekdays count from Sunday, which is 0."""

    days: frozenset[int]
    weekdays: frozenset[int]
    either: bool = False  # a day matches if either field does; else if both do
    before_last: frozenset[int] = _NONE  # so many days before the month's last one
    nearest: frozenset[int] = _NONE  # the weekday (Monday to Friday) nearest to a day of the month
    last_weekday: bool = False  # the last Monday to Friday
    last_of: frozenset[int] = _NONE  # the last of these weekdays
    nth: frozenset[tuple[int, int]] = frozenset()  # (weekday, n): the n-th of them

    def in_month(self, first: int, length: int) -> frozenset[int]:
        """The matching days of a month that begins on the weekday `first`."""
        numbers = {day for day in self.days if day <= length}
        numbers |= {length - n for n in self.before_last if n < length}
        numbers |= {_nearest(day, first, length) for day in self.nearest if day <= length}
        if self.last_weekday:
            numbers.add(_nearest(length, first, length))
        of_week: dict[int, list[int]] = {}
        for day in range(1, length + 1):
            of_week.setdefault((first + day - 1) % 7, []).append(day)
        named = {day for weekday in self.weekdays for day in of_week[weekday]}
        named |= {of_week[weekday][-1] for weekday in self.last_of}
        named |= {of_week[weekday][n - 1] for weekday, n in self.nth if n <= len(of_week[weekday])}
        return frozenset(numbers | named if self.either else numbers & named)


def _nearest(day: int, first: int, length: int) -> int:
    """The Monday to Friday nearest to a day, in the same month."""
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


class Cron:
    """A parsed expression. Immutable; safe to share between threads."""

    def __init__(
        self,
        *,
        minutes: Collection[int],
        hours: Collection[int],
        months: Collection[int],
        rule: DayRule,
        frequent: bool,
        seconds: Collection[int] = (0,),
        years: Collection[int] | None = None,
    ) -> None:
        self.seconds, self.minutes, self.hours = sorted(seconds), sorted(minutes), sorted(hours)
        self.months = frozenset(months)
        self.years = None if years is None else frozenset(years)
        self.rule = rule
        self.frequent = frequent  # the hour's text starts with `*`: real ticks, no DST policy
        self._last_year = MAXYEAR - 1 if years is None else max(years)
        self._looks: dict[tuple[int, int], tuple[int, ...]] = {}  # of a month: its matching days

    @property
    def days(self) -> list[int]:
        """The plain days of the month."""
        return sorted(self.rule.days)

    @property
    def weekdays(self) -> frozenset[int]:
        """The plain days of the week; 0 is Sunday."""
        return self.rule.weekdays

    @property
    def either(self) -> bool:
        """Whether one of the two day fields is enough."""
        return self.rule.either

    @property
    def can_fire(self) -> bool:
        """Whether any date of the calendar matches. (29 February sees every weekday.)"""
        if self.years is not None:
            return any(self._in_month(year, month) for year in self.years for month in self.months)
        longest = {_MONTH_LENGTHS[month] for month in self.months}
        return any(self._looking(first, length) for first in range(7) for length in longest)

    def _looking(self, first: int, length: int) -> tuple[int, ...]:
        found = self._looks.get((first, length))
        if found is None:
            found = self._looks[first, length] = tuple(sorted(self.rule.in_month(first, length)))
        return found

    def _in_month(self, year: int, month: int) -> tuple[int, ...]:
        length = 28 if month == 2 and not isleap(year) else _MONTH_LENGTHS[month]
        return self._looking(date(year, month, 1).isoweekday() % 7, length)

    def next_wall(self, wall: datetime) -> datetime | None:
        """The first matching wall-clock second strictly after `wall`; None if the calendar ends."""
        day = wall.date()
        if self.matches_day(day):
            later = self._later_today(wall.hour, wall.minute, wall.second)
            if later is not None:
                return datetime.combine(day, later)
        following = self.next_day(day)
        if following is None:
            return None
        return datetime.combine(following, time(self.hours[0], self.minutes[0], self.seconds[0]))

    def _later_today(self, hour: int, minute: int, second: int) -> time | None:
        if hour in self.hours:
            if minute in self.minutes:
                later = bisect_right(self.seconds, second)
                if later < len(self.seconds):
                    return time(hour, minute, self.seconds[later])
            later = bisect_right(self.minutes, minute)
            if later < len(self.minutes):
                return time(hour, self.minutes[later], self.seconds[0])
        later = bisect_right(self.hours, hour)
        if later < len(self.hours):
            return time(self.hours[later], self.minutes[0], self.seconds[0])
        return None

    def next_day(self, day: date) -> date | None:
        """The first matching day after `day`. At most 40 years away, for 29 February on a
        given weekday across a year like 2100."""
        year, month, start = day.year, day.month, day.day + 1
        while year <= self._last_year:
            if month in self.months and (self.years is None or year in self.years):
                days = self._in_month(year, month)
                later = bisect_left(days, start)
                if later < len(days):
                    return date(year, month, days[later])
            year, month, start = (year, month + 1, 1) if month < 12 else (year + 1, 1, 1)
        return None

    def matches_day(self, day: date) -> bool:
        """Whether the expression fires on this calendar day."""
        if day.month not in self.months or (self.years is not None and day.year not in self.years):
            return False
        return day.day in self._in_month(day.year, day.month)

    def count_walls(self, start: datetime, stop: datetime) -> int:
        """How many wall-clock seconds w with start <= w < stop match. Work: one step a day."""
        if stop <= start:
            return 0
        whole = sum(self.matches_day(date.fromordinal(n)) for n in range(start.toordinal(), stop.toordinal()))
        total = whole * len(self.hours) * len(self.minutes) * len(self.seconds)
        if self.matches_day(start.date()):
            total -= self._count_before(start)
        if self.matches_day(stop.date()):
            total += self._count_before(stop)
        return total

    def _count_before(self, wall: datetime) -> int:
        """Matching seconds before the time of day of `wall`, on a matching day."""
        a_minute = len(self.seconds)
        total = bisect_left(self.hours, wall.hour) * len(self.minutes) * a_minute
        if wall.hour in self.hours:
            total += bisect_left(self.minutes, wall.minute) * a_minute
            if wall.minute in self.minutes:
                # Seconds begin at their first microsecond: 12:30:00.5 has 12:30:00 behind it.
                total += bisect_left(self.seconds, wall.second + bool(wall.microsecond))
        return total

    @cached_property
    def period_seconds(self) -> int:
        """The shortest distance between two occurrences on an undisturbed wall clock."""
        times = [h * 3600 + m * 60 + s for h in self.hours for m in self.minutes for s in self.seconds]
        inside = min((b - a for a, b in pairwise(times)), default=None)
        over_night = _DAY_SECONDS - times[-1] + times[0]  # if the day after matches too
        if inside is None or over_night < inside:
            over_night += (self._shortest_day_gap() - 1) * _DAY_SECONDS
            inside = over_night if inside is None else min(inside, over_night)
        return inside

    def _shortest_day_gap(self) -> int:
        shortest, previous = 366, -366
        for n in _CYCLE:
            day = date.fromordinal(n)
            if day.month in self.months and day.day in self._in_month(day.year, day.month):
                shortest, previous = min(shortest, n - previous), n
                if shortest == 1:
                    break
        return shortest
