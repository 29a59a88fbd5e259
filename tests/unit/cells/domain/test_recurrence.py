"""Recurrences of whole days, against another reading of RFC 5545."""

from __future__ import annotations

import datetime as datetimes
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from dateutil import rrule  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from cells.domain.recurrence import FREQUENCIES, Recurrence, Steps, TooManySteps, days_of

LOW, HIGH = date(2025, 1, 1), date(2041, 12, 31)


@pytest.fixture(scope="module")
def years_end() -> Iterator[None]:
    """The other reader looks for what is not there up to the last year there is: one not far off."""
    with pytest.MonkeyPatch.context() as patch:
        known = vars(datetimes) | {"MAXYEAR": HIGH.year}
        patch.setattr(rrule, "datetime", SimpleNamespace(**known))
        yield


def some(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[list[int]]:
    return st.one_of(st.just([]), st.lists(numbers, min_size=1, max_size=3, unique=True))


def signed(most: int) -> st.SearchStrategy[int]:
    return st.integers(1, most) | st.integers(-most, -1)


@pytest.mark.usefixtures("years_end")
@settings(max_examples=60, deadline=None)
@given(
    frequency=st.sampled_from(FREQUENCIES),
    start=st.dates(date(1990, 1, 1), date(2035, 1, 1)),
    interval=st.integers(1, 5),
    count=st.none() | st.integers(1, 60),
    week_start=st.integers(0, 6),
    months=some(st.integers(1, 12)),
    month_days=some(signed(28)),
    weekdays=some(st.integers(0, 6)),
    which=st.integers(-4, 4),
    positions=some(signed(3)),
)
def test_as_another_reader_has_it(
    frequency: str, start: date, interval: int, count: int | None, week_start: int, months: list[int],
    month_days: list[int], weekdays: list[int], which: int, positions: list[int],
) -> None:  # fmt: skip
    if not (months or month_days or weekdays) or frequency in ("WEEKLY", "DAILY"):
        positions = []  # that reader cuts off a first week, and wants something to count in
    if frequency in ("WEEKLY", "DAILY"):
        which = 0
    limits: dict[str, Any] = {
        "bymonth": months or None,
        "bymonthday": month_days or None,
        "byweekday": [rrule.weekday(n, which or None) for n in weekdays] or None,
        "bysetpos": positions or None,
    }
    theirs = rrule.rrule(
        FREQUENCIES.index(frequency), dtstart=datetime.combine(start, time()), interval=interval, count=count,
        wkst=week_start, **limits,
    )  # fmt: skip
    expected = []
    for at in theirs:
        if at.date() > HIGH:
            break
        if at.date() >= LOW:
            expected.append(at.date())
    rule = Recurrence(
        frequency=frequency,
        start=start,
        interval=interval,
        count=count,
        week_start=week_start,
        months=months,
        month_days=month_days,
        weekdays=[(which, n) for n in weekdays],
        positions=positions,
    )
    assert list(days_of(rule, LOW, HIGH, Steps(1_000_000))) == expected


@pytest.mark.parametrize("number", [1, 20, 53, -1, -52])
@pytest.mark.parametrize("week_start", [0, 6])
def test_weeks_of_the_year(number: int, week_start: int) -> None:
    start = date(2025, 1, 1)
    rule = Recurrence(
        frequency="YEARLY", start=start, week_start=week_start, week_numbers=[number], weekdays=[(0, 2)]
    )
    found = list(days_of(rule, LOW, HIGH, Steps(100_000)))
    assert len(found) >= 2
    for day in found:
        # The middle of the week that begins on that day says whose week it is, and which.
        begin = day - timedelta((day.weekday() - week_start) % 7)
        middle = begin + timedelta(3)
        last = date(middle.year, 12, 31)
        at = (middle - date(middle.year, 1, 1)).days // 7 + 1
        assert number in (at, -((last - middle).days // 7) - 1)


def test_an_old_beginning_costs_nothing_and_steps_are_bounded() -> None:
    steps = Steps(7000)
    found = list(
        days_of(Recurrence(frequency="DAILY", start=date(1, 1, 1)), date(2025, 1, 1), HIGH, Steps(13_000))
    )
    assert (found[0], found[-1], len(found)) == (LOW, HIGH, (HIGH - LOW).days + 1)
    never = Recurrence(frequency="YEARLY", start=date(1, 1, 1), months=[2], month_days=[30])
    assert list(days_of(never, LOW, HIGH, steps)) == []
    counted = Recurrence(frequency="DAILY", start=date(1, 1, 1), months=[2], month_days=[30], count=5)
    with pytest.raises(TooManySteps):
        list(days_of(counted, LOW, HIGH, Steps(500_000)))
    with pytest.raises(ValueError, match="INTERVAL"):
        Recurrence(frequency="YEARLY", start=LOW, interval=0)
