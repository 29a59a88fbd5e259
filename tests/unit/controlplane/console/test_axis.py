"""The geometry of the time axis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.console.axis import NOW_AT, SCALES, Bar, Due, build, scale_for

NOW = datetime(2026, 11, 30, 9, 7, 13, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def _bar(start: float, end: float | None, *, waited: float = 0) -> Bar:
    scheduled = NOW + timedelta(seconds=start)
    return Bar(
        scheduled=scheduled,
        started=scheduled + timedelta(seconds=waited),
        ended=None if end is None else NOW + timedelta(seconds=end),
        state="SUCCEEDED",
        title="a run",
    )


def test_now_stands_where_it_always_stands() -> None:
    for scale in SCALES:
        axis = build(now=NOW, scale=scale, zone=BERLIN)
        assert axis.now_x == pytest.approx(NOW_AT * 100)
        assert axis.end - axis.start == SCALES[scale]


def test_labels_are_round_numbers_on_the_viewers_clock() -> None:
    axis = build(now=NOW, scale="1h", zone=ZoneInfo("Asia/Kolkata"))
    assert [tick.label for tick in axis.ticks] == ["14:20", "14:30", "14:40", "14:50", "15:00", "15:10"]


def test_a_new_day_is_named() -> None:
    axis = build(now=NOW + timedelta(hours=8), scale="24h", zone=BERLIN)
    assert [tick.day for tick in axis.ticks if tick.day] == ["Tue 1 Dec"]


def test_what_lies_outside_is_left_out() -> None:
    due = [Due(at=NOW + timedelta(minutes=m), title=str(m)) for m in (-60, -1, 10, 35, 37)]
    axis = build(now=NOW, scale="1h", zone=BERLIN, due=due, bars=[_bar(-7200, -7000), _bar(-60, -50)])
    assert [item.title for item in axis.due] == ["-1", "10", "35"]
    assert len(axis.bars) == 1


def test_a_run_under_way_reaches_to_now() -> None:
    (bar,) = build(now=NOW, scale="1h", zone=BERLIN, bars=[_bar(-600, None, waited=300)]).bars
    assert bar.x == pytest.approx(40 - 600 / 36, abs=0.01)
    assert bar.wait == pytest.approx(300 / 36, abs=0.01)
    assert bar.run_x + bar.width == pytest.approx(40, abs=0.01)


def test_runs_at_the_same_time_lie_in_lanes() -> None:
    bars = build(
        now=NOW, scale="1h", zone=BERLIN, bars=[_bar(-100, -50), _bar(-90, -40), _bar(-30, -20)]
    ).bars
    assert [bar.lane for bar in bars] == [0, 1, 0]


@given(
    scale=st.sampled_from(list(SCALES)),
    runs=st.lists(st.tuples(st.floats(-3e6, 3e6), st.none() | st.floats(0, 1e6), st.floats(0, 1e5))),
)
def test_nothing_is_drawn_outside(scale: str, runs: list[tuple[float, float | None, float]]) -> None:
    bars = [_bar(s, None if length is None else s + length, waited=waited) for s, length, waited in runs]
    for bar in build(now=NOW, scale=scale, zone=BERLIN, bars=bars).bars:
        assert 0 <= bar.x <= bar.run_x <= 100
        assert bar.width > 0
        assert bar.run_x + bar.width <= 100.001
        assert 0 <= bar.lane < 4


def test_the_scale_shows_what_comes_next() -> None:
    def after(*minutes: float) -> str:
        return scale_for([NOW + timedelta(minutes=m) for m in minutes], NOW)

    assert after() == "1h"
    assert after(1, 2, 3, 4000) == "10m"
    assert after(20, 30) == "1h"
    assert after(60, 120, 180) == "6h"
    assert after(99_999_999) == "30d"
    assert after(-5) == "1h"
