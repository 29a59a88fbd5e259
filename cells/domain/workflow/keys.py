"""Names of steps inside an execution, and the idempotency keys of what they call."""

from __future__ import annotations

from cells.domain.workflow.execution import Execution, StepRecord

Index = tuple[int, ...]


def step_key(step_id: str, index: Index) -> str:
    """`ship`, or `ship[2]` inside the third element of a map."""
    return step_id + "".join([f"[{i}]" for i in index]) if index else step_id


def split_key(key: str) -> tuple[str, Index]:
    """The id and the index of a step's key; the number of a repeated compensation is left out."""
    head = key.partition("#")[0]
    name, *rest = head.split("[")
    return name, tuple(int(part[:-1]) for part in rest)


def idempotency_key(execution: Execution, step_id: str, index: Index, *, again: int = 0) -> str:
    """`order-88213:charge_card` in the first execution of a workflow id. With the execution's id
    between them where the same step may be meant anew: later executions, elements of a map."""
    if execution.first and not index and not again:
        return f"{execution.workflow_id}:{step_id}"
    parts = [execution.workflow_id]
    if not execution.first or index:
        parts.append(execution.run_id)
    parts += [step_id, *map(str, index)]
    if again:
        parts.append(f"again-{again}")
    return ":".join(parts)


def undo_key(undone: StepRecord, compensation_id: str) -> str:
    """The key of the next compensation of a step: `refund_card`, then `refund_card#2`."""
    key = step_key(compensation_id, split_key(undone.key)[1])
    return key if undone.undos == 0 else f"{key}#{undone.undos + 1}"
