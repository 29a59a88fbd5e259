"""Workflows: starting them, and reading how they stand."""

from __future__ import annotations

import re
import uuid
from typing import Annotated

from fastapi import Path, Query
from starlette.responses import Response

from cells.api import pagination, shapes
from cells.api.building import NEEDS_REGIONS, no_definition
from cells.api.documents import Document, instant
from cells.api.history import find_workflows
from cells.api.problems import body_fault, conflict, invalid, not_found, too_large, unavailable
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.workflow_documents import (
    event_document,
    events_of,
    read_events,
    shows_values,
    standing,
    timeline,
    workflow_document,
)
from cells.api.workflow_models import (
    RESERVED_IDS,
    WORKFLOW_ID_PATTERN,
    HistoryQuery,
    StartIn,
    WorkflowQuery,
    WorkflowsQuery,
)
from cells.contract import Scope
from cells.domain import ids
from cells.domain.job import STRICT
from cells.domain.workflow.folding import fold
from cells.workflow_ports import WorkflowFilter, WorkflowRow
from cells.workflows.effects import execution_of, input_hash

routes = Routes("Workflows")

#: Bytes of a workflow's input.
INPUT_LIMIT = 256 * 1024
_ID = re.compile(WORKFLOW_ID_PATTERN)
_Place = tuple[int, uuid.UUID]

WorkflowIdPath = Annotated[str, Path(description="The id its starter chose.", examples=["order-88213"])]


@routes.add(
    "POST",
    "/v1/workflows",
    Rule(scope=Scope.WORKFLOWS_WRITE, writes=True),
    answers={
        201: ("It runs.", shapes.WorkflowStarted),
        200: ("The same start began it before.", shapes.WorkflowStarted),
    },
    problems=(404, 409, 429),
)
async def start_workflow(call: Call, body: StartIn) -> Response:
    """Start a workflow. The same start again (id, definition, version as asked for, and input) answers the
    workflow that it began; another start while one is open under the id is 409 WORKFLOW_ID_IN_USE. Once that
    one is closed another start begins another workflow under the id, unless `id_reuse` is REJECT: `previous`
    tells which had it before."""
    services = call.services
    if len(call.raw_body) > INPUT_LIMIT:
        raise too_large(f"A start has at most {INPUT_LIMIT} bytes.")
    if body.workflow_id in RESERVED_IDS:
        raise invalid([body_fault("/workflow_id", "is the name of a report; choose another")])
    known = await services.known_definitions.find(call.tenant_id, body.definition, body.version)
    if known is None:
        raise invalid([body_fault("/definition", no_definition(body.definition, body.version))])
    if known.region_policy == STRICT and not services.settings.leased:
        raise conflict(f"{body.definition} {known.version} cannot be started here: {NEEDS_REGIONS}.")
    new = execution_of(
        run_id=ids.workflow_run_id(services.fresh_id()),
        workflow_id=body.workflow_id,
        definition=body.definition,
        version=known.version,
        region_policy=known.region_policy,
        given=body.input,
        hash_=input_hash(body.definition, body.version, body.input),
        at_ms=services.clock.now_ms(),
        reuse=body.id_reuse == "ALLOW_CLOSED",
    )
    (begun,) = await services.starts.put([(call.fence, new)])
    if isinstance(begun, Exception):
        raise begun
    row, created = begun
    call.concerns(row.region_policy or known.region_policy)
    document = {
        "workflow_id": row.workflow_id,
        "run_id": ids.encode(ids.WORKFLOW_RUN, row.run_id),
        "status": row.status,
        "home_region": services.settings.region,
        "definition": row.definition,
        "version": row.version,
        "previous": _before(row.previous),
    }
    return answer(document, 201 if created else 200, {"Location": f"/v1/workflows/{row.workflow_id}"})


def _before(previous: WorkflowRow | None) -> Document | None:
    if previous is None:
        return None
    return {
        "run_id": ids.encode(ids.WORKFLOW_RUN, previous.run_id),
        "status": previous.status,
        "closed_at": instant(previous.closed_at),
    }


@routes.add(
    "GET",
    "/v1/workflows",
    Rule(scope=Scope.WORKFLOWS_READ),
    answers={200: ("Workflows, the latest start first.", shapes.WorkflowPage)},
)
async def list_workflows(call: Call, query: Annotated[WorkflowsQuery, Query()]) -> Response:
    """List executions of workflows; those too that are only in the history by now. A page may be short, even
    empty, and have more behind it."""
    filters = {"status": query.status, "definition": query.definition, "prefix": query.prefix}
    place: _Place | None = pagination.read_cursor(query.cursor, "workflows", filters, _Place)
    found = await find_workflows(
        call,
        WorkflowFilter(status=query.status, definition=query.definition, prefix=query.prefix),
        after=None if place is None else (pagination.read_instant(place[0]), place[1]),
        limit=query.limit + 1,
    )
    rows = list(found.rows)
    reached = found.reached
    if len(rows) > query.limit:
        rows = rows[: query.limit]
        reached = rows[-1].started_at, rows[-1].run_id
    cursor = None
    if reached is not None:
        cursor = pagination.make_cursor(
            "workflows", filters, (pagination.instant_key(reached[0]), reached[1])
        )
    shown, region = shows_values(call), call.services.settings.region
    return answer(
        {
            "items": [workflow_document(row, region=region, values_shown=shown) for row in rows],
            "next_cursor": cursor,
            "looked_back_to": None if found.reached is None else instant(found.reached[0]),
        },
        headers=pagination.next_link("/v1/workflows", filters, query.limit, cursor),
    )


@routes.add(
    "GET",
    "/v1/workflows/{workflow_id:name}",
    Rule(scope=Scope.WORKFLOWS_READ),
    answers={200: ("The workflow.", shapes.WorkflowRead)},
    problems=(404,),
)
async def read_workflow(
    call: Call, workflow_id: WorkflowIdPath, query: Annotated[WorkflowQuery, Query()]
) -> Response:
    """Read where a workflow stands: the open execution of that id, else the latest; or an earlier one."""
    row = await found_workflow(call, workflow_id, query.run_id)
    document = workflow_document(row, region=call.services.settings.region, values_shown=shows_values(call))
    execution = fold(await read_events(call, row))
    return answer({**document, **standing(execution), "takeovers": row.takeovers})


@routes.add(
    "GET",
    "/v1/workflows/{workflow_id:name}/history",
    Rule(scope=Scope.WORKFLOWS_READ),
    answers={200: ("Events in their order.", shapes.WorkflowHistory)},
    problems=(404,),
)
async def read_workflow_history(
    call: Call, workflow_id: WorkflowIdPath, query: Annotated[HistoryQuery, Query()]
) -> Response:
    """Read what was recorded. Every decision follows from it."""
    row = await found_workflow(call, workflow_id, query.run_id)
    events = await events_of(call, row, after=query.after, limit=query.limit + 1)
    more = len(events) > query.limit
    events = events[: query.limit]
    shown = shows_values(call)
    return answer(
        {
            "workflow_id": row.workflow_id,
            "run_id": ids.encode(ids.WORKFLOW_RUN, row.run_id),
            "items": [event_document(event, values_shown=shown) for event in events],
            "next_after": events[-1].seq if more else None,
        }
    )


@routes.add(
    "GET",
    "/v1/workflows/{workflow_id:name}/timeline",
    Rule(scope=Scope.WORKFLOWS_READ),
    answers={200: ("Steps by their beginning.", shapes.WorkflowTimeline)},
    problems=(404,),
)
async def read_workflow_timeline(
    call: Call, workflow_id: WorkflowIdPath, query: Annotated[WorkflowQuery, Query()]
) -> Response:
    """Read when each step began, waited, ran and ended."""
    row = await found_workflow(call, workflow_id, query.run_id)
    execution = fold(await read_events(call, row))
    runs = await call.services.store.workflow_runs(call.tenant_id, row.run_id)
    return answer(
        {
            "workflow_id": row.workflow_id,
            "run_id": ids.encode(ids.WORKFLOW_RUN, row.run_id),
            "steps": timeline(row, execution, runs),
        }
    )


async def found_workflow(call: Call, workflow_id: str, run_id: str | None = None) -> WorkflowRow:
    """The caller's workflow of that id, or 404."""
    run = None if run_id is None else ids.decode(ids.WORKFLOW_RUN, run_id)
    row = None
    if _ID.fullmatch(workflow_id) and (run_id is None or run is not None):
        row = await call.services.store.get_workflow(call.tenant_id, workflow_id, run)
        if row is None:
            row = await _in_the_lake(call, workflow_id, run)
    if row is None:
        raise not_found("workflow")
    return row


async def present_workflow(call: Call, workflow_id: str, run_id: str | None = None) -> WorkflowRow:
    """The same for one that is to hear something, or to change: 409 where it ended so long ago that its
    history is in the lake."""
    run = None if run_id is None else ids.decode(ids.WORKFLOW_RUN, run_id)
    if not _ID.fullmatch(workflow_id) or (run_id is not None and run is None):
        raise not_found("workflow")
    store = call.services.store
    row = await store.get_workflow(call.tenant_id, workflow_id, run)
    if row is None and await store.workflow_has_left(call.tenant_id, workflow_id):
        raise conflict("The workflow ended long ago: only its history is kept.")
    if row is None:
        raise not_found("workflow")
    return row


async def _in_the_lake(call: Call, workflow_id: str, run_id: uuid.UUID | None) -> WorkflowRow | None:
    history = call.services.history
    if history is None or not await call.services.store.workflow_has_left(call.tenant_id, workflow_id):
        return None
    try:
        return await history.get_workflow(call.tenant_id, workflow_id, run_id)
    except TimeoutError as slow:
        raise unavailable("The history takes too long to answer; try again.") from slow
