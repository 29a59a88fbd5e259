"""Limits grow slowly, fall fast, and are divided without a remainder."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.domain.aimd import HALVING_MS, Limit, Seen, adjust, overloaded, shares

seen = st.builds(Seen, good=st.integers(0, 500), overloaded=st.integers(0, 500), bottleneck=st.booleans())
looks = st.lists(st.tuples(st.integers(0, 1500), seen), max_size=60)


@given(first=st.floats(0.5, 1e5), most=st.integers(1, 100_000), looks=looks)
def test_it_stays_between_one_and_the_most(first: float, most: int, looks: list[tuple[int, Seen]]) -> None:
    limit, now = Limit(allowed=first), 10_000
    for pause, what in looks:
        now += pause
        limit = adjust(limit, what, most=most, now_ms=now)
        assert 1 <= limit.allowed <= most


@given(first=st.floats(1, 1e5), looks=looks)
def test_it_is_halved_at_most_once_a_second(first: float, looks: list[tuple[int, Seen]]) -> None:
    limit, now, halvings = Limit(allowed=first), 10_000, []
    for pause, what in looks:
        now += pause
        before = limit.allowed
        limit = adjust(limit, what, most=100_000, now_ms=now)
        assert limit.allowed >= max(1.0, before / 2)
        if limit.allowed < before:
            assert overloaded(what)
            halvings.append(now)
    assert all(later - earlier >= HALVING_MS for earlier, later in itertools.pairwise(halvings))


@given(first=st.integers(1, 1000), good=st.integers(1, 1000))
def test_it_grows_by_one_for_a_limits_worth_of_calls(first: int, good: int) -> None:
    """As if each call had been looked at alone, and in one look as in many."""
    limit = adjust(Limit(allowed=first), Seen(good=good, bottleneck=True), most=10_000, now_ms=0)
    alone = float(first)
    for _ in range(good):
        alone += 1 / alone
    assert limit.allowed == pytest.approx(alone, abs=1 + good / first / 100)
    assert adjust(Limit(allowed=first), Seen(good=first, bottleneck=True), most=10_000, now_ms=0).allowed <= (
        first + 1
    )


def test_what_does_not_hold_calls_back_does_not_grow() -> None:
    limit = adjust(Limit(allowed=8), Seen(good=100), most=100, now_ms=0)
    assert limit.allowed == 8


def test_a_lone_slow_call_among_many_is_no_overload() -> None:
    assert not overloaded(Seen(good=99, overloaded=1))
    assert overloaded(Seen(good=9, overloaded=1))
    assert overloaded(Seen(overloaded=1))


demands = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 300), min_size=1)


@given(limit=st.integers(-3, 500), demands=demands)
def test_shares_are_all_of_the_limit_and_fair(limit: int, demands: dict[str, int]) -> None:
    out = shares(limit, demands)
    assert sum(out.values()) == max(0, limit)
    assert min(out.values()) >= 0
    for name, share in out.items():
        # Nobody goes short while another has more than that and than it wants.
        if share < demands[name]:
            assert all(other <= max(share + 1, 0) for other in out.values())
