"""Whether an execution could go on under another version of its definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cells.domain.workflow.decide import decide
from cells.domain.workflow.definition import Definition
from cells.domain.workflow.events import Event, EventType
from cells.domain.workflow.execution import Execution
from cells.domain.workflow.folding import fold

#: Events that record a decision.
DECISIONS = frozenset(
    {
        EventType.STEP_SKIPPED, EventType.STEP_FAILED, EventType.ACTIVITY_SCHEDULED, EventType.WAIT_STARTED,
        EventType.TIMER_STARTED, EventType.PARALLEL_STARTED, EventType.MAP_STARTED, EventType.CHILD_STARTED,
        EventType.COMPENSATION_STARTED, EventType.CANCEL_SENT, EventType.COMPENSATION_STUCK,
        EventType.COMPLETED, EventType.FAILED, EventType.COMPENSATED, EventType.CANCELLED,
        EventType.CONTINUED_AS_NEW,
    }
)  # fmt: skip
#: What may differ: when a timer fires, and how an error is worded.
_FREE = frozenset({"fire_at", "error", "wait", "run_id"})


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first event that a definition would not have recorded."""

    seq: int
    type: str
    step: str | None
    expected: str  # what it would have recorded instead


def first_divergence(definition: Definition, events: Sequence[Event]) -> Divergence | None:
    """Replay a history under a definition; None if it would have recorded just the same."""
    execution = Execution()
    for event in events:
        if event.type in DECISIONS:
            commands = decide(definition, execution, deadline_ms=1)
            same = [c for c in commands if c.type == event.type and _free(c.data) == _free(event.data)]
            if not same:
                expected = ", ".join(f"{c.type} {c.key}".strip() for c in commands) or "nothing"
                return Divergence(event.seq, event.type, event.data.get("step"), expected)
        fold((event,), execution)
    return None


def _free(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in _FREE}
