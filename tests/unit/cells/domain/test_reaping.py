"""When silence means death: the reaper's policy against any course of events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cells.domain.reaping import (
    LONGEST_HOLD_SECONDS,
    RECOVERY_RATE,
    UNUSUAL_COUNT,
    UNUSUAL_SHARE,
    Look,
    Mode,
    ReapPolicy,
    Verdict,
)


def look(at: float, *, live: int = 0, expired: int = 0, age: float | None = None) -> Look:
    return Look(at=at, live=live, expired=expired, interval=10.0, contact_age=age)


def step(policy: ReapPolicy, seen: Look) -> Verdict:
    verdict = policy.decide(seen)
    policy.took(seen.at, verdict.take)
    return verdict


def test_single_deaths_are_taken_at_once() -> None:
    policy = ReapPolicy()
    assert step(policy, look(1, live=500, expired=19)).take == 19
    assert step(policy, look(100, live=5, expired=19)).take == 19  # few, though they are most


def test_many_together_are_held_and_come_back_by_themselves() -> None:
    policy = ReapPolicy()
    held = step(policy, look(1, live=100, expired=20))
    assert (held.take, held.mode, held.changed) == (0, Mode.HOLDING, True)
    assert step(policy, look(5, live=100, expired=15, age=0.5)).take == 0
    flowing = step(policy, look(6, live=120, expired=0, age=0.5))
    assert (flowing.mode, flowing.changed) == (Mode.FLOWING, True)


def test_a_trickle_within_a_minute_adds_up() -> None:
    policy = ReapPolicy()
    assert [step(policy, look(n, live=100, expired=5)).take for n in range(1, 4)] == [5, 5, 5]
    assert step(policy, look(4, live=100, expired=5)).mode is Mode.HOLDING
    fresh = ReapPolicy()
    assert step(fresh, look(0, live=100, expired=15)).take == 15
    assert step(fresh, look(61, live=100, expired=15)).take == 15


def test_two_intervals_of_heartbeats_end_the_hold() -> None:
    policy = ReapPolicy()
    step(policy, look(0, live=10, expired=500))
    assert step(policy, look(30, live=10, expired=500, age=29.0)).mode is Mode.HOLDING  # from before it
    assert step(policy, look(31, live=10, expired=500, age=1.0)).mode is Mode.HOLDING
    assert step(policy, look(50, live=10, expired=500, age=1.0)).mode is Mode.HOLDING
    over = step(policy, look(51, live=10, expired=500, age=1.0))
    assert over.mode is Mode.RECOVERING
    assert 0 < over.take <= RECOVERY_RATE + 1


def test_an_interrupted_flow_begins_anew() -> None:
    policy = ReapPolicy()
    step(policy, look(0, live=10, expired=500))
    step(policy, look(10, live=10, expired=500, age=1.0))
    step(policy, look(25, live=10, expired=500, age=16.0))
    assert step(policy, look(31, live=10, expired=500, age=1.0)).mode is Mode.HOLDING
    assert step(policy, look(51, live=10, expired=500, age=1.0)).mode is Mode.RECOVERING


def test_what_is_really_dead_is_taken_after_ten_minutes() -> None:
    policy = ReapPolicy()
    step(policy, look(0, expired=50))
    assert step(policy, look(LONGEST_HOLD_SECONDS - 1, expired=50)).take == 0
    taken = step(policy, look(LONGEST_HOLD_SECONDS, expired=50)).take
    left = 50 - taken
    at = LONGEST_HOLD_SECONDS
    while left:
        at += 1
        left -= step(policy, look(at, expired=left)).take
    assert step(policy, look(at + 1)).mode is Mode.FLOWING


@given(
    st.lists(
        st.tuples(
            st.floats(0.05, 120),
            st.integers(0, 300),
            st.integers(0, 300),
            st.none() | st.floats(0, 1000),
        ),
        max_size=30,
    )
)
def test_any_course(events: list[tuple[float, int, int, float | None]]) -> None:
    policy = ReapPolicy()
    at = 0.0
    held_since: float | None = None
    minute: list[tuple[float, int]] = []
    for passed, live, expired, age in events:
        at += passed
        before = policy.mode
        verdict = step(policy, look(at, live=live, expired=expired, age=age))
        assert 0 <= verdict.take <= expired
        assert verdict.changed is (verdict.mode is not before)
        if verdict.mode is Mode.HOLDING:
            assert verdict.take == 0
            held_since = at if held_since is None else held_since
            assert at - held_since < LONGEST_HOLD_SECONDS
        else:
            held_since = None
        if verdict.mode is Mode.RECOVERING:
            assert verdict.take <= RECOVERY_RATE + RECOVERY_RATE * min(passed, 1.0) + 1
        if verdict.mode is Mode.FLOWING and before is Mode.FLOWING:
            minute = [(when, count) for when, count in minute if when > at - 60] + [(at, verdict.take)]
            together = sum(count for _, count in minute)
            usual = together < UNUSUAL_COUNT or together <= UNUSUAL_SHARE * (live + together)
            assert usual or verdict.take == 0
        else:
            minute = []
