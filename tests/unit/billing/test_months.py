"""Months, days and hours are half-open UTC windows that tile time, leap years included."""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.months import DAY, HOUR, days_of, hour_of, month_of, next_month, start_of, window

DAYS = st.dates(min_value=date(1970, 1, 1), max_value=date(2400, 12, 31))
INSTANTS = st.datetimes(
    min_value=datetime(1970, 1, 2), max_value=datetime(2400, 12, 30),  # noqa: DTZ001
    timezones=st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m))),
)  # fmt: skip


@given(DAYS)
def test_a_day_lies_in_exactly_one_month(day: date) -> None:
    month = month_of(day)
    assert month <= day < next_month(month)
    assert days_of(month).count(day) == 1
    assert day not in days_of(next_month(month))


@given(DAYS)
def test_months_tile_time(day: date) -> None:
    month = month_of(day)
    start, end = window(month)
    assert end == window(next_month(month))[0]
    length = calendar.monthrange(month.year, month.month)[1]
    assert end - start == length * DAY
    assert len(days_of(month)) == length
    assert days_of(month)[0] == month


@given(INSTANTS)
def test_hours_tile_days(instant: datetime) -> None:
    hour = hour_of(instant)
    assert hour <= instant < hour + HOUR
    assert (hour.minute, hour.second, hour.microsecond, hour.utcoffset()) == (0, 0, 0, timedelta(0))
    day = instant.astimezone(UTC).date()
    assert start_of(day) <= hour < start_of(day + DAY)
    assert (hour - start_of(day)) % HOUR == timedelta(0)


@pytest.mark.parametrize(
    ("month", "length"),
    [((2024, 2), 29), ((2023, 2), 28), ((2000, 2), 29), ((2100, 2), 28), ((2026, 12), 31)],
)
def test_februaries(month: tuple[int, int], length: int) -> None:
    start, end = window(date(*month, 1))
    assert (end - start).days == length


def test_a_month_is_named_by_its_first_day() -> None:
    with pytest.raises(ValueError, match="2026-03-02 is no month"):
        window(date(2026, 3, 2))
