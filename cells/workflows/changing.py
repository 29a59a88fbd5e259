"""Changes of a history that somebody asks for: another version, or back to a step. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

import msgspec

from cells.domain import ids
from cells.domain.workflow.commands import Command
from cells.domain.workflow.compatibility import DECISIONS, Divergence, first_divergence
from cells.domain.workflow.definition import Definition
from cells.domain.workflow.events import Event, EventType
from cells.domain.workflow.execution import Execution, StepState
from cells.domain.workflow.folding import fold
from cells.domain.workflow.heavy import Outcome, Work
from cells.ports import Conflict
from cells.workflow_ports import NewExecution, Taken, Turn
from cells.workflows.turning import Turning

Change = Callable[[Taken, Sequence[Event]], Turn]
_encode = msgspec.json.Encoder().encode


class Diverges(Conflict):
    """The other version would not have recorded what is there (422)."""

    def __init__(self, divergence: Divergence):
        super().__init__(f"event {divergence.seq} would not have been recorded")
        self.divergence = divergence


def migration(
    definition: Definition, actor: str, *, checked: int = 0, run_id: uuid.UUID | None = None
) -> Change:
    """Go on under another version. Raises `Diverges`, or `Conflict` where it has ended. The first `checked`
    events of that execution were found to be what the version would have recorded: only those behind them
    are looked at."""

    def change(taken: Taken, events: Sequence[Event]) -> Turn:
        x = _open(taken, events)
        if run_id is not None and taken.row.run_id != run_id:
            raise Conflict("another execution goes on in its place; try again")
        if x.version == definition.version:
            raise Conflict(f"it is under version {definition.version} already")
        divergence = first_divergence(definition, events, checked=checked, evaluate=_not_here)
        if divergence is not None:
            raise Diverges(divergence)
        data = {"version": definition.version, "from": x.version, "actor": actor}
        turning = Turning(taken, x, definition, {}, _no_child)
        turning.append(Command(type=EventType.MIGRATED, data=data))
        turn = turning.finish()
        turn.decide_at = taken.now_ms
        return turn

    return change


def reset(definition: Definition, step: str, actor: str, entropy: bytes) -> Change:
    """Another execution in place of this one, with its history up to where a step began. What came for
    it since then by way of signals comes again."""

    def change(taken: Taken, events: Sequence[Event]) -> Turn:
        cut = next((e.seq for e in events if e.type in DECISIONS and e.data.get("step") == step), None)
        if cut is None:
            raise Conflict(f"the step {step} has not begun")
        kept = list(events[: cut - 1])
        before = fold(kept)
        if before.compensating or not before.is_open:
            raise Conflict(f"the step {step} came after the workflow had failed; choose an earlier one")
        under_way = [r.key for r in before.open.values() if r.kind in ("activity", "child")]
        if under_way:
            names = ", ".join(sorted(under_way))
            raise Conflict(f"{names} was under way when {step} began; choose an earlier step")
        x = fold(events)
        undone = [r for key, r in before.steps.items() if x.steps[key].undone or x.steps[key].undos]
        if undone:
            first = min(undone, key=lambda r: r.order).key
            raise Conflict(
                f"{first} came before {step} and was undone since; choose {first} or an earlier step"
            )
        turning = Turning(taken, x, definition, {}, _no_child)
        store = ids.store_of(taken.row.run_id)
        run_id = ids.workflow_run_id(ids.fresh_id(now_ms=taken.now_ms, entropy=entropy, store=store))
        if x.is_open:
            name = ids.encode(ids.WORKFLOW_RUN, run_id)
            data = {"error": f"reset to {step}", "actor": actor, "reset_to": name}
            turning.append(Command(type=EventType.TERMINATED, data=data))
        turn = turning.finish()
        turn.told, turn.ends_run = [], None  # who waits does so for the execution that takes its place
        turn.successor = _beginning(taken, before, kept, events[cut - 1 :], run_id, step, actor)
        turn.happened.append(("workflow.reset", {"step": step, "definition": taken.row.definition}))
        return turn

    return change


def _beginning(
    taken: Taken,
    before: Execution,
    kept: Sequence[Event],
    rest: Sequence[Event],
    run_id: uuid.UUID,
    step: str,
    actor: str,
) -> NewExecution:
    row = taken.row
    data = {
        "run_id": ids.encode(ids.WORKFLOW_RUN, run_id),
        "from_run_id": ids.encode(ids.WORKFLOW_RUN, row.run_id),
        "step": step,
        "actor": actor,
    }
    at = max(taken.now_ms, before.last_at)
    return NewExecution(
        run_id=run_id,
        workflow_id=row.workflow_id,
        definition=row.definition,
        version=before.version,
        input_hash=row.input_hash,
        region_policy=row.region_policy,
        parent=row.parent,
        events=[
            *((e.type, e.at, _encode(e.data)) for e in kept),
            (EventType.RESET.value, at, _encode(data)),
        ],
        signals=[_encode(e.data) for e in rest if e.type == EventType.SIGNAL_RECEIVED],
        follows=row.run_id,
    )


def open_steps(execution: Execution) -> list[str]:
    """Keys of what is under way or waited for."""
    return [record.key for record in execution.steps.values() if record.state is StepState.OPEN]


def _open(taken: Taken, events: Sequence[Event]) -> Execution:
    x = fold(events)
    if not x.is_open:
        raise Conflict(f"the workflow is {taken.row.status}")
    return x


def _not_here(_: Work) -> Outcome:
    raise Conflict("it records values that take long to make just now; try again")


def _no_child(_tenant: uuid.UUID, _name: str, _version: int | None) -> None:
    """Nothing that begins a child is recorded here."""
