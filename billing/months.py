"""UTC months, days and hours as half-open windows. Pure; a month is named by its first day."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def month_of(day: date) -> date:
    """The month a day lies in."""
    return day.replace(day=1)


def next_month(month: date) -> date:
    """The month after one. Raises `ValueError` for what is no month."""
    check_month(month)
    return (month + 31 * DAY).replace(day=1)


def check_month(month: date) -> None:
    """Raises `ValueError` unless it is the first day of a month."""
    if month.day != 1:
        raise ValueError(f"{month.isoformat()} is no month: a month is named by its first day")


def start_of(day: date) -> datetime:
    """The instant a day begins; of a month, too."""
    return datetime.combine(day, time(), UTC)


def window(month: date) -> tuple[datetime, datetime]:
    """A month's half-open window."""
    return start_of(month), start_of(next_month(month))


def days_of(month: date) -> list[date]:
    """A month's days, in order."""
    end = next_month(month)
    return [month + n * DAY for n in range((end - month).days)]


def hour_of(instant: datetime) -> datetime:
    """The UTC hour an instant lies in."""
    return instant.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
