"""Dead letters that are tried again or done with: chosen first, then worked through at a pace."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Annotated

import msgspec
from fastapi import Path, Query
from starlette.responses import Response

from cells.api import documents, idempotency, pagination, shapes
from cells.api.dlq import letter_document
from cells.api.finding import RunId, concerns_parent, concerns_selection, run_key_of
from cells.api.problems import Problem, conflict, not_found
from cells.api.redrive_models import LetterFilterIn, LettersIn, RedriveQuery
from cells.api.routing import Call, Routes, Rule, answer, page
from cells.bulk import LETTER_ACTIONS, LetterFilter
from cells.contract import ErrorCode, Scope
from cells.domain import ids
from cells.ports import (
    BulkAction,
    Conflict,
    OperationRow,
    SelectionRow,
    Terminal,
)

routes = Routes("Dead letters")

#: How long letters that were looked at can be redriven or purged.
LIFETIME = timedelta(minutes=15)

RedriveId = Annotated[str, Path(description="A redrive's id.", examples=["op_01h455vb4pex5vsknk084sn02q"])]

#: The sort key in a cursor: when it was started (epoch microseconds), and its id.
_Place = tuple[int, uuid.UUID]


@routes.add(
    "POST",
    "/v1/dlq:redrive",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={
        202: ("The redrive has begun.", shapes.Redrive),
        200: ("The redrive that was begun before.", shapes.Redrive),
        201: ("`dry_run`: the letters that would be redriven. Nothing has happened.", shapes.LetterSelection),
    },
    problems=(404, 409, 412),
    idempotent=True,
)
async def redrive(call: Call, body: LettersIn) -> Response:
    """Try dead letters again: exactly those found now, at most `max_per_second` of them.

    Each run begins a new series of attempts, with the version of the job and the idempotency key it had.
    One letter of each fingerprint goes first, then ten more of each, then the rest; if one of them fails
    as it did before, the redrive stops by itself and the others stay where they are.
    """
    return await _begin(call, BulkAction.REDRIVE, body)


@routes.add(
    "POST",
    "/v1/dlq:purge",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={
        202: ("The purge has begun.", shapes.Redrive),
        200: ("The purge that was begun before.", shapes.Redrive),
        201: ("`dry_run`: the letters that would be purged. Nothing has happened.", shapes.LetterSelection),
    },
    problems=(404, 409, 412),
    idempotent=True,
)
async def purge(call: Call, body: LettersIn) -> Response:
    """Be done with dead letters: they leave the queue, and their runs stay as they ended."""
    return await _begin(call, BulkAction.PURGE, body)


async def _begin(call: Call, action: BulkAction, body: LettersIn) -> Response:
    route = f"POST /v1/dlq:{action}"
    key = idempotency.read_key(call.header(b"idempotency-key"))
    with call.services.in_flight.hold(call.tenant_id, route, key):
        if body.selection_id is not None:
            row = await _selection(call, action, body.selection_id)
            if body.hash != row.hash:
                raise Problem(
                    412,
                    ErrorCode.PRECONDITION_FAILED,
                    "This is not the selection's hash; look at what it holds again.",
                )
            if row.expires_at <= call.services.now():
                raise conflict("The selection has expired; choose the letters again.")
        else:
            row = await _frozen(call, action, body.filter or LetterFilterIn(), route, key)
        if body.dry_run:
            return answer(await _selection_document(call, row), 201)
        keyed = idempotency.keyed(route, key, call.raw_body)
        return await _started(call, row, body.max_per_second, keyed)


async def _frozen(
    call: Call, action: BulkAction, asked: LetterFilterIn, route: str, key: str | None
) -> SelectionRow:
    """The letters found now; those found before, if this is a request sent again."""
    services = call.services
    selection_id = services.fresh_id()
    if key is not None:
        selection_id = idempotency.job_id_for(
            call.tenant_id, route, key, call.raw_body, store=services.settings.stores.own
        )
        known = await services.store.get_selection(call.tenant_id, selection_id)
        if known is not None:
            return known
    keys = [ids.parse_run_id(text) for text in asked.run_ids or ()]
    return await services.store.select_letters(
        call.fence,
        selection_id=selection_id,
        action=action,
        where=LetterFilter(
            target_id=asked.target_id,
            fingerprint=asked.fingerprint,
            job_id=ids.decode(ids.JOB, asked.job_id) if asked.job_id is not None else None,
            reason=asked.reason,
            failed_from=asked.failed_after,
            failed_until=asked.failed_before,
            runs=[k for k in keys if k is not None] if asked.run_ids is not None else None,
        ),
        described=asked.model_dump_json(exclude_none=True).encode(),
        expires_at=services.now() + LIFETIME,
        actor=call.caller.actor,
        host_id=services.host.host_id,
        idempotency=idempotency.keyed(route, key, call.raw_body),
    )


async def _started(
    call: Call, row: SelectionRow, max_per_second: int, keyed: tuple[str, str, bytes] | None
) -> Response:
    services = call.services
    if not row.count:
        raise conflict("No open dead letter fits; there is nothing to do.")
    await concerns_selection(call, row.selection_id)
    operation, started = await services.store.start_operation(
        call.fence,
        selection_id=row.selection_id,
        operation_id=services.fresh_id(),
        max_per_second=max_per_second,
        actor=call.caller.actor,
        host_id=services.host.host_id,
        idempotency=keyed,
    )
    document = await _read(call, operation, row)
    location = {"Location": f"/v1/redrives/{document['redrive_id']}"}
    return answer(document, 202 if started else 200, location)


async def _selection(call: Call, action: BulkAction, text: str) -> SelectionRow:
    selection_id = ids.decode(ids.SELECTION, text)
    row = None
    if selection_id is not None:
        row = await call.services.store.get_selection(call.tenant_id, selection_id)
    if row is None or row.action is not action:
        raise not_found("selection")
    return row


@routes.add(
    "POST",
    "/v1/dlq/{run_id:run}:redrive",
    Rule(scope=Scope.JOBS_WRITE, writes=True, body_optional=True),
    answers={200: ("The run, due at once in a new series.", shapes.Run)},
    problems=(404, 409),
)
async def redrive_one(call: Call, run_id: RunId) -> Response:
    """Try one dead letter again, now."""
    key = run_key_of(run_id)
    await concerns_parent(call, key.parent_id)
    services = call.services
    try:
        members = await services.store.redrive_letter(
            call.fence, key=key, actor=call.caller.actor, host_id=services.host.host_id
        )
    except Terminal as none:
        raise not_found("dead letter") from none
    except Conflict as lost:
        raise conflict("The letter was dealt with just now, or its run is no longer kept.") from lost
    services.feed.add(tuple(members))
    run = await services.store.get_run(call.tenant_id, key)
    if run is None:
        raise not_found("run")
    return answer(documents.run_document(run, bodies_shown=call.may(Scope.PAYLOADS_READ)))


# --- what was begun ----------------------------------------------------------------------
@routes.add(
    "GET",
    "/v1/redrives",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("One page of redrives and purges.", shapes.RedrivePage)},
)
async def list_redrives(call: Call, query: Annotated[RedriveQuery, Query()]) -> Response:
    """List redrives and purges, the newest first."""
    filters = query.model_dump(mode="json", exclude={"limit", "cursor"})
    after = pagination.read_cursor(query.cursor, "redrives", filters, _Place)
    rows = await call.services.store.list_operations(
        call.tenant_id,
        state=query.state,
        after=(pagination.read_instant(after[0]), after[1]) if after is not None else None,
        limit=query.limit + 1,
        actions=LETTER_ACTIONS if query.action is None else (BulkAction(query.action),),
    )
    cursor = None
    if len(rows) > query.limit:
        last = rows[query.limit - 1]
        place = (pagination.instant_key(last.created_at), last.operation_id)
        cursor = pagination.make_cursor("redrives", filters, place)
    return page(
        [_document(row, None) for row in rows[: query.limit]],
        path="/v1/redrives",
        filters=filters,
        limit=query.limit,
        cursor=cursor,
    )


@routes.add(
    "GET",
    "/v1/redrives/{redrive_id:name}",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The redrive, how far it is, and how its runs do.", shapes.Redrive)},
    problems=(404,),
)
async def read_redrive(call: Call, redrive_id: RedriveId) -> Response:
    """Read a redrive or purge: progress while it runs, its summary afterwards."""
    row = await _found(call, redrive_id)
    chosen = await call.services.store.get_selection(call.tenant_id, row.selection_id)
    return answer(await _read(call, row, chosen))


@routes.add(
    "POST",
    "/v1/redrives/{redrive_id:name}:stop",
    Rule(scope=Scope.JOBS_WRITE, writes=True, body_optional=True),
    answers={200: ("It is stopped.", shapes.Redrive)},
    problems=(404, 409),
)
async def stop_redrive(call: Call, redrive_id: RedriveId) -> Response:
    """Stop a redrive or purge. What it has done stays done; the other letters stay where they are."""
    row = await _found(call, redrive_id)
    await concerns_selection(call, row.selection_id)
    services = call.services
    try:
        row = await services.store.stop_operation(
            call.fence, operation_id=row.operation_id, actor=call.caller.actor, host_id=services.host.host_id
        )
    except Conflict as over:
        raise conflict("It is done; there is nothing left to stop.") from over
    chosen = await services.store.get_selection(call.tenant_id, row.selection_id)
    return answer(await _read(call, row, chosen))


async def _found(call: Call, text: str) -> OperationRow:
    operation_id = ids.decode(ids.OPERATION, text)
    row = None
    if operation_id is not None:
        row = await call.services.store.get_operation(call.tenant_id, operation_id)
    if row is None or row.action not in LETTER_ACTIONS:
        raise not_found("redrive")
    return row


async def _selection_document(call: Call, row: SelectionRow) -> documents.Document:
    return {
        "selection_id": ids.encode(ids.SELECTION, row.selection_id),
        "action": row.action,
        "filter": msgspec.Raw(row.described),
        "count": row.count,
        "sample": await _sample(call, row.selection_id),
        "hash": row.hash,
        "created_by": row.created_by,
        "created_at": documents.instant(row.created_at),
        "expires_at": documents.instant(row.expires_at),
    }


async def _sample(call: Call, selection_id: uuid.UUID) -> list[documents.Document]:
    sample = await call.services.store.letter_sample(call.tenant_id, selection_id)
    return [letter_document(letter) for letter in sample]


async def _read(call: Call, row: OperationRow, chosen: SelectionRow | None) -> documents.Document:
    store = call.services.store
    document = _document(row, chosen)
    document["sample"] = await _sample(call, row.selection_id)
    document["runs"] = dict(await store.redriven_states(call.tenant_id, row.operation_id))
    return document


def _document(row: OperationRow, chosen: SelectionRow | None) -> documents.Document:
    return {
        "redrive_id": ids.encode(ids.OPERATION, row.operation_id),
        "selection_id": ids.encode(ids.SELECTION, row.selection_id),
        "action": row.action,
        "state": row.state,
        "stage": row.stage,
        "total": row.total,
        "processed": row.position,
        "done": row.done,
        "unchanged": row.unchanged,
        "failed": row.failed,
        "reasons": row.reasons,
        "failures": [{"run_id": run_id, "reason": reason} for run_id, reason in row.failures],
        "max_per_second": row.max_per_second,
        "filter": None if chosen is None else msgspec.Raw(chosen.described),
        "hash": None if chosen is None else chosen.hash,
        "created_by": row.created_by,
        "created_at": documents.instant(row.created_at),
        "finished_at": documents.instant(row.finished_at),
        "stopped_by": row.stopped_by,
        "stop_reason": row.stop_reason,
    }
