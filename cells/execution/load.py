"""What one executor sees of one target, and what it may do with it. Pure but for the works it names.

Counting is on the path of every call, so it is plain integers; a few times a second `Limits` takes
them and exchanges them for a new share.
"""

from __future__ import annotations

from collections.abc import Hashable

from cells.domain.aimd import Limit, Seen
from cells.domain.breaker import Breaker, BreakerState
from cells.domain.capacity import Capacity, Observed, Told, after, usable
from cells.domain.outcome import CallError
from cells.domain.run import AttemptOutcome
from cells.execution.recording import Answer
from cells.limits import TargetShare

_OVERLOADED = frozenset({429, 503})
#: Claims are held ahead for this many seconds of calls: a share comes with the next exchange only.
_AHEAD_SECONDS = 0.25
#: The pace is that of about the last so many seconds.
_PACE_SECONDS = 0.5
#: A target that was crowded counts as tight for this long afterwards (seconds).
_TIGHT_SECONDS = 1.0


class Load:
    """The executor's side of a target's limit. Times are of the steady clock, in seconds."""

    __slots__ = (
        "_began",
        "_calls",
        "_failed_probes",
        "_failures",
        "_good",
        "_over",
        "_paused_ms",
        "_probes",
        "_probing",
        "_told",
        "breaker",
        "coming",
        "crowded",
        "ended",
        "heard_at",
        "held",
        "initial",
        "limit",
        "look_at",
        "most",
        "pace",
        "parked",
        "paused_until_ms",
        "slo",
        "tight_until",
        "told_remaining",
        "until_ms",
    )  # fmt: skip

    def __init__(self) -> None:
        self.initial = self.most = 1
        self.slo = 2.0  # seconds
        self.limit = 0.0  # of all executors; 0: not known
        self.breaker = BreakerState.CLOSED
        self.until_ms = 0
        self.paused_until_ms = 0
        self.told_remaining: int | None = None
        self.parked = 0  # of all executors, when last heard of
        self.heard_at = float("-inf")
        self.look_at = float("-inf")
        self.tight_until = float("-inf")
        self.held = 0  # claims this executor has for it
        self.coming = 0  # members on their way to being claimed
        self.pace = 0.0  # calls that end per second, lately
        self.ended = 0  # since the pace was measured
        self.crowded = False  # since the last report: somebody had to wait for a slot
        self._began: dict[Hashable, float] = {}  # calls under way, oldest first; slow ones leave
        self._probing: set[Hashable] = set()
        self._clear()

    def _clear(self) -> None:
        self._good = self._over = self._calls = self._failures = 0
        self._probes = self._failed_probes = self._paused_ms = 0
        self._told: Told | None = None
        self.crowded = False

    # --- calls ---------------------------------------------------------------------------
    def begin(self, work: Hashable, now: float) -> None:
        """A call begins."""
        self._began[work] = now
        if self.breaker is BreakerState.HALF_OPEN:
            self._probing.add(work)

    def end(self, work: Hashable, answer: Answer, outcome: AttemptOutcome, now: float) -> None:
        """It has ended like that."""
        began = self._began.pop(work, None)
        self._calls += 1
        self.ended += 1
        failed = outcome is AttemptOutcome.RETRYABLE
        if failed:
            self._failures += 1
        if began is not None:
            if answer.status in _OVERLOADED or answer.error == CallError.TIMEOUT or now - began > self.slo:
                self._over += 1
            elif not failed:
                self._good += 1
        if self._probing and work in self._probing:
            self._probing.discard(work)
            self._probes += 1
            self._failed_probes += failed

    def gone(self, work: Hashable) -> None:
        """It was not made after all, or nobody knows how it ended."""
        self._began.pop(work, None)
        self._probing.discard(work)

    def asked_to_pause(self, until_ms: int) -> None:
        """The target wants no calls until then."""
        self._paused_ms = max(self._paused_ms, until_ms)
        self.paused_until_ms = max(self.paused_until_ms, until_ms)

    def was_told(self, told: Told) -> None:
        """The target said what is left of its quota."""
        self._told = told

    def urgent(self) -> bool:
        """Whether the others should hear of it at once."""
        return bool(self._over or self._paused_ms or (self._told is not None and not self._told.remaining))

    # --- exchange ------------------------------------------------------------------------
    def take(self, now: float) -> Observed:
        """What was seen since the last time. A call that has lasted longer than the objective is
        overload now, not when it ends."""
        for work, began in list(self._began.items()):
            if now - began <= self.slo:
                break
            del self._began[work]
            self._over += 1
        observed = Observed(
            seen=Seen(good=self._good, overloaded=self._over, bottleneck=self.crowded),
            calls=self._calls,
            failures=self._failures,
            probes=self._probes,
            failed_probes=self._failed_probes,
            pause_until_ms=self._paused_ms,
            told=self._told,
        )
        if self.crowded:
            self.tight_until = now + _TIGHT_SECONDS
        self._clear()
        return observed

    def measure(self, seconds: float) -> None:
        """Keep the pace; told how long ago it was told last."""
        if seconds > 0:
            part = min(1.0, seconds / _PACE_SECONDS)
            self.pace += part * (self.ended / seconds - self.pace)
            self.ended = 0

    def heard(self, share: TargetShare, now: float) -> int:
        """The answer: calls that may be under way."""
        self.limit, self.breaker, self.until_ms = share.limit, share.breaker, share.until_ms
        self.paused_until_ms, self.told_remaining = share.paused_until_ms, share.remaining
        self.parked, self.heard_at = share.parked, now
        self.coming += len(share.members)
        return share.calls

    def alone(self, observed: Observed, *, executors: int, now: float, now_ms: int) -> int:
        """No answer: go on alone with a part of what is known."""
        told = observed.told
        state = Capacity(
            limit=Limit(allowed=self.limit or self.initial),
            breaker=Breaker(state=self.breaker, until_ms=self.until_ms, openings=1),
            paused_until_ms=self.paused_until_ms,
            told=told,
        )
        state = after(state, observed, initial=self.initial, most=self.most, now_ms=now_ms)
        self.limit, self.breaker = state.limit.allowed, state.breaker.state
        self.until_ms, self.paused_until_ms = state.breaker.until_ms, state.paused_until_ms
        self.parked, self.heard_at = 0, now  # nothing can be parked or fetched there now
        calls = usable(state, now_ms=now_ms)
        return max(1, calls // max(1, executors)) if calls else 0

    # --- room ----------------------------------------------------------------------------
    def ahead(self) -> int:
        """Claims worth holding beyond the share."""
        return int(self.pace * _AHEAD_SECONDS) if self.breaker is BreakerState.CLOSED else 0

    def tight(self, now: float, now_ms: int) -> bool:
        """Whether claims for it must be counted."""
        return (
            self.parked > 0
            or self.crowded
            or self.tight_until > now
            or self.breaker is not BreakerState.CLOSED
            or self.paused_until_ms > now_ms
            or self.told_remaining is not None
        )
