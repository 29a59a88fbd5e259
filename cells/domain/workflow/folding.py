"""From a history to what it means.

`fold` reads events in their order and nothing else. It knows no definition: which step comes
next is for `decide`. Folding may go on where it ended, and never looks at a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from cells.domain.workflow.events import Event, EventType
from cells.domain.workflow.execution import DEADLINE, Execution, Status, StepRecord, StepState


def fold(events: Iterable[Event], execution: Execution | None = None) -> Execution:
    """The meaning of a history; or of more of it, on top of what was folded."""
    state = Execution() if execution is None else execution
    apply, size, last = _APPLY, 0, None
    for last in events:
        apply[last.type](state, last.data, last)
        size += last.size
    if last is not None:
        state.last_seq, state.last_at = last.seq, last.at
        state.bytes += size
    return state


# --- one function per type ----------------------------------------------------------------
def _started(x: Execution, d: dict[str, Any], e: Event) -> None:
    x.workflow_id, x.run_id = d["workflow_id"], d["run_id"]
    x.definition, x.version = d["definition"], d["version"]
    x.input, x.first, x.parent = d.get("input"), d.get("first", True), d.get("parent")
    x.input_bytes = e.size
    x.started_at = e.at


def _begin(x: Execution, d: dict[str, Any], e: Event, kind: str) -> StepRecord:
    key = d["step"]
    record = StepRecord(key, kind, StepState.OPEN, e.seq, e.at, d.get("fire_at"))
    x.steps[key] = x.open[key] = record
    return record


def _end(x: Execution, record: StepRecord, state: StepState, e: Event) -> None:
    record.state = state
    record.ended_at = e.at
    record.fire_at = None
    x.open.pop(record.key, None)


def _skipped(x: Execution, d: dict[str, Any], e: Event) -> None:
    record = x.steps[d["step"]] = StepRecord(d["step"], "skipped", StepState.SKIPPED, e.seq, e.at)
    record.ended_at = e.at


def _step_failed(x: Execution, d: dict[str, Any], e: Event) -> None:
    record = x.steps[d["step"]] = StepRecord(d["step"], "failed", StepState.FAILED, e.seq, e.at)
    record.error = d.get("error")
    record.undoes = d.get("undoes")
    record.ended_at = e.at
    if record.undoes is not None:
        x.steps[record.undoes].undos += 1


def _scheduled(x: Execution, d: dict[str, Any], e: Event) -> None:
    record = _begin(x, d, e, "activity")
    record.idempotency_key = d["key"]
    record.input = d.get("input")
    record.undoes = d.get("undoes")
    if record.undoes is not None:
        x.steps[record.undoes].undos += 1


def _activity_completed(x: Execution, d: dict[str, Any], e: Event) -> None:
    record = x.steps[d["step"]]
    if record.state is StepState.OPEN or record.state is StepState.ABANDONED:
        _end(x, record, StepState.COMPLETED, e)
        record.result = d.get("result")
        if record.undoes is not None:
            x.steps[record.undoes].undone = True
    elif record.state is StepState.FAILED and record.undoes is None:
        # It was thought to have failed, and did not: it is to be undone, whether it was before or not.
        record.state, record.result, record.late = StepState.COMPLETED, d.get("result"), record.late + 1
        record.undone = False
        if x.status in (Status.COMPENSATED, Status.CANCELLED):
            x.status = Status.COMPENSATING
    elif record.state is StepState.FAILED and not x.steps[record.undoes or ""].undone:
        # A compensation that failed was tried again by somebody.
        record.state, record.result = StepState.COMPLETED, d.get("result")
        x.steps[record.undoes or ""].undone = True
    else:
        x.ignored.append(e.seq)


def _activity_failed(x: Execution, d: dict[str, Any], e: Event) -> None:
    record = x.steps[d["step"]]
    if record.state is not StepState.OPEN:
        x.ignored.append(e.seq)
        return
    _end(x, record, StepState.FAILED, e)
    record.error, record.known = d.get("error"), d.get("known", True)
    record.not_before = d.get("not_before")


def _child_failed(x: Execution, d: dict[str, Any], e: Event) -> None:
    record = x.steps[d["step"]]
    if record.state is StepState.COMPLETED and d.get("begun") is False and not x.compensating:
        # One that nobody waits for could not begin.
        _end(x, record, StepState.FAILED, e)
        record.result, record.error = None, d.get("error")
        return
    _activity_failed(x, d, e)


def _cancel_sent(x: Execution, d: dict[str, Any], _: Event) -> None:
    x.steps[d["step"]].cancel_sent = True


def _wait_started(x: Execution, d: dict[str, Any], e: Event) -> None:
    record = _begin(x, d, e, "wait")
    record.signal = d["name"]
    buffered = x.buffered.get(d["name"])
    if buffered:
        _take(x, record, buffered.pop(0), e)
    else:
        x.waiting.setdefault(d["name"], []).append(record)


def _take(x: Execution, record: StepRecord, signal: dict[str, Any], e: Event) -> None:
    _end(x, record, StepState.COMPLETED, e)
    record.result = signal.get("payload")
    x.signals[signal["name"]] = {"payload": signal.get("payload"), "signal_id": signal["signal_id"]}


def _signal(x: Execution, d: dict[str, Any], e: Event) -> None:
    name = d["name"]
    waiting = x.waiting.get(name)
    if waiting and x.status is Status.RUNNING and not x.compensating:
        _take(x, waiting.pop(0), d, e)
        return
    x.buffered.setdefault(name, []).append(d)
    late = not x.is_open or x.compensating
    if late or any(r.signal == name and r.timed_out for r in x.steps.values()):
        x.late_signals.append(d["signal_id"])


def _timer_started(x: Execution, d: dict[str, Any], e: Event) -> None:
    _begin(x, d, e, "timer")


def _timer_fired(x: Execution, d: dict[str, Any], e: Event) -> None:
    if d["step"] == DEADLINE:
        x.deadline_passed = True
        return
    record = x.steps[d["step"]]
    if record.state is not StepState.OPEN:
        x.ignored.append(e.seq)
        return
    if record.kind == "wait":
        x.waiting[record.signal or ""].remove(record)
        record.timed_out = True
        if d.get("then") == "continue":
            _end(x, record, StepState.COMPLETED, e)
        else:
            _end(x, record, StepState.FAILED, e)
            record.error = "timeout"
        return
    _end(x, record, StepState.COMPLETED, e)


def _group(x: Execution, d: dict[str, Any], e: Event) -> None:
    record = x.steps[d["step"]] = StepRecord(d["step"], "group", StepState.GROUP, e.seq, e.at)
    record.items = d.get("items")


def _child_started(x: Execution, d: dict[str, Any], e: Event) -> None:
    record = _begin(x, d, e, "child")
    record.child = d["workflow_id"]
    record.input = d.get("input")
    if not d.get("wait", True):
        _end(x, record, StepState.COMPLETED, e)
        record.result = {"workflow_id": d["workflow_id"]}


def _cancel_requested(x: Execution, _d: dict[str, Any], _: Event) -> None:
    x.cancel_requested = True


def _abandon(x: Execution, record: StepRecord, e: Event) -> None:
    record.state, record.ended_at, record.fire_at = StepState.ABANDONED, e.at, None
    del x.open[record.key]


def _compensation_started(x: Execution, d: dict[str, Any], e: Event) -> None:
    x.compensating = True
    x.status = Status.COMPENSATING
    x.cause, x.error, x.failed_step = d["cause"], d.get("error"), d.get("step")
    x.deadline = d.get("fire_at")
    # Waits and timers end here; runs and children are waited for.
    for record in [r for r in x.open.values() if r.kind in ("wait", "timer")]:
        _abandon(x, record, e)
    x.waiting.clear()


def _stuck(x: Execution, _d: dict[str, Any], _: Event) -> None:
    x.stuck, x.resolved = True, None
    x.status = Status.COMPENSATION_STUCK


def _resolved(x: Execution, d: dict[str, Any], e: Event) -> None:
    x.resolved = {**d, "behind": e.seq}
    if d["action"] == "retry":
        x.stuck = False
        x.status = Status.COMPENSATING
        # The deadline has done its work; from here on a person watches.
        x.deadline = d.get("fire_at")
        x.deadline_passed = False


def _migrated(x: Execution, d: dict[str, Any], _: Event) -> None:
    x.version = d["version"]


def _reset(x: Execution, d: dict[str, Any], _: Event) -> None:
    x.run_id, x.first = d["run_id"], False


def _closes(status: Status) -> Callable[[Execution, dict[str, Any], Event], None]:
    def apply(x: Execution, d: dict[str, Any], e: Event) -> None:
        x.status = status
        x.result = d.get("result")
        if "error" in d:
            x.error, x.failed_step = d["error"], d.get("step")
        x.deadline = None
        x.continues = status is Status.CONTINUED_AS_NEW or "reset_to" in d
        if status is not Status.COMPENSATED and status is not Status.CANCELLED:
            for record in list(x.open.values()):
                _abandon(x, record, e)

    return apply


_T = EventType
_OF_TYPE: dict[EventType, Callable[[Execution, dict[str, Any], Event], None]] = {
    _T.STARTED: _started,
    _T.STEP_SKIPPED: _skipped,
    _T.STEP_FAILED: _step_failed,
    _T.ACTIVITY_SCHEDULED: _scheduled,
    _T.ACTIVITY_COMPLETED: _activity_completed,
    _T.ACTIVITY_FAILED: _activity_failed,
    _T.CANCEL_SENT: _cancel_sent,
    _T.WAIT_STARTED: _wait_started,
    _T.TIMER_STARTED: _timer_started,
    _T.TIMER_FIRED: _timer_fired,
    _T.SIGNAL_RECEIVED: _signal,
    _T.PARALLEL_STARTED: _group,
    _T.MAP_STARTED: _group,
    _T.CHILD_STARTED: _child_started,
    _T.CHILD_COMPLETED: _activity_completed,
    _T.CHILD_FAILED: _child_failed,
    _T.CANCEL_REQUESTED: _cancel_requested,
    _T.COMPENSATION_STARTED: _compensation_started,
    _T.COMPENSATION_STUCK: _stuck,
    _T.COMPENSATION_RESOLVED: _resolved,
    _T.MIGRATED: _migrated,
    _T.RESET: _reset,
    _T.COMPLETED: _closes(Status.COMPLETED),
    _T.FAILED: _closes(Status.FAILED),
    _T.COMPENSATED: _closes(Status.COMPENSATED),
    _T.CANCELLED: _closes(Status.CANCELLED),
    _T.TERMINATED: _closes(Status.TERMINATED),
    _T.CONTINUED_AS_NEW: _closes(Status.CONTINUED_AS_NEW),
}
#: By plain texts: looking a member of an enumeration up runs Python.
_APPLY = {type_.value: apply for type_, apply in _OF_TYPE.items()}
