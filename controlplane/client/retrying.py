"""When a request is sent again. Pure: chance and the time spent so far are passed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controlplane.client.errors import ApiError, ClockhouseError, TransportError
from controlplane.client.wire import Call

#: Away for the moment; whether the request did its work is not known.
_AWAY = frozenset({502, 503, 504})
_STILL_RUNNING = "IDEMPOTENCY_IN_PROGRESS"


@dataclass(frozen=True, kw_only=True, slots=True)
class Retries:
    """How a client tries again: at most `attempts` in all, exponential pauses with full jitter from
    `first_seconds` to `most_seconds`, never before the server's `Retry-After`, and not at all where
    that would end more than `budget_seconds` after the first try."""

    attempts: int = 4
    first_seconds: float = 0.25
    most_seconds: float = 8.0
    budget_seconds: float = 60.0

    def pause(
        self, call: Call[Any], error: ClockhouseError, *, attempt: int, spent: float, rand: float
    ) -> float | None:
        """Seconds until the next try, or None: the error stands. `attempt` counts from 1; `spent`
        are the seconds since the first; `rand` is in [0, 1)."""
        if attempt >= self.attempts or not may_repeat(call, error):
            return None
        ceiling = min(self.most_seconds, self.first_seconds * 2.0 ** (attempt - 1))
        pause = ceiling * rand
        if isinstance(error, ApiError) and error.retry_after is not None:
            # Behind the server's wish, and apart from others who were told the same.
            pause += error.retry_after
        return pause if spent + pause <= self.budget_seconds else None


NEVER = Retries(attempts=1)


def may_repeat(call: Call[Any], error: ClockhouseError) -> bool:
    """Whether another try can help and cannot do the work twice."""
    if isinstance(error, TransportError):
        return call.safe or not error.sent
    if not isinstance(error, ApiError):
        return False
    if error.status == 429:  # refused before anything was done
        return True
    return call.safe and (error.status in _AWAY or error.code == _STILL_RUNNING)
