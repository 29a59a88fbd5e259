"""GCRA against a plain count of what was admitted."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from cells.domain.rates import gcra, remaining


def test_a_burst_and_then_one_by_one() -> None:
    tat = 0.0
    for _ in range(5):
        verdict = gcra(tat, 1000, 10, 5)
        assert verdict.allowed
        tat = verdict.tat_ms
    refused = gcra(tat, 1000, 10, 5)
    assert not refused.allowed
    assert refused.tat_ms == tat
    assert refused.wait_ms == 100
    assert not gcra(tat, 1099, 10, 5).allowed
    assert gcra(tat, 1100, 10, 5).allowed


def test_a_rate_of_nothing_admits_nothing() -> None:
    assert gcra(0, 1000, 0, 5) == (False, 0, math.inf)
    assert gcra(0, 1000, 10, 0) == (False, 0, math.inf)
    assert gcra(0, 1000, 10, 5, cost=6) == (False, 0, math.inf)
    assert remaining(0, 1000, 0, 5) == 0


def test_remaining() -> None:
    assert remaining(0, 1000, 10, 5) == 5
    assert remaining(gcra(0, 1000, 10, 5).tat_ms, 1000, 10, 5) == 4
    assert remaining(1_000_000, 1000, 10, 5) == 0


@given(
    rate=st.integers(1, 5000),
    burst=st.integers(1, 100),
    gaps=st.lists(st.integers(0, 2000), min_size=1, max_size=200),
)
def test_never_more_than_burst_plus_rate_in_any_stretch(rate: int, burst: int, gaps: list[int]) -> None:
    tat, now, admitted = 0.0, 1_000_000, []
    for gap in gaps:
        now += gap
        left = remaining(tat, now, rate, burst)
        verdict = gcra(tat, now, rate, burst)
        assert verdict.allowed == (left >= 1)
        if verdict.allowed:
            admitted.append(now)
        else:
            assert gcra(tat, now + math.ceil(verdict.wait_ms), rate, burst).allowed
        tat = verdict.tat_ms
    for i, start in enumerate(admitted):
        for j in range(i, len(admitted)):
            assert j - i + 1 <= burst + (admitted[j] - start) * rate / 1000 + 1e-6
