"""The whole days that an iCalendar file (RFC 5545) speaks of, as holiday calendars come.

Events without a time count with every day from DTSTART to before DTEND; those with times count where
they last from midnight to midnight. Yearly and other recurrences are written out within the years
that a schedule may look ahead. Everything else is a fault that names its event.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import Any

from dateutil.rrule import rrulestr  # type: ignore[import-untyped]
from icalendar import Calendar as IcsFile

from cells.domain.calendars import MAX_DATES, MAX_LABEL

#: Bytes of a file.
MAX_BYTES = 1 << 20
#: Recurrences are written out from so many years before now to so many after.
YEARS_BACK, YEARS_AHEAD = 1, 15
_DAY = timedelta(days=1)
_LONGEST = 366

Fault = tuple[str, str]


def read_ics(text: str, now: datetime) -> tuple[dict[date, str | None], list[Fault]]:
    """The days with what they are called, and what cannot be read."""
    try:
        file = IcsFile.from_ical(text)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        return {}, [("/ics", f"is not an iCalendar file: {str(error)[:120]}")]
    if getattr(file, "name", None) != "VCALENDAR":
        return {}, [("/ics", "is not an iCalendar file: it does not begin with BEGIN:VCALENDAR")]
    days: dict[date, str | None] = {}
    faults: list[Fault] = []
    for number, event in enumerate(file.walk("VEVENT"), 1):
        label = str(event.get("SUMMARY") or "").strip()[:MAX_LABEL] or None
        shown = f"event {number}" + (f" ({label})" if label else "")
        if str(event.get("STATUS") or "").upper() == "CANCELLED":
            continue
        try:
            for day in _days(event, now):
                days.setdefault(day, label)
        except ValueError as error:
            faults.append(("/ics", f"{shown}: {str(error)[:160]}"))
        if len(days) > MAX_DATES:
            faults.append(("/ics", f"{shown}: more than {MAX_DATES} dates"))
            break
    if not days and not faults:
        faults.append(("/ics", "holds no event"))
    return days, faults


def _days(event: Any, now: datetime) -> Iterator[date]:
    if event.get("DTSTART") is None:
        raise ValueError("has no DTSTART")
    start, length = _span(event)
    for first in _starts(event, start, now):
        for n in range(length):
            yield first + n * _DAY


def _span(event: Any) -> tuple[date, int]:
    """The first day, and how many there are."""
    start = event.decoded("DTSTART")
    end = event.decoded("DTEND") if event.get("DTEND") is not None else None
    if end is None and event.get("DURATION") is not None:
        end = start + event.decoded("DURATION")
    if isinstance(start, datetime):
        if start.time() != time() or (end is not None and isinstance(end, datetime) and end.time() != time()):
            raise ValueError("is no whole day; only whole days can be excluded")
        start = start.date()
    if isinstance(end, datetime):
        end = end.date()
    length = 1 if end is None else (end - start).days
    if not 1 <= length <= _LONGEST:
        raise ValueError(f"lasts {length} days; it must be 1 to {_LONGEST}")
    return start, length


def _starts(event: Any, start: date, now: datetime) -> Iterator[date]:
    rule = event.get("RRULE")
    if isinstance(rule, list):
        raise ValueError("has several RRULEs")
    midnight = datetime.combine(start, time())
    low = datetime(now.year - YEARS_BACK, 1, 1)  # noqa: DTZ001 - whole days have no zone
    high = datetime(now.year + YEARS_AHEAD, 12, 31)  # noqa: DTZ001
    left_out = {_as_date(found.dt) for part in _listed(event, "EXDATE") for found in part.dts}
    if rule is None:
        found = [start]
    else:
        text = rule.to_ical().decode()
        if any(word in text.upper() for word in ("SECONDLY", "MINUTELY", "HOURLY")):
            raise ValueError("recurs within a day; only whole days can be excluded")
        parts = [part for part in text.split(";") if not part.upper().startswith("UNTIL=")]
        until = rule.get("UNTIL")
        if until:
            end = datetime.combine(_as_date(until[0]), time())
            high = min(high, end)
        found = []
        for at in rrulestr(";".join(parts), dtstart=midnight):
            if at > high or len(found) > MAX_DATES:
                break
            if at >= low:
                found.append(at.date())
    found += [_as_date(one.dt) for part in _listed(event, "RDATE") for one in part.dts]
    yield from (day for day in found if day not in left_out)


def _listed(event: Any, name: str) -> list[Any]:
    value = event.get(name)
    return [] if value is None else value if isinstance(value, list) else [value]


def _as_date(value: Any) -> date:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    raise ValueError("has a date that is none")
