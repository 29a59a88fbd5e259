"""Runs: list, read, cancel."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from cells.api import documents, pagination, shapes
from cells.api.finding import RunId, run_key_of
from cells.api.problems import conflict, invalid, not_found, query_fault
from cells.api.queries import RunQuery
from cells.api.routing import Call, Routes, Rule, answer, page
from cells.contract import Scope
from cells.domain import ids
from cells.domain.ids import RunKey
from cells.ports import Conflict, RunRow, Terminal

routes = Routes("Runs")

#: The sort key in a cursor: parent, scheduled instant (epoch seconds), ordinal.
RunPlace = tuple[uuid.UUID, int, int]


def place_of(key: RunKey) -> RunPlace:
    """A run's place in a list."""
    return key.parent_id, int(key.scheduled_for.timestamp()), key.ordinal


def key_at(place: RunPlace) -> RunKey:
    """The run at a place; a 422 if no run can be there."""
    try:
        at = datetime.fromtimestamp(place[1], UTC)
    except (ValueError, OverflowError, OSError):
        raise invalid([query_fault("cursor", "is not a cursor of this API")]) from None
    return RunKey(parent_id=place[0], scheduled_for=at, ordinal=place[2])


@routes.add(
    "GET",
    "/v1/runs",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("One page of runs.", shapes.RunPage)},
)
async def list_runs(call: Call, query: Annotated[RunQuery, Query()]) -> Response:
    """List runs, the newest scheduled first."""
    job_id = ids.decode(ids.JOB, query.job_id) if query.job_id is not None else None
    if query.job_id is not None and job_id is None:
        raise invalid([query_fault("job_id", "is not the id of a job")])
    filters = query.model_dump(mode="json", exclude={"limit", "cursor"})
    after = pagination.read_cursor(query.cursor, "runs", filters, RunPlace)
    rows = await call.services.store.list_runs(
        call.tenant_id,
        job_id=job_id,
        state=query.state,
        target_id=query.target,
        scheduled_from=query.scheduled_from,
        scheduled_until=query.scheduled_until,
        after=key_at(after) if after is not None else None,
        limit=query.limit + 1,
    )
    shown = call.may(Scope.PAYLOADS_READ)
    return page(
        [documents.run_document(row, bodies_shown=shown) for row in rows[: query.limit]],
        path="/v1/runs",
        filters=filters,
        limit=query.limit,
        cursor=pagination.make_cursor("runs", filters, place_of(rows[query.limit - 1].key))
        if len(rows) > query.limit
        else None,
    )


@routes.add(
    "GET",
    "/v1/runs/{run_id:run}",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The run.", shapes.Run)},
    problems=(404,),
)
async def read_run(call: Call, run_id: RunId) -> Response:
    """Read a run with its attempts, and where its time went."""
    return _shown(call, await _found(call, run_id))


@routes.add(
    "POST",
    "/v1/runs/{run_id:run}:cancel",
    Rule(scope=Scope.JOBS_WRITE, writes=True, body_optional=True),
    answers={200: ("The run: CANCELLED if it waited, else with `cancel_requested`.", shapes.Run)},
    problems=(404, 409),
)
async def cancel_run(call: Call, run_id: RunId) -> Response:
    """Cancel a run. One that waits ends at once; one under way is asked to, and not retried.
    Cancelling it again changes nothing."""
    row = await _found(call, run_id)
    if row.state == "CANCELLED" or (row.state == "RUNNING" and row.cancel_requested):
        return _shown(call, row)
    services = call.services
    try:
        after = await services.store.cancel_run(
            call.fence, key=row.key, actor=call.caller.actor, host_id=services.host.host_id
        )
    except Terminal as gone:
        raise not_found("run") from gone
    except Conflict as lost:
        current = await _found(call, run_id)
        raise conflict(f"The run is {current.state.value}; it cannot be cancelled any more.") from lost
    return _shown(call, after)


async def _found(call: Call, run_id: str) -> RunRow:
    row = await call.services.store.get_run(call.tenant_id, run_key_of(run_id))
    if row is None:
        raise not_found("run")
    return row


def _shown(call: Call, row: RunRow) -> Response:
    return answer(documents.run_document(row, bodies_shown=call.may(Scope.PAYLOADS_READ)))
