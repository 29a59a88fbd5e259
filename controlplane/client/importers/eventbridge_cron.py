"""EventBridge's `cron()` in our dialect. Pure.

Six fields: minute hour day-of-month month day-of-week year. Weekdays are 1 to 7 from Sunday on, one
of the two day fields is `?`, and L, W and # exist. Everything that five Unix fields and two bounds
can say is translated; the rest is refused with what could be done instead.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from controlplane.client.importers.fields import MONTHS, WEEKDAYS, Field, numbers, shown, written
from controlplane.client.importers.plan import CannotSay, Difference

_MINUTE = Field(name="minute", low=0, high=59, open_step=True)
_HOUR = Field(name="hour", low=0, high=23, open_step=True)
_DAY = Field(name="day of month", low=1, high=31, open_step=True)
_MONTH = Field(name="month", low=1, high=12, names=MONTHS, open_step=True)
_WEEKDAY = Field(name="day of week", low=1, high=7, names=WEEKDAYS, open_step=True)
_YEAR = Field(name="year", low=1970, high=2199, open_step=True)

_EVERY_YEAR = frozenset(range(_YEAR.low, _YEAR.high + 1))
_EVERY_WEEKDAY = frozenset(range(1, 8))
_LENGTHS = {month: 29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31 for month in range(1, 13)}
_INSTEAD = "; schedule a superset of those days and let the target decide"


def cron_schedule(
    text: str,
    zone: str,
    *,
    start: datetime | None,
    end: datetime | None,
    now: datetime,
    differences: list[Difference],
) -> dict[str, Any]:
    """The schedule of a job. Raises `CannotSay`."""
    parts = text.lower().split()
    if len(parts) != 6:
        raise CannotSay(f"cron(…) has six fields, this has {len(parts)}")
    minute, hour, day, month, weekday, year = parts
    for odd in (minute, hour, month, year):
        if "?" in odd:
            raise CannotSay("`?` stands in one of the two day fields only")
    if (day == "?") == (weekday == "?"):
        raise CannotSay("one of day of month and day of week must be `?`, and the other not")
    months = numbers(_MONTH, month)
    days = _weekdays(weekday, differences) if day == "?" else (_days(day, months), "*")
    fields = [shown(_MINUTE, minute), shown(_HOUR, hour), days[0], shown(_MONTH, month), days[1]]
    _can_fire(days[0], months)
    start, end = _bounds(year, zone, start, end, now)
    schedule: dict[str, Any] = {"type": "CRON", "cron": " ".join(fields), "time_zone": zone}
    if start is not None:
        schedule["start_at"] = _text(start)
    if end is not None:
        schedule["end_at"] = _text(end)
    if fields[1].startswith("*"):
        if zone.upper() not in ("UTC", "ETC/UTC", "GMT"):
            differences.append(
                Difference(
                    about="dst",
                    detail="hours with `*` run at every real tick here, in a repeated hour, too",
                )
            )
    else:
        # What Scheduler does: nothing at a time that does not exist, once at one that is there twice.
        schedule["dst"] = {"gap": "SKIP", "overlap": "FIRST"}
    return schedule


# --- days --------------------------------------------------------------------------------
def _days(text: str, months: frozenset[int]) -> str:
    if "w" in text:
        raise CannotSay(f"day of month: `{text}`: the nearest weekday (W) cannot be said{_INSTEAD}")
    if "l" in text:
        return _last_day(text, months)
    return shown(_DAY, text)


def _last_day(text: str, months: frozenset[int]) -> str:
    """`L` can be said where all the months have the same last day, every year."""
    if text != "l":
        raise CannotSay(f"day of month: `{text}`: L in a list, or with an offset, cannot be said{_INSTEAD}")
    lengths = {_LENGTHS[month] for month in months}
    if len(lengths) > 1 or 2 in months:
        raise CannotSay(
            "day of month: the last day (L) of months of different length cannot be said in one job"
            "; make one for the months with 31 days and one for those with 30"
        )
    return str(lengths.pop())


def _weekdays(text: str, differences: list[Difference]) -> tuple[str, str]:
    """Day of month and day of week."""
    if "w" in text.replace("wed", ""):
        raise CannotSay(f"day of week: `{text}`: W belongs to the day of month")
    if "#" in text:
        return _nth_weekday(text)
    if text == "l":
        differences.append(
            Difference(about="day", detail="L as day of week is read as the week's last, Saturday")
        )
        text = "7"
    if re.search(r"(?<![a-z])l|[1-7]l|(?:sun|mon|tue|wed|thu|fri|sat)l", text):
        raise CannotSay(f"day of week: `{text}`: the last such day of a month (L) cannot be said{_INSTEAD}")
    found = numbers(_WEEKDAY, text)
    # 1 to 7 from Sunday on become 0 to 6: the trap of every import by hand.
    return "*", "*" if found == _EVERY_WEEKDAY else written(frozenset(n - 1 for n in found))


def _nth_weekday(text: str) -> tuple[str, str]:
    """`n#k`, the k-th such weekday of a month. Unix can say it of Sundays only: a day-of-week text
    that begins with `*` makes both day fields count, and `*/7` is Sunday."""
    weekday, _, nth = text.partition("#")
    found = numbers(_WEEKDAY, weekday)
    if not re.fullmatch(r"[1-5]", nth) or len(found) != 1:
        raise CannotSay(f"day of week: `{text}` is not of the form day#1 to day#5")
    if found != {1}:
        raise CannotSay(f"day of week: `{text}`: the k-th weekday of a month cannot be said{_INSTEAD}")
    first = 7 * (int(nth) - 1) + 1
    return f"{first}-{min(first + 6, 31)}", "*/7"


def _can_fire(days: str, months: frozenset[int]) -> None:
    longest = max(_LENGTHS[month] for month in months)
    if min(numbers(_DAY, days)) > longest:
        raise CannotSay("none of its months has such a day; it never runs")


# --- years -------------------------------------------------------------------------------
def _bounds(
    text: str, zone: str, start: datetime | None, end: datetime | None, now: datetime
) -> tuple[datetime | None, datetime | None]:
    """Years become a beginning and an end, in the schedule's zone."""
    years = numbers(_YEAR, text)
    tz = _zone(zone)
    if years == _EVERY_YEAR:
        return start, end
    years = frozenset(year for year in years if year >= now.astimezone(tz).year)
    if not years:
        raise CannotSay("it is over: all its years are past")
    first, last = min(years), max(years)
    if len(years) != last - first + 1:
        raise CannotSay(
            "years with holes between them need a job for each; make one per year, with start and end"
        )
    begins = datetime(first, 1, 1, tzinfo=tz).astimezone(UTC)
    start = begins if start is None else max(start, begins)
    if last < _YEAR.high:
        ends = datetime(last + 1, 1, 1, tzinfo=tz).astimezone(UTC)
        end = ends if end is None else min(end, ends)
    return start, end


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CannotSay(
            f"{name!r} is not a time zone that this machine knows (`pip install tzdata`?)"
        ) from None


def _text(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
