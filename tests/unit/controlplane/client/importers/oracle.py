"""When an expression fires according to its source: read anew, sharing nothing with the importers.

A field is asked about one number at a time, item by item, as the manual pages describe them; days are
walked one by one. Zones are fixed offsets here, or times of the year away from clock changes.
"""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

_MONTHS = {name.lower(): n for n, name in enumerate(calendar.month_abbr) if name}
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


def _value(text: str, names: dict[str, int]) -> int:
    return names[text.lower()] if text.lower() in names else int(text)


def _matches(text: str, number: int, low: int, high: int, names: dict[str, int]) -> bool:
    for item in text.split(","):
        span, _, step = item.partition("/")
        if span == "*":
            first, last = low, high
        elif "-" in span:
            left, right = span.split("-")
            first, last = _value(left, names), _value(right, names)
        else:
            first = _value(span, names)
            last = high if step else first
        if first <= number <= last and (number - first) % int(step or 1) == 0:
            return True
    return False


def _times(minute: str, hour: str) -> list[tuple[int, int]]:
    hours = [h for h in range(24) if _matches(hour, h, 0, 23, {})]
    return list(product(hours, [m for m in range(60) if _matches(minute, m, 0, 59, {})]))


def _unix_day(day: date, dom: str, month: str, dow: str) -> bool:
    if not _matches(month, day.month, 1, 12, _MONTHS):
        return False
    names = {name: n for n, name in enumerate(_DAYS)}
    sunday_last = day.isoweekday()  # 1 to 7; a Sunday is 0 as well
    by_week = any(_matches(dow, n, 0, 7, names) for n in {sunday_last, sunday_last % 7})
    by_month = _matches(dom, day.day, 1, 31, {})
    if dom.startswith("*") or dow.startswith("*"):
        return by_month and by_week
    return by_month or by_week


def _aws_day(day: date, dom: str, month: str, dow: str, year: str) -> bool:
    if not _matches(month, day.month, 1, 12, _MONTHS) or not _matches(year, day.year, 1970, 2199, {}):
        return False
    length = calendar.monthrange(day.year, day.month)[1]
    if dow == "?":
        if dom.endswith("W"):
            return _is_nearest_weekday(day, int(dom[:-1]), length)
        return day.day == length if dom == "L" else _matches(dom, day.day, 1, 31, {})
    names = {name: n + 1 for n, name in enumerate(_DAYS)}
    weekday = day.isoweekday() % 7 + 1  # 1 is Sunday
    if dow == "L":
        return weekday == 7
    if dow.endswith("L"):
        return weekday == _value(dow[:-1], names) and day.day > length - 7
    if "#" in dow:
        wanted, nth = dow.split("#")
        return weekday == _value(wanted, names) and (day.day + 6) // 7 == int(nth)
    return _matches(dow, weekday, 1, 7, names)


def _is_nearest_weekday(day: date, wanted: int, length: int) -> bool:
    """Whether a day is the Monday to Friday nearest to that day of its month, and in it."""
    if wanted > length:
        return False
    weekdays = [n for n in range(1, length + 1) if day.replace(day=n).isoweekday() < 6]
    return day.day == min(weekdays, key=lambda n: abs(n - wanted))


def fires(
    expression: str, *, dialect: str, zone: str, start: datetime, days: int, most: int
) -> list[datetime]:
    """The first `most` instants strictly after `start`, in UTC, within that many days."""
    fields = expression.split()
    tz = ZoneInfo(zone)
    found: list[datetime] = []
    first = start.astimezone(tz).date()
    times = _times(fields[0], fields[1])
    for n in range(days):
        day = first + timedelta(days=n)
        matches = _unix_day(day, *fields[2:5]) if dialect == "unix" else _aws_day(day, *fields[2:6])
        if not matches:
            continue
        for hour, minute in times:
            at = datetime(day.year, day.month, day.day, hour, minute, tzinfo=tz).astimezone(UTC)
            if at > start:
                found.append(at)
                if len(found) == most:
                    return found
    return found
