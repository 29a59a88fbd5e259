"""The breaker of a target: stops calling one that fails, and finds out when it works again.

```
CLOSED ──failing──▶ OPEN ──waited──▶ HALF_OPEN ──succeeded──▶ CLOSED
                      ▲                  │
                      └──────failed──────┘
```
*Failing*: at least half of at least 20 calls that ended in the last ten seconds failed. While it is
OPEN nothing is called; HALF_OPEN lets one call at a time through, and its outcome decides. Each
opening in a row waits twice as long as the one before. Time is passed in, epoch milliseconds.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

WINDOW_SECONDS = 10
MIN_CALLS = 20
FAILING_SHARE = 0.5
FIRST_WAIT_MS = 5_000
LONGEST_WAIT_MS = 60_000


class BreakerState(enum.StrEnum):
    """Whether a target is called."""

    CLOSED = "CLOSED"  # as its limit allows
    OPEN = "OPEN"  # not at all
    HALF_OPEN = "HALF_OPEN"  # one call at a time, to see


#: (state, what happened) -> state.
TRANSITIONS: dict[tuple[BreakerState, str], BreakerState] = {
    (BreakerState.CLOSED, "failing"): BreakerState.OPEN,
    (BreakerState.OPEN, "waited"): BreakerState.HALF_OPEN,
    (BreakerState.HALF_OPEN, "failed"): BreakerState.OPEN,
    (BreakerState.HALF_OPEN, "succeeded"): BreakerState.CLOSED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Breaker:
    """One target's breaker. `seconds` are (second, calls, failures), of the window only."""

    state: BreakerState = BreakerState.CLOSED
    until_ms: int = 0  # OPEN: when a probe may be made
    openings: int = 0  # in a row, without a success between
    seconds: tuple[tuple[int, int, int], ...] = ()


def wait_ms(openings: int) -> int:
    """How long the opening of that number lasts."""
    return int(min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** min(max(openings, 1) - 1, 10)))


def look(breaker: Breaker, *, now_ms: int) -> Breaker:
    """What time alone changes."""
    if breaker.state is BreakerState.OPEN and now_ms >= breaker.until_ms:
        return _move(breaker, "waited", now_ms)
    return breaker


def ended(
    breaker: Breaker, *, calls: int, failures: int, probes: int, failed_probes: int, now_ms: int
) -> Breaker:
    """After calls have ended. Probes are the calls that began while it was HALF_OPEN; others do not
    decide then, because they began before it broke."""
    breaker = look(breaker, now_ms=now_ms)
    if breaker.state is BreakerState.HALF_OPEN:
        if probes > failed_probes:
            return _move(breaker, "succeeded", now_ms)
        return _move(breaker, "failed", now_ms) if failed_probes else breaker
    if breaker.state is not BreakerState.CLOSED:
        return breaker
    seconds = _counted(breaker.seconds, now_ms // 1000, calls, failures)
    breaker = replace(breaker, seconds=seconds)
    all_calls = sum(n for _, n, _ in seconds)
    if all_calls >= MIN_CALLS and sum(n for *_, n in seconds) >= FAILING_SHARE * all_calls and failures:
        return _move(breaker, "failing", now_ms)
    return breaker


def _counted(
    seconds: tuple[tuple[int, int, int], ...], second: int, calls: int, failures: int
) -> tuple[tuple[int, int, int], ...]:
    kept = [s for s in seconds if second - WINDOW_SECONDS < s[0] <= second]
    if calls:
        if kept and kept[-1][0] == second:
            at, n, bad = kept.pop()
            kept.append((at, n + calls, bad + failures))
        else:
            kept.append((second, calls, failures))
    return tuple(kept)


def _move(breaker: Breaker, what: str, now_ms: int) -> Breaker:
    state = TRANSITIONS[breaker.state, what]
    match state:
        case BreakerState.OPEN:
            openings = breaker.openings + 1
            return Breaker(state=state, until_ms=now_ms + wait_ms(openings), openings=openings)
        case BreakerState.HALF_OPEN:
            return Breaker(state=state, openings=breaker.openings)
        case BreakerState.CLOSED:
            return Breaker()
