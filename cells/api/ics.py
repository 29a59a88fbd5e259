"""The whole days that an iCalendar file (RFC 5545) speaks of, as holiday calendars come.

Events without a time count with every day from DTSTART to before DTEND; those with times count where
they last from midnight to midnight. Yearly and other recurrences are written out within the years
that a schedule may look ahead. Everything else is a fault that names its event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import Any

from icalendar import Calendar as IcsFile

from cells.domain.calendars import MAX_DATES, MAX_LABEL
from cells.domain.recurrence import Recurrence, Steps, TooManySteps, days_of

#: Bytes of a file.
MAX_BYTES = 1 << 20
#: Recurrences are written out from so many years before now to so many after.
YEARS_BACK, YEARS_AHEAD = 1, 15
#: Days looked at for one file: below a second.
MAX_STEPS = 500_000
_DAY = timedelta(days=1)
_LONGEST = 366
_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_WEEKDAY = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_WITHIN_A_DAY = frozenset({"BYHOUR", "BYMINUTE", "BYSECOND"})
_PARTS = _WITHIN_A_DAY | {
    *("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYMONTH", "BYWEEKNO"),
    *("BYYEARDAY", "BYMONTHDAY", "BYDAY", "BYSETPOS"),
}

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
    steps = Steps(MAX_STEPS)
    for number, event in enumerate(file.walk("VEVENT"), 1):
        label = str(event.get("SUMMARY") or "").strip()[:MAX_LABEL] or None
        shown = f"event {number}" + (f" ({label})" if label else "")
        if str(event.get("STATUS") or "").upper() == "CANCELLED":
            continue
        try:
            for day in _days(event, now, steps):
                days.setdefault(day, label)
        except TooManySteps as error:
            faults.append(("/ics", f"{shown}: {error}"))
            break
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            # The reader leaves some of what it cannot read as other types, and dates end with year 9999.
            faults.append(("/ics", f"{shown}: {str(error)[:160]}"))
        if len(days) > MAX_DATES:
            faults.append(("/ics", f"{shown}: more than {MAX_DATES} dates"))
            break
    if not days and not faults:
        faults.append(("/ics", "holds no event"))
    return days, faults


def _days(event: Any, now: datetime, steps: Steps) -> Iterator[date]:
    start, length = _span(event)
    for first in _starts(event, start, now, steps):
        steps.spend(length)
        for n in range(length):
            yield first + n * _DAY


def _span(event: Any) -> tuple[date, int]:
    """The first day, and how many there are."""
    if event.get("DTSTART") is None:
        raise ValueError("has no DTSTART")
    for name in ("DTSTART", "DTEND", "DURATION"):
        if isinstance(event.get(name), list):
            raise ValueError(f"has several {name}")
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


def _starts(event: Any, start: date, now: datetime, steps: Steps) -> Iterator[date]:
    rule = event.get("RRULE")
    if isinstance(rule, list):
        raise ValueError("has several RRULEs")
    left_out = {_as_date(found.dt) for part in _listed(event, "EXDATE") for found in part.dts}
    low, high = date(now.year - YEARS_BACK, 1, 1), date(now.year + YEARS_AHEAD, 12, 31)
    found = iter((start,)) if rule is None else days_of(_recurrence(rule, start), low, high, steps)
    yield from (day for day in found if day not in left_out)
    more = (_as_date(one.dt) for part in _listed(event, "RDATE") for one in part.dts)
    yield from (day for day in more if day not in left_out)


def _recurrence(rule: Any, start: date) -> Recurrence:
    unknown = sorted(str(name) for name in rule if str(name).upper() not in _PARTS)
    if unknown:
        raise ValueError(f"recurs by {', '.join(unknown)}, which is not known here")
    if any(int(n) != 0 for name in _WITHIN_A_DAY for n in _values(rule, name)):
        raise ValueError("recurs within a day; only whole days can be excluded")
    until = _one(rule, "UNTIL", None)
    count = _one(rule, "COUNT", None)
    return Recurrence(
        frequency=str(_one(rule, "FREQ", "")).upper(),
        start=start,
        interval=int(_one(rule, "INTERVAL", 1)),
        count=None if count is None else int(count),
        until=None if until is None else _as_date(until),
        week_start=_WEEKDAYS.index(str(_one(rule, "WKST", "MO")).upper()),
        months=_numbers(rule, "BYMONTH", 12),
        week_numbers=_numbers(rule, "BYWEEKNO", 53, signed=True),
        year_days=_numbers(rule, "BYYEARDAY", 366, signed=True),
        month_days=_numbers(rule, "BYMONTHDAY", 31, signed=True),
        weekdays=[_weekday(str(text)) for text in _values(rule, "BYDAY")],
        positions=_numbers(rule, "BYSETPOS", 366, signed=True),
    )


def _values(rule: Any, name: str) -> list[Any]:
    value = rule.get(name)
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def _one(rule: Any, name: str, default: Any) -> Any:
    values = _values(rule, name)
    if len(values) > 1:
        raise ValueError(f"recurs with several {name}")
    return values[0] if values else default


def _numbers(rule: Any, name: str, most: int, *, signed: bool = False) -> list[int]:
    numbers = [int(value) for value in _values(rule, name)]
    if not all(1 <= (abs(n) if signed else n) <= most for n in numbers):
        raise ValueError(f"recurs with a {name} that there is not")
    return numbers


def _weekday(text: str) -> tuple[int, int]:
    match = _WEEKDAY.fullmatch(text.upper())
    if match is None:
        raise ValueError("recurs with a BYDAY that there is not")
    return int(match[1] or 0), _WEEKDAYS.index(match[2])


def _listed(event: Any, name: str) -> list[Any]:
    value = event.get(name)
    return [] if value is None else value if isinstance(value, list) else [value]


def _as_date(value: Any) -> date:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    raise ValueError("has a date that is none")
