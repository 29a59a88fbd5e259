"""What expressions see: recorded values, and of those only what they name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cells.domain.workflow.execution import Execution, StepState
from cells.domain.workflow.expressions import Expression
from cells.domain.workflow.keys import Index, step_key

#: In place of the result of a step that was just skipped.
SKIPPED = object()


@dataclass(frozen=True, slots=True)
class Scope:
    """Where in a definition one is: which elements of the maps around, and what they are called."""

    index: Index = ()
    variables: Mapping[str, Any] = field(default_factory=dict)

    def inside(self, position: int, name: str, item: Any) -> Scope:
        """The scope of one element."""
        return Scope((*self.index, position), {**self.variables, name: item})


def values_for(
    execution: Execution, expressions: Iterable[Expression], scope: Scope, derived: Mapping[str, Any]
) -> dict[str, Any]:
    """The values that some expressions read."""
    x = execution
    values: dict[str, Any] = {"input": x.input, **scope.variables}
    steps: dict[str, Any] = {}
    signals: dict[str, Any] = {}
    for expression in expressions:
        for root, name in expression.steps:
            if root == "signals":
                if name in x.signals:
                    signals[name] = x.signals[name]
            elif (found := _step(x, name, scope.index, derived)) is not None:
                steps[name] = found
        if "workflow" in expression.names and "workflow" not in values:
            values["workflow"] = {
                "id": x.workflow_id,
                "run_id": x.run_id,
                "started_at": _rfc3339(x.started_at),
            }
    values["steps"] = steps
    values["signals"] = signals
    return values


def _step(x: Execution, name: str, index: Index, derived: Mapping[str, Any]) -> dict[str, Any] | None:
    """A step's result: of this element of a map, or of what is around it."""
    for depth in range(len(index), -1, -1):
        key = step_key(name, index[:depth])
        if key in derived:
            result = derived[key]
            skipped = result is SKIPPED
            return {"result": None if skipped else result, "skipped": skipped, "timed_out": False}
        record = x.steps.get(key)
        if record is not None:
            return {
                "result": record.result,
                "skipped": record.state is StepState.SKIPPED,
                "timed_out": record.timed_out,
            }
    return None


def _rfc3339(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
