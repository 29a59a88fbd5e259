"""The herd map: each occurrence in its minute, whatever the zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.console.herd import HOURS, Herd, herd, level

NOW = datetime(2026, 11, 30, 6, 41, 30, tzinfo=UTC)


def counted(*found: tuple[int, int]) -> list[dict[str, Any]]:
    """Minutes from now, and how many."""
    base = NOW.replace(second=0)
    return [
        {"minute": f"{base + timedelta(minutes=m):%Y-%m-%dT%H:%M:%SZ}", "count": count} for m, count in found
    ]


def drawn(*found: tuple[int, int], zone: str = "UTC") -> Herd:
    return herd(counted(*found), now=NOW, zone=ZoneInfo(zone))


def test_a_row_is_an_hour_and_a_column_a_minute() -> None:
    shown = drawn((0, 3), (19, 100), (79, 2), (80, 0))
    assert [(m.row, m.x, m.count) for m in shown.minutes] == [(0, 68.333, 3), (1, 0.0, 100), (2, 0.0, 2)]
    assert [row.label for row in shown.rows][:3] == ["06:00", "07:00", "08:00"]
    assert len(shown.rows) == HOURS
    assert (shown.total, shown.most, shown.busiest[0].count) == (105, 100, 100)
    assert shown.minutes[1].at == datetime(2026, 11, 30, 7, 0, tzinfo=UTC)


def test_hours_are_those_of_the_clock_there() -> None:
    shown = drawn((19, 1), zone="Asia/Kolkata")
    assert shown.rows[0].label == "12:00"
    assert (shown.minutes[0].row, shown.minutes[0].x) == (0, 50.0)


def test_what_is_not_of_the_coming_day_is_left_out() -> None:
    assert drawn((-120, 5), (26 * 60, 5)).minutes == ()
    assert drawn().scale == ()


@pytest.mark.parametrize(
    ("count", "low", "most", "expected"),
    [(1, 1, 1, 1), (1, 1, 9999, 1), (9999, 1, 9999, 5), (0, 1, 0, 1), (24, 24, 33, 1), (33, 24, 33, 5)],
)
def test_levels(count: int, low: int, most: int, expected: int) -> None:
    assert level(count, low, most) == expected


def test_a_day_that_is_even_is_pale_and_what_stands_out_does() -> None:
    even = [(minute, 24) for minute in range(1440)]
    assert {minute.level for minute in drawn(*even).minutes} == {1}
    shown = drawn(*even[:100], (100, 60), *even[101:])
    assert [minute.level for minute in shown.minutes if minute.level > 1] == [5]


@given(low=st.integers(1, 1000), above=st.integers(0, 10**6), part=st.floats(0, 1))
def test_levels_grow_with_counts(low: int, above: int, part: float) -> None:
    most = low + above
    count = low + int(above * part)
    assert 1 <= level(count, low, most) <= level(most, low, most) <= 5


@given(most=st.integers(1, 10**6))
def test_the_scale_says_where_levels_begin(most: int) -> None:
    for step, fewest in drawn((1, most)).scale:
        assert level(fewest, 1, most) == step
