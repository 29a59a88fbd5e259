"""Pauses while the control plane is away."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cells.metering.meter import FIRST_PAUSE, LONGEST_PAUSE, pause_seconds


def test_pauses_double_up_to_the_longest() -> None:
    assert [pause_seconds(n, 0.0) for n in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 4.0]
    assert pause_seconds(50, 0.0) == LONGEST_PAUSE / 2


@given(failures=st.integers(1, 10**9), rand=st.floats(0, 1, exclude_max=True))
def test_pauses_are_jittered_inside_their_bounds(failures: int, rand: float) -> None:
    assert FIRST_PAUSE / 2 <= pause_seconds(failures, rand) <= LONGEST_PAUSE
