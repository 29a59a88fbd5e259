"""Whether an execution could go on under another version of its definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cells.domain.workflow.commands import Command
from cells.domain.workflow.decide import decide
from cells.domain.workflow.definition import Definition
from cells.domain.workflow.events import Event, EventType
from cells.domain.workflow.folding import fold
from cells.domain.workflow.heavy import Evaluate

#: Events that record a decision.
DECISIONS = frozenset(
    type_.value
    for type_ in (
        EventType.STEP_SKIPPED, EventType.STEP_FAILED, EventType.ACTIVITY_SCHEDULED, EventType.WAIT_STARTED,
        EventType.TIMER_STARTED, EventType.PARALLEL_STARTED, EventType.MAP_STARTED, EventType.CHILD_STARTED,
        EventType.COMPENSATION_STARTED, EventType.CANCEL_SENT, EventType.COMPENSATION_STUCK,
        EventType.COMPLETED, EventType.FAILED, EventType.COMPENSATED, EventType.CANCELLED,
        EventType.CONTINUED_AS_NEW,
    )
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


def first_divergence(
    definition: Definition,
    events: Sequence[Event],
    *,
    checked: int = 0,
    in_time: Callable[[], bool] = lambda: True,
    evaluate: Evaluate | None = None,
) -> Divergence | None:
    """Replay a history under a definition; None if it would have recorded just the same. The first `checked`
    events are known to be so. `evaluate` makes heavy values; it may be waited for. Raises `TimeoutError` once
    `in_time` says that there is no more time."""
    execution = fold(events[:checked])
    expected: Sequence[Command] = ()
    for event in events[checked:]:
        if event.type not in DECISIONS:
            expected = ()
        elif expected and _records(event, expected[0]):
            # One decision is recorded as several events: what it began goes on.
            expected = expected[1:]
        else:
            if not in_time():
                raise TimeoutError("the history was not replayed in time")
            commands = decide(definition, execution, deadline_ms=1, evaluate=evaluate)
            place = next((i for i, c in enumerate(commands) if _records(event, c)), None)
            if place is None:
                told = ", ".join(f"{c.type} {c.key}".strip() for c in commands) or "nothing"
                return Divergence(event.seq, event.type, event.data.get("step"), told)
            expected = commands[place + 1 :] if place == 0 else ()
        fold((event,), execution)
    return None


def _records(event: Event, command: Command) -> bool:
    if event.type == EventType.STEP_FAILED and command.type == EventType.CHILD_STARTED:
        # There was no such definition when it was to begin.
        return str(event.data["step"]) == command.key
    if command.type != event.type:
        return False
    return command.data == event.data or _free(command.data) == _free(event.data)


def _free(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in _FREE}
