"""Times, durations and cuts for people. Pure: now and the zone are passed in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo

_UNITS = ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_STYLES = {
    "SUCCEEDED": "green",
    "SUCCEEDED_AFTER_CANCEL": "green",
    "APPROVED": "green",
    "LIVE": "green",
    "SCHEDULED": "cyan",
    "RUNNING": "cyan",
    "READY": "cyan",
    "RETRY_WAIT": "yellow",
    "PENDING": "yellow",
    "COMPENSATING": "yellow",
    "COMPENSATED": "yellow",
    "COMPENSATION_STUCK": "red",
    "COMPLETED": "green",
    "PAUSED": "yellow",
    "ROTATED": "yellow",
    "FAILED": "red",
    "UNKNOWN": "red",
    "GONE": "red",
    "DISABLED": "red",
    "REVOKED": "red",
}


def relative(at: datetime, now: datetime) -> str:
    """`in 5 min`, `3 h ago`, `now`; the largest unit that fits, rounded down."""
    seconds = (at - now).total_seconds()
    length = abs(seconds)
    for size, unit in _UNITS:
        if length >= size:
            text = f"{int(length // size)} {unit}"
            return f"in {text}" if seconds > 0 else f"{text} ago"
    return "now"


def moment(at: datetime | None, now: datetime, zone: tzinfo | None = None) -> str:
    """Local time with its offset from UTC, and how far away it is; `–` for never."""
    if at is None:
        return "–"
    local = at.astimezone(zone)
    shown = f"{local:%H:%M:%S}" if local.date() == now.astimezone(zone).date() else f"{local:%Y-%m-%d %H:%M}"
    return f"{shown}{offset(local)} ({relative(at, now)})"


def offset(local: datetime) -> str:
    """How far a zone's clock is from UTC at that moment: `+02:00`, and `Z` where it is UTC."""
    minutes = int((local.utcoffset() or timedelta()).total_seconds() // 60)
    if minutes == 0:
        return "Z"
    sign, minutes = "-" if minutes < 0 else "+", abs(minutes)
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}"


def duration(milliseconds: float | None) -> str:
    """`12 ms`, `3.4 s`, `2 min 5 s`; `–` for none."""
    if milliseconds is None:
        return "–"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def style(state: str) -> str:
    """The colour of a state. The word itself is always there, too."""
    return _STYLES.get(state, "")


def schedule_text(schedule: object) -> str:
    """A schedule in one line."""
    if not isinstance(schedule, dict):
        return "–"
    match schedule.get("type"):
        case "CRON":
            return f"{schedule.get('cron')} {schedule.get('time_zone') or ''}".strip()
        case "RATE":
            return f"every {_period(schedule.get('every_seconds'))}"
        case "ONCE":
            return f"once {schedule.get('run_at')} {schedule.get('time_zone') or ''}".strip()
        case other:
            return str(other or "–").lower()


def _period(seconds: object) -> str:
    if not isinstance(seconds, int):
        return str(seconds)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 job`, `3 jobs`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else "nothing"
