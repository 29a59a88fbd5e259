"""How many calls a target may have at once: additive increase, multiplicative decrease.

The limit grows by one for every limit's worth of calls that went well while the limit was what
held them back, and is halved, at most once a second, when the target is overloaded: it says so (429,
503), does not answer in time, or takes longer than its latency objective. That is how senders
share a line without knowing each other, and it needs no figure that somebody would have to guess.

Several executors share one limit: `shares` divides it. lua/exchange.lua does the same in Valkey,
and tests compare the two; executors come back to this one while Valkey is away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

#: A limit is halved once in so many milliseconds at most.
HALVING_MS = 1000
#: Overload is this share of the calls looked at: one slow answer in a hundred is no overload.
OVERLOADED_SHARE = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What was seen of a target since the last look."""

    good: int = 0  # calls that ended well inside the latency objective
    overloaded: int = 0  # calls refused for overload, timed out, or longer than the objective
    bottleneck: bool = False  # more would have been called, had the limit been higher


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """A target's limit. `allowed` is a real number; whole calls count."""

    allowed: float
    halved_ms: int = 0  # when it was halved last, epoch milliseconds

    @property
    def calls(self) -> int:
        """Calls at once."""
        return int(self.allowed)


def overloaded(seen: Seen) -> bool:
    """Whether that is overload."""
    return seen.overloaded > 0 and seen.overloaded >= OVERLOADED_SHARE * (seen.good + seen.overloaded)


def adjust(limit: Limit, seen: Seen, *, most: int, now_ms: int) -> Limit:
    """The limit after what was seen; from 1 to `most`."""
    allowed = min(limit.allowed, float(most))
    if overloaded(seen):
        if now_ms - limit.halved_ms < HALVING_MS:
            return Limit(allowed=max(1.0, allowed), halved_ms=limit.halved_ms)
        return Limit(allowed=max(1.0, allowed / 2), halved_ms=now_ms)
    if seen.bottleneck and seen.good:
        # One more for each limit's worth of calls, the limit growing meanwhile.
        allowed = math.sqrt(allowed * allowed + 2 * seen.good)
    return Limit(allowed=min(max(1.0, allowed), float(most)), halved_ms=limit.halved_ms)


def shares(limit: int, demands: Mapping[str, int]) -> dict[str, int]:
    """Divide a limit among those who want so much each: nobody gets more than it wants before all
    have what they want or an equal part; what is left is spread evenly. Whole, and never more in all
    than the limit. Who wants most gets what cannot be divided, the last by name among equals."""
    left = max(0, limit)
    out: dict[str, int] = {}
    order = sorted(demands, key=lambda name: (demands[name], name))
    for i, name in enumerate(order):
        out[name] = min(demands[name], left // (len(order) - i))
        left -= out[name]
    for i, name in enumerate(order):
        more = left // (len(order) - i)
        out[name] += more
        left -= more
    return out
