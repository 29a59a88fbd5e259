"""Runs: list, read, cancel."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from cells.api import documents, history, pagination, shapes
from cells.api.finding import RunId, concerns_parent, run_key_of
from cells.api.holdups import holdup_of
from cells.api.problems import conflict, invalid, not_found, query_fault
from cells.api.queries import RunQuery
from cells.api.routing import Call, Routes, Rule, answer
from cells.contract import Scope
from cells.domain import ids
from cells.domain.ids import RunKey
from cells.domain.run import TERMINAL, RunKind, RunState, run_generation
from cells.ports import Conflict, Member, RunFilter, RunRow, Terminal

routes = Routes("Runs")

#: Between an occurrence and its run's end, unless a caller says that it looks for something older.
_LONGEST = timedelta(days=1)
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
    """List runs, the newest scheduled first.

    State, target, due and finished times are looked for among the runs of the scheduled range, 20,000
    of them for a page at most: a page may be short and yet have a `next_cursor`. `looked_back_to` says
    how far it looked. Runs of more than a month ago come from the history, searched for a bounded time.
    """
    where = _where(query)
    filters = query.model_dump(mode="json", exclude={"limit", "cursor"})
    after = pagination.read_cursor(query.cursor, "runs", filters, RunPlace)
    found = await history.find_runs(
        call,
        where,
        after=key_at(after) if after is not None else None,
        limit=query.limit + 1,
    )
    runs = found.runs[: query.limit]
    last = runs[-1].key if len(found.runs) > query.limit else found.reached
    cursor = pagination.make_cursor("runs", filters, place_of(last)) if last is not None else None
    back_to = found.reached.scheduled_for if found.reached is not None else where.scheduled_from
    shown = call.may(Scope.PAYLOADS_READ)
    return answer(
        {
            "items": [documents.run_document(row, bodies_shown=shown) for row in runs],
            "next_cursor": cursor,
            "looked_back_to": documents.instant(back_to),
        },
        headers=pagination.next_link("/v1/runs", filters, query.limit, cursor),
    )


def _where(query: RunQuery) -> RunFilter:
    """What is asked for. A range of times that are in no index implies one of scheduled times, which
    are: nothing is due or ends before it is scheduled, and few things long after."""
    faults = [
        query_fault(f"{name}_from", f"must lie before {name}_until")
        for name in ("scheduled", "due", "finished")
        if (begin := getattr(query, f"{name}_from")) is not None
        and (end := getattr(query, f"{name}_until")) is not None
        and begin >= end
    ]
    job_id = ids.decode(ids.JOB, query.job_id) if query.job_id is not None else None
    if query.job_id is not None and job_id is None:
        faults.append(query_fault("job_id", "is not the id of a job"))
    if faults:
        raise invalid(faults)
    begins = [at for at in (query.due_from, query.finished_from) if at is not None]
    ends = [at for at in (query.scheduled_until, query.due_until, query.finished_until) if at is not None]
    return RunFilter(
        job_id=job_id,
        states=query.states(),
        target_id=query.target,
        scheduled_from=query.scheduled_from or (_a_day_before(max(begins)) if begins else None),
        scheduled_until=min(ends, default=None),
        due_from=query.due_from,
        due_until=query.due_until,
        finished_from=query.finished_from,
        finished_until=query.finished_until,
    )


def _a_day_before(at: datetime) -> datetime | None:
    try:
        return at - _LONGEST
    except OverflowError:
        return None  # before all time


@routes.add(
    "GET",
    "/v1/runs/{run_id:run}",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The run.", shapes.RunRead)},
    problems=(404,),
)
async def read_run(call: Call, run_id: RunId) -> Response:
    """Read a run with its attempts, and where its time went."""
    row = await _found(call, run_id)
    now = call.services.now()
    waiting = None
    if is_due(row, now):
        waiting = await holdup_of(call, member_of_run(call.tenant_id, row), now)
    document = documents.run_document(row, bodies_shown=call.may(Scope.PAYLOADS_READ))
    callbacks = (
        await call.services.store.callbacks_of(call.tenant_id, row.key) if row.kind == RunKind.JOB else []
    )
    document["callbacks"] = [documents.callback_document(callback) for callback in callbacks]
    return answer(document | {"waiting": waiting})


def is_due(row: RunRow, now: datetime) -> bool:
    """Whether a run waits though its time has come."""
    if row.state in (RunState.DUE, RunState.RETRY_WAIT):
        return row.timer_at is not None and row.timer_at <= now
    return row.state is RunState.READY


def member_of_run(tenant_id: uuid.UUID, row: RunRow) -> Member:
    """The timer of a waiting run, as the queue knows it."""
    return Member(
        tenant_id=tenant_id,
        parent_id=row.key.parent_id,
        scheduled_for=int(row.key.scheduled_for.timestamp()),
        ordinal=row.key.ordinal,
        is_run=True,
        generation=run_generation(row.series, row.attempt),
        priority=row.priority,
        due_ms=0,  # no part of what it is known by
        shard=ids.shard_of(row.key.parent_id),
    )


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
    await concerns_parent(call, row.key.parent_id)
    if row.state == "CANCELLED" or (row.state == "RUNNING" and row.cancel_requested):
        return _shown(call, row)
    services = call.services
    if row.state in TERMINAL:
        raise conflict(f"The run is {row.state.value}; it cannot be cancelled any more.")
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
    row = await history.find_run(call, run_key_of(run_id))
    if row is None:
        raise not_found("run")
    return row


def _shown(call: Call, row: RunRow) -> Response:
    return answer(documents.run_document(row, bodies_shown=call.may(Scope.PAYLOADS_READ)))
