"""The whole days of a recurrence rule (RFC 5545, 3.3.10). Pure.

Only days are looked at that lie in the asked range and in months the rule names, so an old beginning
costs nothing; with COUNT the days before have to be counted. Every day looked at is a step, and steps
are bounded: a rule that matches nothing ends as soon as one that matches daily.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import MAXYEAR, date

FREQUENCIES = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY")
_MAX_ORDINAL = date.max.toordinal()


class TooManySteps(ValueError):
    """The bound on steps was reached."""


class Steps:
    """How many days may still be looked at."""

    def __init__(self, limit: int):
        self._limit = self._left = limit

    def spend(self, count: int) -> None:
        """Take `count` of them. Raises TooManySteps when there are not that many."""
        self._left -= count
        if self._left < 0:
            raise TooManySteps(f"its recurrences take more than {self._limit} steps to write out")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recurrence:
    """A rule. Weekdays count from Monday = 0; numbers below 0 count from the end."""

    frequency: str
    start: date
    interval: int = 1
    count: int | None = None
    until: date | None = None
    week_start: int = 0
    months: Sequence[int] = ()
    week_numbers: Sequence[int] = ()
    year_days: Sequence[int] = ()
    month_days: Sequence[int] = ()
    weekdays: Sequence[tuple[int, int]] = ()  # (which of them in the period; 0: all, weekday)
    positions: Sequence[int] = ()

    def __post_init__(self) -> None:
        if self.frequency not in FREQUENCIES:
            raise ValueError("recurs within a day; only whole days can be excluded")
        if self.interval < 1:
            raise ValueError("recurs with an INTERVAL below 1")
        if self.count is not None and self.count < 1:
            raise ValueError("recurs with a COUNT below 1")


def days_of(rule: Recurrence, low: date, high: date, steps: Steps) -> Iterator[date]:
    """Its days from `low` to `high`, in order. Raises TooManySteps."""
    rule = _with_defaults(rule)
    if rule.until is not None:
        high = min(high, rule.until)
    left = rule.count
    for period in _periods(rule, rule.start if left is not None else max(rule.start, low), high):
        steps.spend(len(period) + 1)
        found = [day for day in period if _matches(rule, day)]
        if rule.positions:
            places = (at - 1 if at > 0 else len(found) + at for at in rule.positions)
            found = [found[place] for place in sorted(set(places)) if 0 <= place < len(found)]
        for day in found:
            if day < rule.start:
                continue
            if day > high:
                return
            if left is not None:
                if left == 0:
                    return
                left -= 1
            if day >= low:
                yield day


def _with_defaults(rule: Recurrence) -> Recurrence:
    """What a rule leaves open comes from its first day."""
    if rule.week_numbers or rule.year_days or rule.month_days or rule.weekdays:
        return rule
    if rule.frequency == "YEARLY":
        return replace(rule, months=rule.months or (rule.start.month,), month_days=(rule.start.day,))
    if rule.frequency == "MONTHLY":
        return replace(rule, month_days=(rule.start.day,))
    if rule.frequency == "WEEKLY":
        return replace(rule, weekdays=((0, rule.start.weekday()),))
    return rule


def _periods(rule: Recurrence, first: date, high: date) -> Iterator[list[date]]:
    """The days of each period that counts, from the one that holds `first` or lies before it."""
    months = sorted(set(rule.months)) or range(1, 13)
    match rule.frequency:
        case "YEARLY":
            for year in _every(rule, rule.start.year, first.year, min(high.year, MAXYEAR)):
                yield [day for month in months for day in _month(year, month)]
        case "MONTHLY":
            for at in _every(rule, *(12 * day.year + day.month - 1 for day in (rule.start, first, high))):
                year, month = divmod(at, 12)
                yield _month(year, month + 1) if month + 1 in months else []
        case "WEEKLY":
            monday = rule.start.toordinal() - (rule.start.weekday() - rule.week_start) % 7
            weeks = _every(rule, 0, (first.toordinal() - monday) // 7, (high.toordinal() - monday) // 7)
            for week in weeks:
                begin = monday + 7 * week
                yield [date.fromordinal(n) for n in range(begin, begin + 7) if 1 <= n <= _MAX_ORDINAL]
        case _:
            for n in _every(rule, rule.start.toordinal(), first.toordinal(), high.toordinal()):
                yield [date.fromordinal(n)]


def _every(rule: Recurrence, start: int, first: int, last: int) -> range:
    skipped = max(0, first - start) // rule.interval * rule.interval
    return range(start + skipped, last + 1, rule.interval)


def _month(year: int, month: int) -> list[date]:
    if not 1 <= month <= 12:
        return []
    return [date(year, month, n) for n in range(1, calendar.monthrange(year, month)[1] + 1)]


def _matches(rule: Recurrence, day: date) -> bool:
    if rule.months and day.month not in rule.months:
        return False
    in_month = calendar.monthrange(day.year, day.month)[1]
    if rule.month_days and not _either(rule.month_days, day.day, in_month):
        return False
    in_year = 366 if calendar.isleap(day.year) else 365
    of_year = day.timetuple().tm_yday
    if rule.year_days and not _either(rule.year_days, of_year, in_year):
        return False
    if rule.week_numbers and not _either(rule.week_numbers, *_week(day, rule.week_start)):
        return False
    if not rule.weekdays:
        return True
    if rule.frequency == "MONTHLY" or (rule.frequency == "YEARLY" and rule.months):
        at, size = day.day, in_month
    else:
        at, size = of_year, in_year
    counted = rule.frequency in ("YEARLY", "MONTHLY")
    nth = (0, (at - 1) // 7 + 1, -((size - at) // 7 + 1))
    return any(weekday == day.weekday() and (not counted or which in nth) for which, weekday in rule.weekdays)


def _either(wanted: Sequence[int], at: int, size: int) -> bool:
    return at in wanted or at - size - 1 in wanted


def _week(day: date, week_start: int) -> tuple[int, int]:
    """The number of a day's week, and how many weeks that year has: a week is of the year that holds
    four of its days."""
    middle = day.toordinal() - (day.weekday() - week_start) % 7 + 3
    if not 1 <= middle <= _MAX_ORDINAL:
        return 1, 52  # weeks across the ends of the calendar
    fourth = date.fromordinal(middle)
    of_year = fourth.timetuple().tm_yday
    in_year = 366 if calendar.isleap(fourth.year) else 365
    return (of_year - 1) // 7 + 1, (of_year - 1) // 7 + 1 + (in_year - of_year) // 7
