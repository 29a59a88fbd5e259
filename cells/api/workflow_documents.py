"""Workflows as the API shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cells.api import documents
from cells.api.building import epoch_ms
from cells.api.problems import unavailable
from cells.api.routing import Call
from cells.contract import Scope
from cells.domain import ids
from cells.domain.ids import RunKey
from cells.domain.workflow.events import Event
from cells.domain.workflow.execution import DEADLINE, Execution, StepRecord, StepState
from cells.workflow_ports import ActivityRun, StoredEvent, WorkflowRow

_PAGE = 2_000
_decode: Any = msgspec.json.Decoder(dict[str, Any]).decode
#: Members of an event's data that are the tenant's own values.
_VALUES = ("input", "result", "payload", "items")


def workflow_document(row: WorkflowRow, *, region: str, values_shown: bool) -> documents.Document:
    """An execution as a list shows it."""
    document: documents.Document = {
        "workflow_id": row.workflow_id,
        "run_id": ids.encode(ids.WORKFLOW_RUN, row.run_id),
        "status": row.status,
        "definition": row.definition,
        "version": row.version,
        "region_policy": row.region_policy,
        "home_region": region,
        "started_at": documents.instant(row.started_at),
        "closed_at": documents.instant(row.closed_at),
        "error": row.error,
        "events": row.next_seq - 1,
        "history_bytes": row.history_bytes,
        "next_timer_at": documents.instant(row.timer_at),
        "parent": row.parent,
    }
    if values_shown:
        document["result"] = None if row.result is None else msgspec.Raw(row.result)
    else:
        document["result_hidden"] = True
    return document


def standing(execution: Execution) -> documents.Document:
    """Where an execution stands, from its history."""
    timers = [
        {"step": record.key, "fires_at": _instant(record.fire_at)}
        for record in execution.open.values()
        if record.fire_at is not None
    ]
    if execution.deadline is not None and not execution.deadline_passed and execution.is_open:
        timers.append({"step": DEADLINE, "fires_at": _instant(execution.deadline)})
    return {
        "current_steps": [record.key for record in execution.open.values()],
        "pending_timers": sorted(timers, key=lambda timer: str(timer["fires_at"])),
        "late_signals": execution.late_signals,
    }


def event_document(event: StoredEvent, *, values_shown: bool) -> documents.Document:
    """An event; without the tenant's own values where the caller may not see payloads."""
    data: Any = msgspec.Raw(event.data)
    if not values_shown:
        data = {name: value for name, value in _decode(event.data).items() if name not in _VALUES}
    return {
        "seq": event.seq,
        "epoch": event.epoch,
        "type": event.type,
        "at": documents.instant(event.at),
        "data": data,
    }


def timeline(row: WorkflowRow, execution: Execution, runs: Sequence[ActivityRun]) -> list[documents.Document]:
    """Steps by their beginning, with the runs of activities."""
    by_seq = {run.seq: run for run in runs}
    return [
        _step(row, record, by_seq.get(record.order) if record.kind == "activity" else None)
        for record in sorted(execution.steps.values(), key=lambda record: record.order)
    ]


def _step(row: WorkflowRow, record: StepRecord, run: ActivityRun | None) -> documents.Document:
    return {
        "step": record.key,
        "kind": record.kind,
        "state": StepState(record.state).name,
        "started_at": _instant(record.at),
        "ended_at": None if record.ended_at is None else _instant(record.ended_at),
        "idempotency_key": record.idempotency_key,
        "compensates": record.undoes,
        "child_workflow_id": record.child,
        "fires_at": None if record.fire_at is None else _instant(record.fire_at),
        "error": record.error,
        "outcome_known": record.known,
        "run": None if run is None else _run(row, record, run),
    }


def _run(row: WorkflowRow, record: StepRecord, run: ActivityRun) -> documents.Document:
    key = RunKey(parent_id=row.run_id, scheduled_for=run.scheduled_for, ordinal=run.seq)
    begun = run.started_at or run.claimed_at
    ran = None
    if begun is not None and run.finished_at is not None:
        ran = epoch_ms(run.finished_at) - epoch_ms(begun)
    return {
        "run_id": ids.run_id(key),
        "state": run.state,
        "attempt": run.attempt,
        "waited_ms": None if begun is None else max(0, epoch_ms(begun) - record.at),
        "ran_ms": ran,
        "next_attempt_at": documents.instant(run.next_attempt_at),
    }


def _instant(ms: int) -> str | None:
    return documents.instant(ids.instant_of(ms))


async def events_of(call: Call, row: WorkflowRow, *, after: int, limit: int) -> Sequence[StoredEvent]:
    """A page of a history, wherever it is: in the store, or in the lake only."""
    found = await call.services.store.workflow_history(call.tenant_id, row.run_id, after=after, limit=limit)
    history = call.services.history
    if found or history is None or row.closed_at is None or after >= row.next_seq - 1:
        return found
    try:
        return await history.workflow_history(call.tenant_id, row, after=after, limit=limit)
    except TimeoutError as slow:
        raise unavailable("The history takes too long to answer; try again.") from slow


async def read_events(call: Call, row: WorkflowRow) -> list[Event]:
    """A whole history."""
    events: list[Event] = []
    while True:
        page = await events_of(call, row, after=events[-1].seq if events else 0, limit=_PAGE)
        events += [
            Event(seq=e.seq, type=e.type, at=epoch_ms(e.at), data=_decode(e.data), size=len(e.data))
            for e in page
        ]
        if len(page) < _PAGE:
            return events


def shows_values(call: Call) -> bool:
    """Whether the caller may see what the tenant's own programs said."""
    return call.may(Scope.PAYLOADS_READ)
