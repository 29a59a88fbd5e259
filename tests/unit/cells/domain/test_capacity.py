"""What a target can take, and what it is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.domain.aimd import Limit, Seen
from cells.domain.breaker import BreakerState
from cells.domain.capacity import MAX_PAUSE_MS, Capacity, Observed, Told, after, told_by, usable

NOW = 1_790_596_830_000
FRESH = Capacity(limit=Limit(allowed=10))


def step(capacity: Capacity, what: Observed, now_ms: int = NOW) -> Capacity:
    return after(capacity, what, initial=10, most=100, now_ms=now_ms)


def test_a_pause_stops_all_calls_until_it_ends() -> None:
    paused = step(FRESH, Observed(pause_until_ms=NOW + 2000))
    assert usable(paused, now_ms=NOW) == 0
    assert usable(paused, now_ms=NOW + 2000) == 10


def test_a_later_answer_does_not_shorten_a_pause() -> None:
    paused = step(step(FRESH, Observed(pause_until_ms=NOW + 9000)), Observed(pause_until_ms=NOW + 1000))
    assert paused.paused_until_ms == NOW + 9000


def test_nobody_is_believed_for_ever() -> None:
    paused = step(
        FRESH, Observed(pause_until_ms=NOW + 10**12, told=Told(remaining=0, renews_ms=NOW + 10**12))
    )
    assert usable(paused, now_ms=NOW + MAX_PAUSE_MS - 1) == 0
    assert usable(paused, now_ms=NOW + MAX_PAUSE_MS) == 10


def test_calls_under_way_never_exceed_what_remains() -> None:
    told = step(FRESH, Observed(told=Told(remaining=3, renews_ms=NOW + 5000)))
    assert usable(told, now_ms=NOW) == 3
    assert usable(step(told, Observed(), NOW + 4999), now_ms=NOW + 4999) == 3
    assert usable(step(told, Observed(), NOW + 5000), now_ms=NOW + 5000) == 10


def test_a_recovered_target_begins_at_its_initial_limit() -> None:
    wide = Capacity(limit=Limit(allowed=80))
    broken = step(wide, Observed(calls=20, failures=20))
    assert (broken.breaker.state, usable(broken, now_ms=NOW)) == (BreakerState.OPEN, 0)
    half = step(broken, Observed(), broken.breaker.until_ms)
    assert usable(half, now_ms=broken.breaker.until_ms) == 1
    well = step(half, Observed(seen=Seen(good=1), calls=1, probes=1), broken.breaker.until_ms + 50)
    assert usable(well, now_ms=broken.breaker.until_ms + 50) == 10


@pytest.mark.parametrize(
    ("ratelimit", "policy", "told"),
    [
        ('"burst";r=50;t=30', None, (50, 30_000)),
        ('"burst";r=50;t=30, "daily";r=7;t=90', None, (7, 90_000)),
        ('"a";r=0;t=3,"b";r=0;t=9', None, (0, 9_000)),
        ('"burst";r=5', '"burst";q=100;w=60', (5, 60_000)),
        ('"burst";r=5', None, (5, 1_000)),
        ('"daily";r=0;t=86400', None, (0, MAX_PAUSE_MS)),
        ('"bytes";r=5;t=9', '"bytes";q=1000;qu="content-bytes"', None),
        ('"bytes";r=5;t=9, "n";r=8;t=2', '"bytes";q=1000;qu="content-bytes";w=1', (8, 2_000)),
        ('"p";r=4;t=1;pk=:c2VjcmV0:', None, (4, 1_000)),
        ('"burst"; r=50; t=30', None, (50, 30_000)),
        ("limit=100, remaining=50, reset=30", None, None),
        ('"burst";t=30', None, None),
        ('"burst";r=-1;t=30', None, None),
        ('"burst";r=1.5;t=30', None, None),
        ('"burst";r=5;t=30,', None, None),
        ('"burst;r=5', None, None),
        ('"burst";r=5 "x"', None, None),
        ("", None, None),
        (None, '"burst";q=1', None),
        ('"burst";r=5;t=3', "nonsense", (5, 3_000)),
    ],
)
def test_ratelimit_fields(ratelimit: str | None, policy: str | None, told: tuple[int, int] | None) -> None:
    found = told_by(ratelimit, policy, now_ms=NOW)
    assert (found and (found.remaining, found.renews_ms - NOW)) == told


@given(st.text(max_size=60), st.text(max_size=60))
def test_whatever_is_sent_is_read(ratelimit: str, policy: str) -> None:
    told = told_by(ratelimit, policy, now_ms=NOW)
    assert told is None or (told.remaining >= 0 and NOW <= told.renews_ms <= NOW + MAX_PAUSE_MS)
