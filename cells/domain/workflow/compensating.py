"""Undoing: what was done, and what may have been done, in reverse order, one after the other.

Before anything is undone, what is under way is asked to stop and waited for: a run ends by its
answer, or by its own lease and a margin, and only then it is known, or known to be unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cells.domain.workflow.commands import Command
from cells.domain.workflow.context import Scope, values_for
from cells.domain.workflow.definition import Activity, Definition, Map, Parallel, Step
from cells.domain.workflow.events import EventType
from cells.domain.workflow.execution import Execution, StepRecord, StepState, open_activities
from cells.domain.workflow.expressions import ExpressionFault
from cells.domain.workflow.heavy import Evaluate, value_of
from cells.domain.workflow.keys import idempotency_key, split_key, step_key, undo_key


def compensate(
    definition: Definition, execution: Execution, evaluate: Evaluate | None = None
) -> list[Command]:
    """The next commands of an execution that undoes what it did. Raises `NotYet`."""
    x = execution
    if x.resolved is not None and x.resolved["action"] == "close":
        data = {"error": x.error, "step": x.failed_step, "note": x.resolved.get("note")}
        return [Command(type=EventType.FAILED, data=data)]
    if x.deadline_passed and not x.stuck:
        return [_stuck(*_what_is_missing(definition, x))]
    under_way = list(open_activities(x))
    asked = [
        Command(type=EventType.CANCEL_SENT, data={"step": record.key})
        for record in under_way
        if not record.cancel_sent
    ]
    undoing = any(record.undoes is not None for record in x.open.values())
    if under_way or undoing:
        return asked
    for record, undo in _to_undo(definition, x):
        failed = _failed_undo(x, record)
        if failed is not None:
            return [] if x.stuck else [_stuck(failed.key, failed.error)]
        return [_schedule(definition, x, record, undo, evaluate)]
    kind = EventType.CANCELLED if x.cause == "cancelled" else EventType.COMPENSATED
    return [Command(type=kind, data={} if x.error is None else {"error": x.error, "step": x.failed_step})]


def _to_undo(definition: Definition, x: Execution) -> Iterator[tuple[StepRecord, Step]]:
    """Steps that have, or may have, happened and are not undone, the latest first."""
    steps = {step.id: step for step in definition.walk() if step.compensate_with is not None}
    for record in sorted(x.steps.values(), key=lambda r: -r.order):
        step = steps.get(split_key(record.key)[0])
        if step is None or record.undoes is not None or record.undone or not record.may_have_happened:
            continue
        undo = definition.compensations.get(step.compensate_with or "")
        if undo is not None:
            yield record, undo


def _failed_undo(x: Execution, record: StepRecord) -> StepRecord | None:
    """The last compensation of a step, if it failed for good and nobody asked for another."""
    undos = [r for r in x.steps.values() if r.undoes == record.key]
    last = max(undos, key=lambda r: r.order, default=None)
    if last is None or last.state is not StepState.FAILED:
        return None
    asked = x.resolved is not None and x.resolved["action"] == "retry" and x.resolved["behind"] > last.order
    return None if asked else last


def _what_is_missing(definition: Definition, x: Execution) -> tuple[str | None, str | None]:
    for record in x.open.values():
        return record.key, "did not succeed before the deadline"
    for record, _ in _to_undo(definition, x):
        return record.key, "was not undone before the deadline"
    return None, None


def _stuck(step: str | None, error: str | None) -> Command:
    return Command(type=EventType.COMPENSATION_STUCK, data={"step": step, "error": error})


def _schedule(
    definition: Definition, x: Execution, record: StepRecord, undo: Step, evaluate: Evaluate | None
) -> Command:
    _, index = split_key(record.key)
    do = undo.do
    key = undo_key(record, undo.id)
    if not isinstance(do, Activity):
        raise TypeError(f"the compensation {undo.id} is no activity")
    given: Any = {
        "input": x.input,
        "step": record.key,
        "result": record.result,
        "outcome": "COMPLETED" if record.state is StepState.COMPLETED else "UNKNOWN",
        "idempotency_key": record.idempotency_key,
    }
    if do.input is not None:
        try:
            scope = _scope(definition, x, record)
            given = value_of(do.input, values_for(x, do.input.expressions, scope, {}), evaluate)
        except ExpressionFault as fault:
            failed = {"step": key, "error": str(fault), "undoes": record.key}
            return Command(type=EventType.STEP_FAILED, data=failed, step=undo)
    data: dict[str, Any] = {
        "step": key,
        # A retry is the same compensation. One for a success that was told late is another.
        "key": idempotency_key(x, undo.id, index, again=record.late),
        "input": given,
        "undoes": record.key,
        "forward_key": record.idempotency_key,
    }
    if record.state is StepState.FAILED and record.not_before is not None:
        data["not_before"] = record.not_before
    return Command(type=EventType.ACTIVITY_SCHEDULED, data=data, step=undo)


def _scope(definition: Definition, x: Execution, record: StepRecord) -> Scope:
    """What the expressions of a compensation see beside all steps: the element its step was for."""
    name, index = split_key(record.key)
    scope = Scope()
    for outer in _maps_around(definition.steps, name, ()) or ():
        items = x.steps[step_key(outer.id, scope.index)].items or []
        position = index[len(scope.index)]
        if isinstance(outer.do, Map):
            scope = scope.inside(position, outer.do.name, items[position])
    return scope


def _maps_around(steps: tuple[Step, ...], name: str, around: tuple[Step, ...]) -> tuple[Step, ...] | None:
    for step in steps:
        if step.id == name:
            return around
        found: tuple[Step, ...] | None = None
        if isinstance(step.do, Map):
            found = _maps_around(step.do.steps, name, (*around, step))
        elif isinstance(step.do, Parallel):
            branches = (_maps_around(branch, name, around) for branch in step.do.branches)
            found = next((b for b in branches if b is not None), None)
        if found is not None:
            return found
    return None
