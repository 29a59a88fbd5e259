"""The breaker's table, and what a run of calls does to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.domain.breaker import (
    FIRST_WAIT_MS,
    LONGEST_WAIT_MS,
    MIN_CALLS,
    TRANSITIONS,
    WINDOW_SECONDS,
    Breaker,
    BreakerState,
    ended,
    look,
    wait_ms,
)

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
NOW = 1_790_596_830_000


def calls(breaker: Breaker, n: int, bad: int, now_ms: int = NOW) -> Breaker:
    return ended(breaker, calls=n, failures=bad, probes=0, failed_probes=0, now_ms=now_ms)


def probe(breaker: Breaker, *, ok: bool, now_ms: int) -> Breaker:
    return ended(breaker, calls=1, failures=int(not ok), probes=1, failed_probes=int(not ok), now_ms=now_ms)


def test_the_table_names_every_way_and_no_other() -> None:
    events = ("failing", "waited", "failed", "succeeded")
    assert {(state, event) for state in BreakerState for event in events} - TRANSITIONS.keys() == {
        (CLOSED, "waited"), (CLOSED, "failed"), (CLOSED, "succeeded"),
        (OPEN, "failing"), (OPEN, "failed"), (OPEN, "succeeded"),
        (HALF_OPEN, "failing"), (HALF_OPEN, "waited"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("n", "bad", "state"),
    [(MIN_CALLS, 10, OPEN), (MIN_CALLS, 9, CLOSED), (MIN_CALLS - 1, 19, CLOSED), (1000, 499, CLOSED)],
)
def test_it_opens_at_half_of_twenty(n: int, bad: int, state: BreakerState) -> None:
    assert calls(Breaker(), n, bad).state is state


def test_failures_count_for_ten_seconds() -> None:
    breaker = calls(Breaker(), 19, 19)
    assert calls(breaker, 1, 1, NOW + (WINDOW_SECONDS - 1) * 1000).state is OPEN
    assert calls(breaker, 1, 1, NOW + WINDOW_SECONDS * 1000).state is CLOSED


def test_it_probes_when_it_has_waited_and_closes_on_success() -> None:
    breaker = calls(Breaker(), 20, 20)
    assert look(breaker, now_ms=NOW + FIRST_WAIT_MS - 1).state is OPEN
    half = look(breaker, now_ms=NOW + FIRST_WAIT_MS)
    assert half.state is HALF_OPEN
    assert probe(half, ok=True, now_ms=NOW + 6000) == Breaker()


def test_a_failed_probe_opens_it_for_twice_as_long() -> None:
    breaker, now, waits = calls(Breaker(), 20, 20), NOW, []
    for _ in range(6):
        waits.append(breaker.until_ms - now)
        now = breaker.until_ms
        breaker = probe(breaker, ok=False, now_ms=now)
    assert waits == [5000, 10_000, 20_000, 40_000, 60_000, 60_000]
    assert wait_ms(10**6) == LONGEST_WAIT_MS


def test_calls_that_began_before_it_broke_decide_nothing() -> None:
    breaker = calls(Breaker(), 20, 20)
    assert calls(breaker, 50, 0) == breaker
    half = look(breaker, now_ms=breaker.until_ms)
    assert calls(half, 50, 50, breaker.until_ms) == half
    assert calls(half, 50, 0, breaker.until_ms) == half


steps = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(0, 30), st.integers(0, 30), st.integers(0, 3)), max_size=80
)


@given(steps)
def test_it_opens_exactly_when_the_window_says_so(steps: list[tuple[int, int, int, int]]) -> None:
    breaker, now = Breaker(), NOW
    counted: list[tuple[int, int, int]] = []
    for pause, n, bad, probes in steps:
        now += pause
        bad, before = min(bad, n), look(breaker, now_ms=now)
        breaker = ended(
            breaker, calls=n, failures=bad, probes=min(probes, n), failed_probes=min(probes, bad), now_ms=now
        )
        if before.state is CLOSED:
            counted.append((now // 1000, n, bad))
            window = [c for c in counted if c[0] > now // 1000 - WINDOW_SECONDS]
            total, failed = sum(c[1] for c in window), sum(c[2] for c in window)
            failing = total >= MIN_CALLS and 2 * failed >= total and bad > 0
            assert (breaker.state is OPEN) == failing
        if breaker.state is not CLOSED or before.state is not CLOSED:
            counted = []
