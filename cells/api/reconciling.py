"""The reconciliation report: executions whose history somebody should compare with the other side's books."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from cells.api import documents, pagination, shapes
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.workflow_documents import read_events
from cells.api.workflow_models import ReconciliationQuery
from cells.contract import Scope
from cells.domain import ids
from cells.domain.workflow.execution import Execution, StepRecord, StepState
from cells.domain.workflow.folding import fold
from cells.workflow_ports import WorkflowFilter, WorkflowRow

routes = Routes("Workflows")
_Place = tuple[int, uuid.UUID]


@routes.add(
    "GET",
    "/v1/workflows/reconciliation",
    Rule(scope=Scope.WORKFLOWS_READ),
    answers={200: ("Executions to compare, the latest start first.", shapes.Reconciliation)},
)
async def read_reconciliation(call: Call, query: Annotated[ReconciliationQuery, Query()]) -> Response:
    """Read which workflows are stuck in undoing, and which have undone a step without knowing whether it
    had happened: with the keys under which the other side knows each step."""
    place: _Place | None = pagination.read_cursor(query.cursor, "reconciliation", {}, _Place)
    found = await call.services.store.list_workflows(
        call.tenant_id,
        WorkflowFilter(to_reconcile=True),
        after=None if place is None else (pagination.read_instant(place[0]), place[1]),
        limit=query.limit + 1,
    )
    rows = list(found.rows)[: query.limit]
    items = [_item(row, fold(await read_events(call, row))) for row in rows]
    cursor = None
    if len(found.rows) > query.limit:
        place = pagination.instant_key(rows[-1].started_at), rows[-1].run_id
        cursor = pagination.make_cursor("reconciliation", {}, place)
    return answer(
        {"items": items, "next_cursor": cursor},
        headers=pagination.next_link("/v1/workflows/reconciliation", {}, query.limit, cursor),
    )


def _item(row: WorkflowRow, execution: Execution) -> documents.Document:
    """An execution with the steps that are in question."""
    undoing: dict[str, StepRecord] = {}
    for record in sorted(execution.steps.values(), key=lambda each: each.order):
        if record.undoes is not None:
            undoing[record.undoes] = record
    steps = [
        _step(record, undoing.get(record.key))
        for record in sorted(execution.steps.values(), key=lambda each: each.order)
        if record.undoes is None and _in_question(row, record, undoing.get(record.key))
    ]
    return {
        "workflow_id": row.workflow_id,
        "run_id": ids.encode(ids.WORKFLOW_RUN, row.run_id),
        "definition": row.definition,
        "version": row.version,
        "status": row.status,
        "error": row.error,
        "started_at": documents.instant(row.started_at),
        "closed_at": documents.instant(row.closed_at),
        "steps": steps,
    }


def _in_question(row: WorkflowRow, record: StepRecord, undo: StepRecord | None) -> bool:
    if record.idempotency_key is None and record.child is None:
        return False
    if record.may_have_happened and record.state is StepState.FAILED:
        return True
    if record.late:
        return True
    return row.status == "COMPENSATION_STUCK" and undo is not None and not record.undone


def _step(record: StepRecord, undo: StepRecord | None) -> documents.Document:
    return {
        "step": record.key,
        "idempotency_key": record.idempotency_key,
        "child_workflow_id": record.child,
        "outcome": "COMPLETED" if record.state is StepState.COMPLETED else "UNKNOWN",
        "error": record.error,
        "told_late": bool(record.late),
        "undone": record.undone,
        "compensation": None if undo is None else undo.key,
        "compensation_idempotency_key": None if undo is None else undo.idempotency_key,
        "compensation_state": None if undo is None else StepState(undo.state).name,
        "compensation_error": None if undo is None else undo.error,
    }
