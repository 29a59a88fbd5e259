"""Reading and writing RFC 3339 times, with and without an offset."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from cells.domain.faults import ScheduleError
from cells.domain.zones import EARLIEST, LATEST

_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.([0-9]{1,9}))?"
    r"(?:([Zz])|([+-])([0-9]{2}):([0-9]{2}))?"
)


def parse_time(text: str, pointer: str) -> datetime:
    """A whole second: aware in UTC if the text has an offset, else naive local wall time."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ScheduleError(
            pointer,
            f"{text[:60]!a} is not a time like 2026-09-28T09:00:00 (local),"
            " 2026-09-28T09:00:00Z or 2026-09-28T09:00:00+02:00",
        )
    day, clock, fraction, zulu, sign, hours, minutes = match.groups()
    try:
        at = datetime.fromisoformat(f"{day}T{clock}")
    except ValueError as error:
        raise ScheduleError(pointer, f"{text} does not exist: {error}") from None
    if fraction and fraction.strip("0"):
        raise ScheduleError(pointer, "only whole seconds may be scheduled")
    if not EARLIEST.year < at.year < LATEST.year:
        raise ScheduleError(pointer, f"the year must lie between {EARLIEST.year + 1} and {LATEST.year - 1}")
    if zulu:
        return at.replace(tzinfo=UTC)
    if sign is None:
        return at
    if int(hours) > 23 or int(minutes) > 59:
        raise ScheduleError(pointer, f"{sign}{hours}:{minutes} is not an offset")
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return at.replace(tzinfo=timezone(-offset if sign == "-" else offset)).astimezone(UTC)


def parse_instant(text: str, pointer: str) -> datetime:
    """An instant: a time with Z or an offset."""
    at = parse_time(text, pointer)
    if at.tzinfo is None:
        raise ScheduleError(pointer, "an instant needs Z or an offset, e.g. 2026-09-28T09:00:00Z")
    return at


def parse_end(text: str, pointer: str) -> datetime:
    """An instant at which something ends. Any instant of the year 9999 stands for never."""
    if text.startswith("9999-") and _TIME.fullmatch(text):
        return LATEST
    return parse_instant(text, pointer)


def format_instant(at: datetime) -> str:
    """`2026-09-28T09:00:00Z`: whole seconds, UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
