"""EventBridge's `cron()` as a job's schedule, in the dialect of that name. Pure.

Six fields: minute hour day-of-month month day-of-week year. What the dialect can say goes as it was
written; only steps longer than their field are shortened to it, which says the same. What EventBridge
does not document (lists with L, `LW`, …) is refused with what could be done instead.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from controlplane.client.importers.fields import MONTHS, WEEKDAYS, Field, numbers, shown
from controlplane.client.importers.plan import CannotSay, Difference

_MINUTE = Field(name="minute", low=0, high=59, open_step=True)
_HOUR = Field(name="hour", low=0, high=23, open_step=True)
_DAY = Field(name="day of month", low=1, high=31, open_step=True)
_MONTH = Field(name="month", low=1, high=12, names=MONTHS, open_step=True)
_WEEKDAY = Field(name="day of week", low=1, high=7, names=WEEKDAYS, open_step=True)
_YEAR = Field(name="year", low=1970, high=2199, open_step=True)

_LENGTHS = {month: 29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31 for month in range(1, 13)}
_INSTEAD = "; schedule a superset of those days and let the target decide"
_ONE_WEEKDAY = r"[1-7]|sun|mon|tue|wed|thu|fri|sat"


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
    days = ("?", _weekdays(weekday, differences)) if day == "?" else (_days(day, months), "?")
    _not_over(year, zone, now)
    fields = [shown(_MINUTE, minute), shown(_HOUR, hour), days[0], shown(_MONTH, month), days[1]]
    schedule: dict[str, Any] = {
        "type": "CRON",
        "cron": " ".join([*fields, shown(_YEAR, year)]),
        "dialect": "EVENTBRIDGE",
        "time_zone": zone,
    }
    if start is not None:
        schedule["start_at"] = _text(start)
    if end is not None:
        schedule["end_at"] = _text(end)
    if hour.startswith("*"):
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
    if text == "l":
        return text
    if nearest := re.fullmatch(r"([0-9]+)w", text):
        _can_fire(nearest[1], months)
        return text
    if "w" in text:
        raise CannotSay(f"day of month: `{text}`: W stands behind one day, as in 15W{_INSTEAD}")
    if "l" in text:
        raise CannotSay(f"day of month: `{text}`: L in a list, or with an offset, cannot be said{_INSTEAD}")
    kept = shown(_DAY, text)
    _can_fire(text, months)
    return kept


def _weekdays(text: str, differences: list[Difference]) -> str:
    if text == "l":
        differences.append(
            Difference(about="day", detail="L as day of week is read as the week's last, Saturday")
        )
        return text
    if re.fullmatch(rf"(?:{_ONE_WEEKDAY})l", text):
        return text
    if "#" in text:
        if not re.fullmatch(rf"(?:{_ONE_WEEKDAY})#[1-5]", text):
            raise CannotSay(f"day of week: `{text}` is not of the form day#1 to day#5")
        return text
    if "w" in text.replace("wed", ""):
        raise CannotSay(f"day of week: `{text}`: W belongs to the day of month")
    return shown(_WEEKDAY, text)


def _can_fire(days: str, months: frozenset[int]) -> None:
    longest = max(_LENGTHS[month] for month in months)
    if min(numbers(_DAY, days)) > longest:
        raise CannotSay("none of its months has such a day; it never runs")


# --- years -------------------------------------------------------------------------------
def _not_over(text: str, zone: str, now: datetime) -> None:
    if max(numbers(_YEAR, text)) < now.astimezone(_zone(zone)).year:
        raise CannotSay("it is over: all its years are past")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CannotSay(
            f"{name!r} is not a time zone that this machine knows (`pip install tzdata`?)"
        ) from None


def _text(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
