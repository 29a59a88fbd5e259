"""Rate limits as one number per key: the generic cell rate algorithm (GCRA).

A limit of `rate` per second with a `burst` of b admits b at once and then one every 1/rate
seconds. All that is kept is the theoretical arrival time (TAT): when the key will owe nothing.
The Lua gates in Valkey do the same arithmetic; this is what they are compared with.
"""

from __future__ import annotations

import math
from typing import NamedTuple

#: What a class (0: CRITICAL) may use of a burst that all classes share, in thousandths. The rest is kept for
#: the more urgent ones.
SHARES = (1000, 900, 800, 700)


class Verdict(NamedTuple):
    """What a limit says to one request."""

    allowed: bool
    tat_ms: float  # to be kept; unchanged by a refusal
    wait_ms: float  # until the same request would be allowed; infinite where it never is


def gcra(tat_ms: float, now_ms: float, rate_per_s: float, burst: float, *, cost: float = 1) -> Verdict:
    """Ask for `cost` tokens. `tat_ms` is 0 for a key never seen."""
    if rate_per_s <= 0 or cost > burst:
        return Verdict(False, tat_ms, math.inf)
    interval = 1000 / rate_per_s
    new_tat = max(tat_ms, now_ms) + interval * cost
    wait = new_tat - interval * burst - now_ms
    # A wait below a microsecond is rounding: `tat` was summed up from inexact intervals.
    if wait > 1e-3:
        return Verdict(False, tat_ms, wait)
    return Verdict(True, new_tat, 0.0)


def remaining(tat_ms: float, now_ms: float, rate_per_s: float, burst: float) -> int:
    """How many requests would be admitted at this instant."""
    if rate_per_s <= 0:
        return 0
    owed = max(tat_ms - now_ms, 0.0) * rate_per_s / 1000
    return max(0, math.floor(burst - owed + 1e-6))


def burst_of(rate_per_s: float, priority: int) -> float:
    """How many members of a class one second's worth of a shared rate lets through at once; one at least."""
    return max(rate_per_s * SHARES[priority] / 1000, 1.0)
