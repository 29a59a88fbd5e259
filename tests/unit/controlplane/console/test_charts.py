"""Charts: steps, quantiles and geometry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.console.charts import STEPS, bins, counts_chart, lag_chart, line, rounded_up, success_chart

START = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)


def minute(offset: int, **figures: Any) -> dict[str, Any]:
    at = START + timedelta(minutes=offset)
    usual = dict.fromkeys(("started", "succeeded", "failed", "retried", "cancelled", "skipped"), 0)
    return {"minute": f"{at:%Y-%m-%dT%H:%M:%SZ}", "lag_p50_ms": None, "lag_p99_ms": None, **usual, **figures}


def test_steps_hold_their_minutes_and_nothing_is_lost() -> None:
    minutes = [minute(i, started=1, succeeded=1) for i in range(61)]
    found = bins(minutes, start=START, until=START + timedelta(hours=1), step=timedelta(minutes=5))
    assert [each.succeeded for each in found] == [5] * 12 + [1]
    assert found[0].begin == START
    assert found[1].begin == found[0].end


@pytest.mark.parametrize("step", STEPS.values())
@settings(deadline=None)
@given(offsets=st.lists(st.integers(0, 400), unique=True, max_size=40))
def test_what_lies_within_is_counted_once(step: timedelta, offsets: list[int]) -> None:
    minutes = [minute(i, failed=1) for i in offsets]
    found = bins(minutes, start=START, until=START + timedelta(minutes=400), step=step)
    assert sum(each.failed for each in found) == len(offsets)


def test_lags_of_a_step_are_the_mean_median_and_the_worst_minute() -> None:
    minutes = [
        minute(0, started=1, lag_p50_ms=10.0, lag_p99_ms=20.0),
        minute(1, started=3, lag_p50_ms=30.0, lag_p99_ms=90.0),
        minute(2, skipped=4),
    ]
    (only, _) = bins(minutes, start=START, until=START + timedelta(minutes=5), step=timedelta(minutes=5))
    assert (only.lag_p50_ms, only.lag_p99_ms, only.skipped) == (25.0, 90.0, 4)
    (empty,) = bins([], start=START, until=START, step=timedelta(minutes=5))
    assert (empty.lag_p50_ms, empty.lag_p99_ms, empty.success) == (None, None, None)


def test_columns_reach_at_most_the_top() -> None:
    minutes = [minute(i, succeeded=i, failed=2, cancelled=1) for i in range(60)]
    chart = counts_chart(bins(minutes, start=START, until=START + timedelta(minutes=59), step=STEPS["1h"]))
    assert max(column.good + column.bad + column.other for column in chart.columns) <= 100
    assert chart.top == "100"
    assert all(column.x >= 0 and column.x + column.width <= 100.01 for column in chart.columns)


def test_a_success_rate_near_100_is_drawn_large() -> None:
    near = [minute(0, succeeded=99, failed=1)]
    far = [minute(0, succeeded=1, failed=1)]
    step = timedelta(minutes=5)
    assert success_chart(bins(near, start=START, until=START, step=step)).bottom == "90 %"
    assert success_chart(bins(far, start=START, until=START, step=step)).bottom == "0 %"
    assert lag_chart(bins([], start=START, until=START, step=step)).lines == {"p99": "", "p50": ""}


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (1, 1), (3, 5), (11, 20), (99, 100), (101, 200), (0.4, 1)]
)
def test_scales_end_at_round_numbers(value: float, top: int) -> None:
    assert rounded_up(value) == top


def test_a_line_breaks_where_nothing_is_known() -> None:
    assert line([1.0, 0.5, None, 0.0]) == "M125.0 0.0L375.0 50.0M791.7 100.0H958.3"
    assert line([None, None]) == ""
