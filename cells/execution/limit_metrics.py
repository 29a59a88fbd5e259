"""What is counted about limits; sums over targets, because neither tenants nor targets are labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cells.domain.breaker import BreakerState
from cells.execution.targets import Target
from cells.observability.metrics import Metrics


class LimitMetrics:
    """Of one executor."""

    def __init__(self, metrics: Metrics):
        self.parkings = metrics.counter(
            "executor_parkings_total", "Members put aside because their target could not take them"
        )
        self.decreases = metrics.counter("target_limit_decreases_total", "Times a target's limit was lowered")
        self.pauses = metrics.counter("target_pauses_total", "Answers by which a target asked for a pause")
        self._moves = metrics.counter("target_breaker_moves_total", "Breakers that moved", ["to"])
        self._allowed = metrics.gauge(
            "target_allowed_calls", "Calls at once that this executor may make, over its targets"
        )
        self._parked = metrics.gauge("target_parked_members", "Parked members of the targets it calls")
        targets = metrics.gauge("targets_in_use", "Targets it calls, by their breakers", ["breaker"])
        self._targets = {state: targets.labels(state.value.lower()) for state in BreakerState}

    def breaker(self, *, opened: bool) -> None:
        """One moved."""
        self._moves.labels("open" if opened else "closed").inc()

    def look(self, targets: Iterable[Target]) -> None:
        """How they stand."""
        states: Counter[BreakerState] = Counter()
        allowed = parked = 0
        for target in targets:
            states[target.load.breaker] += 1
            allowed += target.limit
            parked += target.load.parked
        self._allowed.set(allowed)
        self._parked.set(parked)
        for state, gauge in self._targets.items():
            gauge.set(states[state])
