"""From what waits in an inbox to the event that records it, if there is one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from cells.domain.outcome import CallError
from cells.domain.run import AttemptOutcome
from cells.domain.workflow.definition import Activity, Definition
from cells.domain.workflow.events import EventType
from cells.domain.workflow.execution import Execution, Status, StepState
from cells.domain.workflow.keys import split_key
from cells.workflow_ports import InboxItem
from cells.workflows.effects import lease_seconds

Recorded = tuple[EventType, dict[str, Any]]

_decode: Any = msgspec.json.Decoder().decode
#: From the end of a lease until what was done under it counts as over.
_OVER_MS = 5_000
#: Answers that say that nothing was done, though another try may help.
_REFUSED = frozenset({425, 429})
_SUCCEEDED = frozenset({"SUCCEEDED", "SUCCEEDED_AFTER_CANCEL"})
#: Ends of a child after which nothing of it is left to undo.
_UNDONE = frozenset({"COMPENSATED", "CANCELLED"})


def to_record(
    definition: Definition, execution: Execution, item: InboxItem, orders: Mapping[int, str]
) -> Recorded | None:
    """The event of an item; None for one that changes nothing any more. `orders` are the steps by the
    sequence of the event that began them."""
    x = execution
    data: dict[str, Any] = _decode(item.data)
    match item.kind:
        case "ACTIVITY":
            return _activity(definition, x, data, orders.get(data["ordinal"]), item.at_ms)
        case "SIGNAL":
            return EventType.SIGNAL_RECEIVED, data
        case "CHILD":
            return _child(x, data)
        case "CANCEL" if x.is_open and not x.compensating and not x.cancel_requested:
            return EventType.CANCEL_REQUESTED, data
        case "TERMINATE" if x.is_open:
            return EventType.TERMINATED, {"error": data.get("reason") or "terminated", **data}
        case "RESOLVE" if x.status is Status.COMPENSATION_STUCK:
            return EventType.COMPENSATION_RESOLVED, data
        case _:
            return None


def _activity(
    definition: Definition, x: Execution, data: dict[str, Any], step: str | None, at_ms: int
) -> Recorded | None:
    if step is None:
        return None
    record = x.steps[step]
    attempts: Sequence[dict[str, Any]] = data["attempts"]
    if data["state"] in _SUCCEEDED:
        if record.state is StepState.COMPLETED:
            return None
        return EventType.ACTIVITY_COMPLETED, {"step": step, "result": _result(attempts)}
    if record.state is not StepState.OPEN or not x.is_open:
        return None
    error = data["reason"] or str(data["state"]).lower()
    do = _work(definition, step)
    pulled = do is not None and do.task_queue is not None
    failed: dict[str, Any] = {"step": step, "error": error}
    if data["state"] != "UNKNOWN" and all(_definite(a, pulled) for a in attempts):
        return EventType.ACTIVITY_FAILED, failed
    failed["known"] = False
    # What undoes it must not overtake whoever may still be at it.
    until = [
        _ms(a["claimed_at"]) + lease_seconds(do) * 1000 + _OVER_MS
        for a in attempts
        if do is not None and not pulled and _may_go_on(a)
    ]
    if until and max(until) > at_ms:
        failed["not_before"] = max(until)
    return EventType.ACTIVITY_FAILED, failed


def _child(x: Execution, data: dict[str, Any]) -> Recorded | None:
    record = x.steps.get(data["step"])
    if record is None or not x.is_open:
        return None
    if data.get("begun") is False and record.kind == "child" and record.state is StepState.COMPLETED:
        # Nobody waits for it, and it was taken for begun.
        failed = {"step": data["step"], "error": data.get("error"), "begun": False}
        return EventType.CHILD_FAILED, failed
    if record.state is not StepState.OPEN:
        return None
    if data["status"] == Status.COMPLETED:
        return EventType.CHILD_COMPLETED, {"step": data["step"], "result": data.get("result")}
    error = data.get("error") or str(data["status"]).lower()
    # What a child did and did not undo is there to be undone by its parent.
    known = data["status"] in _UNDONE or data.get("begun") is False
    failed = {"step": data["step"], "error": error}
    return EventType.CHILD_FAILED, failed if known else {**failed, "known": False}


def _result(attempts: Sequence[dict[str, Any]]) -> Any:
    """What the successful attempt answered: JSON if it is JSON, else the text."""
    done = [a for a in attempts if a["outcome"] == AttemptOutcome.SUCCEEDED]
    body = done[-1].get("body") if done else None
    if not body:
        return None
    try:
        return _decode(body)
    except msgspec.DecodeError:
        return body


def _definite(attempt: dict[str, Any], pulled: bool) -> bool:
    """Whether that attempt surely did not do it. A worker that says so knows; a call without an
    answer, or with one of a broken server, may have been done, unless nothing of it was sent."""
    if not attempt.get("sent", True):
        return True
    match attempt["outcome"]:
        case AttemptOutcome.LOST:
            return False
        case AttemptOutcome.TERMINAL if str(attempt.get("error")).startswith(CallError.RESULT):
            return False  # it was done, and answered too much
        case AttemptOutcome.RETRYABLE:
            return pulled or (attempt.get("error") is None and attempt.get("status") in _REFUSED)
        case _:
            return True


def _may_go_on(attempt: dict[str, Any]) -> bool:
    """Whether the target of a call may still be at it, as far as that attempt tells: nobody said that it had
    ended. What a worker held was over with its lease."""
    if attempt["outcome"] == AttemptOutcome.LOST:
        return "claimed_at" in attempt
    answered = attempt.get("status") is not None and attempt.get("error") is None
    failed = attempt["outcome"] == AttemptOutcome.RETRYABLE
    return failed and not answered and not _definite(attempt, False)


def _ms(instant: str) -> int:
    return round(datetime.fromisoformat(instant).timestamp() * 1000)


def _work(definition: Definition, step: str) -> Activity | None:
    name = split_key(step)[0]
    found = definition.compensations.get(name) or next((s for s in definition.walk() if s.id == name), None)
    return found.do if found is not None and isinstance(found.do, Activity) else None
