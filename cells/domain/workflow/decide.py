"""What an execution does next, from its definition and its history alone.

The definition is walked from its beginning: what has ended is passed over, what has not begun
is begun, what is under way is waited for. So a decision needs no memory of earlier ones, and
may be made by anybody, any number of times.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from cells.domain.workflow.commands import Command
from cells.domain.workflow.compensating import compensate
from cells.domain.workflow.context import SKIPPED, Scope, values_for
from cells.domain.workflow.costs import LIST_LIMIT
from cells.domain.workflow.definition import (
    Activity,
    ContinueAsNew,
    Definition,
    Map,
    OnTimeout,
    Parallel,
    Sleep,
    StartWorkflow,
    Step,
    WaitForSignal,
)
from cells.domain.workflow.events import EVENT_LIMIT, FULL_BYTES, RESERVE, EventType
from cells.domain.workflow.execution import DEADLINE, Execution, StepState
from cells.domain.workflow.expressions import Expression, ExpressionFault, Template, fits
from cells.domain.workflow.heavy import Evaluate, NotYet, budget_for, value_of
from cells.domain.workflow.keys import idempotency_key, split_key, step_key

#: Characters of a workflow id.
ID_LIMIT = 128
#: Commands of one decision.
DECISION_LIMIT = 500
#: What recording a command adds to the values it carries at most: names, keys, when its timer is due.
_NAMED_BYTES = 512
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Instants that can be waited for (epoch milliseconds): until the year 2200.
_LATEST_MS = (datetime(2200, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
#: Work of expressions behind which one decision begins nothing more: together with the last one less than
#: the loop of an engine can spare.
DECISION_WORK = 8_000_000
#: Where a walk begins: inside no map.
_OUTSIDE = Scope()


class Decision(NamedTuple):
    """What is to be recorded next, and whether more is to be decided at once behind it."""

    commands: list[Command]
    more: bool
    pending: bool = False  # a value is being made; once it is there, more may be decided


_NOTHING = Decision([], False)


def decide(
    definition: Definition,
    execution: Execution,
    *,
    deadline_ms: int,
    limit: int = DECISION_LIMIT,
    evaluate: Evaluate | None = None,
) -> list[Command]:
    """The next commands, in the order in which they are to be recorded; none while nothing but
    waiting is to be done. `deadline_ms`: how long a compensation may take, where the definition
    does not say."""
    return decision(definition, execution, deadline_ms=deadline_ms, limit=limit, evaluate=evaluate).commands


def decision(
    definition: Definition,
    execution: Execution,
    *,
    deadline_ms: int,
    limit: int = DECISION_LIMIT,
    evaluate: Evaluate | None = None,
) -> Decision:
    """The same, and whether more is to be decided as soon as that is recorded: one decision is bounded in
    its commands (`limit`), in their bytes and in the work of its expressions, and by the room that the
    history has left. However it is cut, the same commands follow each other. `evaluate` has values made that
    are heavy; without it they are made here, as far as they may be."""
    x = execution
    if not x.is_open:
        return _NOTHING
    if x.compensating:
        try:
            commands = compensate(definition, x, evaluate)
        except NotYet:
            return Decision([], False, True)
        return Decision(commands[:limit], len(commands) > limit)
    if definition.compensation_deadline_ms is not None:
        deadline_ms = definition.compensation_deadline_ms
    if x.cancel_requested:
        return _alone(_undo("cancelled", None, "cancelled", deadline_ms))
    if x.at_limit():
        return _alone(_undo("failed", None, "the history reached its limit", deadline_ms))
    walk = _Walk(definition, x, limit, evaluate)
    ended, result = walk.sequence(definition.steps, _OUTSIDE)
    if walk.commands and (walk.broken or (walk.full and walk.failed is None)):
        # What was walked comes first; what cannot begin fails the execution behind it.
        return Decision(walk.commands, True)
    if walk.failed is not None:
        key, error, undo = walk.failed
        if not undo:
            return _alone(Command(type=EventType.FAILED, data={"step": key, "error": error}))
        return Decision([*walk.broken, _undo("failed", key, error, deadline_ms)], False)
    if walk.again is not None:
        return Decision([*walk.commands, walk.again], False)
    if not ended:
        return Decision(walk.commands, False, walk.pending)
    if definition.output is not None:
        try:
            values = values_for(x, definition.output.expressions, _OUTSIDE, walk.derived)
            result = value_of(definition.output, values, evaluate)
        except NotYet:
            return Decision(walk.commands, False, True)
        except ExpressionFault as fault:
            if walk.commands:
                return Decision(walk.commands, True)
            return _alone(_undo("failed", None, f"output: {fault}", deadline_ms))
    return Decision([*walk.commands, Command(type=EventType.COMPLETED, data={"result": result})], False)


def _alone(command: Command) -> Decision:
    return Decision([command], False)


def timer_fired(definition: Definition, execution: Execution, key: str) -> Command:
    """What is recorded when a pending timer's time has come."""
    data: dict[str, Any] = {"step": key}
    if key != DEADLINE and execution.steps[key].kind == "wait":
        step = next((s for s in definition.walk() if s.id == split_key(key)[0]), None)
        if step is not None and isinstance(step.do, WaitForSignal):
            data["then"] = step.do.on_timeout.value
    return Command(type=EventType.TIMER_FIRED, data=data)


def _undo(cause: str, step: str | None, error: str | None, deadline_ms: int) -> Command:
    data: dict[str, Any] = {"cause": cause}
    if step is not None:
        data["step"] = step
    if error is not None:
        data["error"] = error
    return Command(type=EventType.COMPENSATION_STARTED, data=data, delay_ms=deadline_ms)


class _Walk:
    """One walk over a definition."""

    def __init__(self, definition: Definition, execution: Execution, limit: int, evaluate: Evaluate | None):
        self._evaluate = evaluate
        self._definition = definition
        self._x = execution
        self._room = max(1, min(limit, EVENT_LIMIT - RESERVE - execution.last_seq))
        self._bytes = FULL_BYTES - execution.bytes
        self._work = DECISION_WORK
        self.full = False  # it had to end before it was through
        self.pending = False  # something waits for a value that is being made
        self.commands: list[Command] = []
        self.derived: dict[str, Any] = {}  # results that no event has: of groups, of what just ended
        self.failed: tuple[str, str | None, bool] | None = None  # key, error, whether to undo
        self.broken: list[Command] = []  # STEP_FAILED of a step that could not begin
        self.again: Command | None = None

    def sequence(self, steps: tuple[Step, ...], scope: Scope) -> tuple[bool, Any]:
        """Whether all have ended, and the last one's result."""
        result = None
        for step in steps:
            ended, result = self._step(step, scope)
            if not ended:
                return False, None
        return True, result

    def _step(self, step: Step, scope: Scope) -> tuple[bool, Any]:
        if self.failed is not None or self.again is not None:
            return False, None
        key = step_key(step.id, scope.index)
        record = self._x.steps.get(key)
        if record is None:
            return self._begin(step, key, scope)
        match record.state:
            case StepState.COMPLETED | StepState.SKIPPED:
                return True, record.result
            case StepState.FAILED:
                undo = not (record.timed_out and _only_fails(step))
                self.failed = key, record.error, undo
            case StepState.GROUP:
                return self._inside(step, key, record.items or [], scope)
        return False, None

    # --- beginning -----------------------------------------------------------------------
    def _begin(self, step: Step, key: str, scope: Scope) -> tuple[bool, Any]:
        if self.commands and (len(self.commands) >= self._room or self._bytes <= 0 or self._work <= 0):
            self.full = True
            return False, None
        try:
            if step.when is not None:
                answer = self._value(step.when, scope)
                if not isinstance(answer, bool):
                    raise ExpressionFault(f"`{step.when.source}` came to neither true nor false")
                if not answer:
                    self._add(EventType.STEP_SKIPPED, step, key)
                    self.derived[key] = SKIPPED
                    return True, None
            return self._start(step, key, scope)
        except NotYet:
            self.pending = True
            return False, None
        except ExpressionFault as fault:
            self.broken = [
                Command(type=EventType.STEP_FAILED, data={"step": key, "error": str(fault)}, step=step)
            ]
            self.failed = key, str(fault), True
            return False, None

    def _start(self, step: Step, key: str, scope: Scope) -> tuple[bool, Any]:
        match step.do:
            case Activity() as do:
                given = self._render(do.input, scope)
                name = idempotency_key(self._x, step.id, scope.index)
                self._add(EventType.ACTIVITY_SCHEDULED, step, key, key=name, input=given)
            case WaitForSignal(name=name, timeout_ms=timeout):
                self._add(EventType.WAIT_STARTED, step, key, name=name, delay_ms=timeout)
            case Sleep(for_ms=delay, until=None):
                self._add(EventType.TIMER_STARTED, step, key, delay_ms=delay)
            case Sleep(until=until):
                at = _instant(self._render(until, scope))
                self._add(EventType.TIMER_STARTED, step, key, at_ms=at)
            case Parallel():
                self._add(EventType.PARALLEL_STARTED, step, key)
                return self._inside(step, key, [], scope)
            case Map(over=over):
                items = self._value(over, scope)
                if not isinstance(items, list):
                    raise ExpressionFault(f"`{over.source}` came to no list")
                if len(items) > LIST_LIMIT:
                    raise ExpressionFault(f"a list of {len(items)} is longer than {LIST_LIMIT}")
                self._bytes -= fits(items)
                self._add(EventType.MAP_STARTED, step, key, items=items)
                return self._inside(step, key, items, scope)
            case StartWorkflow() as do:
                given = self._render(do.input, scope)
                data: dict[str, Any] = {"workflow_id": child_id(self._x, key), "definition": do.definition}
                if do.version is not None:
                    data["version"] = do.version
                self._add(EventType.CHILD_STARTED, step, key, **data, input=given, wait=do.wait)
                if not do.wait:
                    self.derived[key] = {"workflow_id": data["workflow_id"]}
                return not do.wait, {"workflow_id": data["workflow_id"]}
            case ContinueAsNew(input=template):
                given = self._render(template, scope)
                self.again = Command(type=EventType.CONTINUED_AS_NEW, data={"input": given}, step=step)
        return False, None

    def _add(
        self,
        kind: EventType,
        step: Step,
        step_key: str,
        delay_ms: int | None = None,
        at_ms: int | None = None,
        **data: Any,
    ) -> None:
        command = Command(
            type=kind, data={"step": step_key, **data}, delay_ms=delay_ms, at_ms=at_ms, step=step
        )
        self.commands.append(command)
        self._bytes -= _NAMED_BYTES

    # --- groups --------------------------------------------------------------------------
    def _inside(self, step: Step, key: str, items: list[Any], scope: Scope) -> tuple[bool, Any]:
        if isinstance(step.do, Parallel):
            ended = [self.sequence(branch, scope) for branch in step.do.branches]
        elif isinstance(step.do, Map):
            ended = self._elements(step.do, items, scope)
        else:
            return False, None
        if not all(done for done, _ in ended):
            return False, None
        self.derived[key] = [result for _, result in ended]
        return True, self.derived[key]

    def _elements(self, do: Map, items: list[Any], scope: Scope) -> list[tuple[bool, Any]]:
        ended: list[tuple[bool, Any]] = []
        active = 0
        for i, item in enumerate(items):
            inner = scope.inside(i, do.name, item)
            begun = step_key(do.steps[0].id, inner.index) in self._x.steps
            if not begun and active >= do.max_concurrency:
                # What comes behind has not begun either: elements begin in their order.
                return [*ended, (False, None)]
            ended.append(self.sequence(do.steps, inner))
            active += not ended[-1][0]
        return ended

    # --- values --------------------------------------------------------------------------
    def _value(self, expression: Expression, scope: Scope) -> Any:
        budget = budget_for(self._evaluate)
        try:
            values = values_for(self._x, [expression], scope, self.derived)
            return value_of(expression, values, self._evaluate, budget)
        finally:
            self._work -= min(budget.work, budget.most)

    def _render(self, template: Template | None, scope: Scope) -> Any:
        if template is None:
            self._bytes -= self._x.input_bytes
            return self._x.input
        values: Mapping[str, Any] = values_for(self._x, template.expressions, scope, self.derived)
        budget = budget_for(self._evaluate)
        try:
            return value_of(template, values, self._evaluate, budget)
        finally:
            self._work -= min(budget.work, budget.most)
            self._bytes -= budget.bytes


def _only_fails(step: Step) -> bool:
    return isinstance(step.do, WaitForSignal) and step.do.on_timeout is OnTimeout.FAIL


def child_id(execution: Execution, key: str) -> str:
    """The workflow id of a child: its parent's, the execution's and the step's."""
    name, index = split_key(key)
    tail = "-".join([execution.run_id, name, *map(str, index)])
    return f"{execution.workflow_id[: ID_LIMIT - len(tail) - 1]}-{tail}"


def _instant(value: Any) -> int:
    """Epoch milliseconds of an RFC 3339 text or of epoch seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        ms = round(value * 1000)
    else:
        try:
            at = datetime.fromisoformat(value) if isinstance(value, str) else None
        except ValueError:
            at = None
        if at is None or at.tzinfo is None:
            raise ExpressionFault(
                "sleep_until came to no instant (RFC 3339 with an offset, or epoch seconds)"
            )
        ms = (at - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= ms < _LATEST_MS:
        raise ExpressionFault("sleep_until came to an instant that is not between the years 1970 and 2200")
    return ms
