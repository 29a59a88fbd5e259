"""Bulk changes: a selection freezes which jobs are meant, an operation works through it."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Annotated

import msgspec
from fastapi import Path, Query
from starlette.responses import Response

from cells.api import documents, idempotency, pagination, shapes
from cells.api.finding import concerns_selection
from cells.api.problems import Problem, conflict, not_found
from cells.api.routing import Call, Routes, Rule, answer, page
from cells.api.selection_models import ApplyIn, OperationQuery, SelectionIn
from cells.bulk import JOB_ACTIONS
from cells.contract import ErrorCode, Scope
from cells.domain import ids
from cells.domain.job import STATUS
from cells.ports import BulkAction, Conflict, JobFilter, JobRow, OperationRow, SelectionRow

routes = Routes("Bulk changes")

_CREATE = "POST /v1/selections"
#: How long a selection can be applied.
LIFETIME = timedelta(minutes=15)

SelectionId = Annotated[
    str, Path(description="A selection's id.", examples=["sel_01h455vb4pex5vsknk084sn02q"])
]
OperationId = Annotated[
    str, Path(description="An operation's id.", examples=["op_01h455vb4pex5vsknk084sn02q"])
]

#: The sort key in a cursor: when it was started (epoch microseconds), and its id.
_Place = tuple[int, uuid.UUID]


# --- selections --------------------------------------------------------------------------
@routes.add(
    "POST",
    "/v1/selections",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={
        201: ("The selection. Nothing has been changed.", shapes.Selection),
        200: ("The selection that was made under this Idempotency-Key.", shapes.Selection),
    },
    problems=(409, 429),
    idempotent=True,
)
async def create_selection(call: Call, body: SelectionIn) -> Response:
    """Choose jobs for a bulk change, and see how many and which before anything happens.

    The ids are frozen: applying changes exactly these, whatever the filter would find then. Only
    jobs that the action can change are chosen: `pause` those that are scheduled, `resume` paused
    ones, `cancel` both. It can be applied for 15 minutes; a tenant has at most 50 that wait for that.
    """
    services = call.services
    asked = body.filter
    key = idempotency.read_key(call.header(b"idempotency-key"))
    with services.in_flight.hold(call.tenant_id, _CREATE, key):
        row, replayed = await services.store.create_selection(
            call.fence,
            selection_id=services.fresh_id(),
            action=BulkAction(body.action),
            where=JobFilter(
                state=asked.job_state(),
                target_id=asked.target,
                tag=asked.tag,
                name_prefix=asked.name_prefix,
                due_from=asked.due_from,
                due_until=asked.due_until,
            ),
            job_ids=_named(asked.job_ids),
            described=asked.model_dump_json(exclude_none=True).encode(),
            expires_at=services.now() + LIFETIME,
            actor=call.caller.actor,
            host_id=services.host.host_id,
            idempotency=idempotency.keyed(_CREATE, key, call.raw_body),
        )
    document = await _shown(call, row)
    location = {"Location": f"/v1/selections/{document['selection_id']}"}
    if replayed:
        return answer(document, 200, location | {"Idempotency-Replayed": "true"})
    return answer(document, 201, location)


def _named(texts: list[str] | None) -> list[uuid.UUID] | None:
    if texts is None:
        return None
    return [job_id for text in texts if (job_id := ids.decode(ids.JOB, text)) is not None]


@routes.add(
    "GET",
    "/v1/selections/{selection_id:name}",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The selection.", shapes.Selection)},
    problems=(404,),
)
async def read_selection(call: Call, selection_id: SelectionId) -> Response:
    """Read a selection. Its sample shows the jobs as they are now."""
    return answer(await _shown(call, await _found_selection(call, selection_id)))


@routes.add(
    "POST",
    "/v1/selections/{selection_id:name}:apply",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={
        202: ("The operation has begun.", shapes.Operation),
        200: ("The operation that was begun before.", shapes.Operation),
    },
    problems=(404, 409, 412),
)
async def apply_selection(call: Call, selection_id: SelectionId, body: ApplyIn) -> Response:
    """Begin to change the jobs of a selection, at most `max_per_second` of them. The hash says that
    the caller means what was shown. Applying it again answers the same operation."""
    services = call.services
    row = await _found_selection(call, selection_id)
    if body.hash != row.hash:
        raise Problem(
            412,
            ErrorCode.PRECONDITION_FAILED,
            "This is not the selection's hash; read it again and look at what it holds.",
        )
    if row.expires_at <= services.now():
        raise conflict("The selection has expired; make a new one.")
    await concerns_selection(call, row.selection_id)
    operation, started = await services.store.start_operation(
        call.fence,
        selection_id=row.selection_id,
        operation_id=services.fresh_id(),
        max_per_second=body.max_per_second,
        actor=call.caller.actor,
        host_id=services.host.host_id,
    )
    document = _operation(operation)
    location = {"Location": f"/v1/operations/{document['operation_id']}"}
    return answer(document, 202 if started else 200, location)


async def _found_selection(call: Call, text: str) -> SelectionRow:
    selection_id = ids.decode(ids.SELECTION, text)
    row = None
    if selection_id is not None:
        row = await call.services.store.get_selection(call.tenant_id, selection_id)
    if row is None or row.action not in JOB_ACTIONS:
        raise not_found("selection")
    return row


async def _shown(call: Call, row: SelectionRow) -> documents.Document:
    sample = await call.services.store.selection_sample(call.tenant_id, row.selection_id)
    return {
        "selection_id": ids.encode(ids.SELECTION, row.selection_id),
        "action": row.action,
        "filter": msgspec.Raw(row.described),
        "count": row.count,
        "sample": [_sampled(job) for job in sample],
        "hash": row.hash,
        "created_by": row.created_by,
        "created_at": documents.instant(row.created_at),
        "expires_at": documents.instant(row.expires_at),
    }


def _sampled(job: JobRow) -> documents.Document:
    return {
        "job_id": documents.job_text(job.job_id),
        "name": job.definition.name,
        "key": job.definition.key,
        "status": STATUS[job.state],
        "target_id": job.definition.target.label,
        "next_run_at": documents.instant(job.next_run_at) if job.due_at is not None else None,
    }


# --- operations --------------------------------------------------------------------------
@routes.add(
    "GET",
    "/v1/operations",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("One page of operations.", shapes.OperationPage)},
)
async def list_operations(call: Call, query: Annotated[OperationQuery, Query()]) -> Response:
    """List bulk operations, the newest first."""
    filters = query.model_dump(mode="json", exclude={"limit", "cursor"})
    after = pagination.read_cursor(query.cursor, "operations", filters, _Place)
    rows = await call.services.store.list_operations(
        call.tenant_id,
        state=query.state,
        after=(pagination.read_instant(after[0]), after[1]) if after is not None else None,
        limit=query.limit + 1,
    )
    cursor = None
    if len(rows) > query.limit:
        last = rows[query.limit - 1]
        place = (pagination.instant_key(last.created_at), last.operation_id)
        cursor = pagination.make_cursor("operations", filters, place)
    return page(
        [_operation(row) for row in rows[: query.limit]],
        path="/v1/operations",
        filters=filters,
        limit=query.limit,
        cursor=cursor,
    )


@routes.add(
    "GET",
    "/v1/operations/{operation_id:name}",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The operation and how far it is.", shapes.Operation)},
    problems=(404,),
)
async def read_operation(call: Call, operation_id: OperationId) -> Response:
    """Read a bulk operation: progress while it runs, its summary afterwards."""
    row = await call.services.store.get_operation(call.tenant_id, _operation_id(operation_id))
    if row is None or row.action not in JOB_ACTIONS:
        raise not_found("operation")
    return answer(_operation(row))


@routes.add(
    "POST",
    "/v1/operations/{operation_id:name}:stop",
    Rule(scope=Scope.JOBS_WRITE, writes=True, body_optional=True),
    answers={200: ("The operation is stopped.", shapes.Operation)},
    problems=(404, 409),
)
async def stop_operation(call: Call, operation_id: OperationId) -> Response:
    """Stop a bulk operation. What it has done stays done; the rest is left alone."""
    wanted = _operation_id(operation_id)
    services = call.services
    found = await services.store.get_operation(call.tenant_id, wanted)
    if found is None or found.action not in JOB_ACTIONS:
        raise not_found("operation")
    await concerns_selection(call, found.selection_id)
    try:
        row = await services.store.stop_operation(
            call.fence, operation_id=wanted, actor=call.caller.actor, host_id=services.host.host_id
        )
    except Conflict as over:
        raise conflict("The operation is done; there is nothing left to stop.") from over
    return answer(_operation(row))


def _operation_id(text: str) -> uuid.UUID:
    operation_id = ids.decode(ids.OPERATION, text)
    if operation_id is None:
        raise not_found("operation")
    return operation_id


def _operation(row: OperationRow) -> documents.Document:
    return {
        "operation_id": ids.encode(ids.OPERATION, row.operation_id),
        "selection_id": ids.encode(ids.SELECTION, row.selection_id),
        "action": row.action,
        "state": row.state,
        "total": row.total,
        "processed": row.position,
        "done": row.done,
        "unchanged": row.unchanged,
        "failed": row.failed,
        "reasons": row.reasons,
        "failures": [
            {"job_id": documents.job_text(uuid.UUID(job)), "reason": reason} for job, reason in row.failures
        ],
        "max_per_second": row.max_per_second,
        "created_by": row.created_by,
        "created_at": documents.instant(row.created_at),
        "finished_at": documents.instant(row.finished_at),
        "stopped_by": row.stopped_by,
    }
