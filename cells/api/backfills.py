"""Running a stretch of a job's past after all."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from cells.api import documents, idempotency, pagination, shapes
from cells.api.finding import JobId, concerns_parent, found_job, job_id_of
from cells.api.problems import Problem, body_fault, conflict, invalid, not_found, schedule_faults
from cells.api.queries import Page
from cells.api.routing import Call, Routes, Rule, answer, page
from cells.api.texts import Body, Moment, Term
from cells.contract import ErrorCode, Scope
from cells.domain import ids
from cells.domain.faults import ScheduleError
from cells.domain.job import STATUS, JobState, ScheduleType
from cells.domain.schedule import compile_schedule
from cells.ports import Conflict, JobRow
from cells.scheduling import BackfillRow

routes = Routes("Backfills")

#: Occurrences of one backfill, and how far back it may begin.
LIMIT = 10_000
#: Days that a backfill reaches back at most.
_FURTHEST_DAYS = 29
_TICK = timedelta(microseconds=1)

BackfillId = Annotated[str, Path(description="A backfill's id.", examples=["bf_01h455vb4pex5vsknk084sn02q"])]
_Place = tuple[str, uuid.UUID]


class BackfillIn(Body):
    """Which occurrences to run."""

    from_: Moment = Field(alias="from", description="The first instant that counts.")
    until: Moment = Field(description="No occurrence at or after it; the present at most.")
    max_per_second: int = Field(default=10, ge=1, le=1000)
    dry_run: bool = Field(default=False, description="Only say what would run.")


class BackfillQuery(Page):
    """Which backfills to list."""

    job_id: Term | None = None


@routes.add(
    "POST",
    "/v1/jobs/{job_id:name}:backfill",
    Rule(scope=Scope.JOBS_TRIGGER, writes=True),
    answers={
        200: ("What would run; nothing was started.", shapes.BackfillPlan),
        202: ("The backfill has begun, or had under this Idempotency-Key.", shapes.Backfill),
    },
    problems=(404, 409),
    idempotent=True,
)
async def backfill_job(call: Call, job_id: JobId, body: BackfillIn) -> Response:
    """Run the occurrences of a past stretch that did not run.

    Each has the id it would have had, so none runs twice: what has a run, however it ended, is left
    alone, and what was skipped runs after all. `dry_run` says how many there are. The runs start at the
    given pace; a job whose overlap policy is not ALLOW runs one after the other. At most 10,000
    occurrences at a time.
    """
    route = f"POST /v1/jobs/{job_id}:backfill"
    key = idempotency.read_key(call.header(b"idempotency-key"))
    with call.services.in_flight.hold(call.tenant_id, route, key):
        return await _begin(call, job_id, body, route, key)


async def _begin(call: Call, job_id: str, body: BackfillIn, route: str, key: str | None) -> Response:
    services = call.services
    row = await found_job(call, job_id_of(job_id))
    backfill_id = services.fresh_id()
    if key is not None:
        # The same for each retry; a dry run makes none.
        backfill_id = idempotency.job_id_for(
            call.tenant_id, route, key, call.raw_body, store=services.settings.stores.own
        )
        if (known := await services.store.get_backfill(call.tenant_id, backfill_id)) is not None:
            return _begun(known)
    now = services.now()
    # What is not kept here any more could run a second time; a day is left for the backfill itself.
    reach = min(_FURTHEST_DAYS, services.settings.runs_kept_days - 1)
    since, until = _stretch(row, body, now, reach)
    try:
        compiled = compile_schedule(row.definition.schedule)
    except ScheduleError as error:
        raise invalid(schedule_faults(error)) from None
    total = compiled.count(since - _TICK, until - _TICK)
    if total > LIMIT:
        raise invalid(
            [body_fault("/until", f"{total} occurrences lie before it; one backfill has at most {LIMIT}")]
        )
    if body.dry_run:
        call.strict = False  # nothing is written
        first = compiled.next(since - _TICK) if total else None
        last = compiled.latest(first.at, until - _TICK) if first is not None else None
        present, skipped = await services.store.backfill_facts(call.tenant_id, row.job_id, since, until)
        left = max(0, total - present)
        return answer(
            {
                "job_id": documents.job_text(row.job_id),
                "from": documents.instant(since),
                "until": documents.instant(until),
                "occurrences": total,
                "present": present,
                "skipped_rows": skipped,
                "to_run": left,
                "limit": LIMIT,
                "first": documents.instant(first.at) if first is not None else None,
                "last": documents.instant(last),
                "seconds": -(-left // body.max_per_second),
                "max_per_second": body.max_per_second,
            }
        )
    if not total:
        raise invalid([body_fault("/from", "the schedule has no occurrence between from and until")])
    started = await services.store.start_backfill(
        call.fence,
        backfill_id=backfill_id,
        job=row,
        from_at=since,
        until_at=until,
        total=total,
        max_per_second=body.max_per_second,
        actor=call.caller.actor,
        host_id=services.host.host_id,
        idempotency=idempotency.keyed(route, key, call.raw_body),
    )
    return _begun(started)


def _begun(row: BackfillRow) -> Response:
    document = _document(row)
    return answer(document, 202, {"Location": f"/v1/backfills/{document['backfill_id']}"})


def _stretch(row: JobRow, body: BackfillIn, now: datetime, reach: int) -> tuple[datetime, datetime]:
    """What of the stretch is past: the occurrence that the job waits for is its own to run."""
    if row.state is JobState.CANCELLED:
        raise conflict(f"The job is {STATUS[row.state]}; its occurrences cannot be run.")
    if row.definition.schedule.type is ScheduleType.NOW:
        raise Problem(422, ErrorCode.INVALID, "A NOW job has no occurrences; trigger it.")
    since, until = body.from_, min(body.until, now)
    if row.state is JobState.ACTIVE and row.next_run_at is not None:
        until = min(until, row.next_run_at)
    faults = []
    if body.from_ >= body.until:
        faults.append(body_fault("/from", "must lie before until"))
    elif since >= until:
        faults.append(body_fault("/from", "must lie in the past, before what the job waits for"))
    elif since < now - timedelta(days=reach):
        faults.append(body_fault("/from", f"lies more than {reach} days back"))
    if faults:
        raise invalid(faults)
    return since, until


@routes.add(
    "GET",
    "/v1/backfills",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("One page of backfills.", shapes.BackfillPage)},
)
async def list_backfills(call: Call, query: Annotated[BackfillQuery, Query()]) -> Response:
    """List backfills, the newest first."""
    filters = query.model_dump(mode="json", exclude={"limit", "cursor"})
    after = pagination.read_cursor(query.cursor, "backfills", filters, _Place)
    rows = await call.services.store.list_backfills(
        call.tenant_id,
        job_id=job_id_of(query.job_id) if query.job_id is not None else None,
        after=(pagination.read_instant(after[0]), after[1]) if after is not None else None,
        limit=query.limit + 1,
    )
    cursor = None
    if len(rows) > query.limit:
        last = rows[query.limit - 1]
        place = (pagination.instant_key(last.created_at), last.backfill_id)
        cursor = pagination.make_cursor("backfills", filters, place)
    return page(
        [_document(row) for row in rows[: query.limit]],
        path="/v1/backfills",
        filters=filters,
        limit=query.limit,
        cursor=cursor,
    )


@routes.add(
    "GET",
    "/v1/backfills/{backfill_id:name}",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The backfill and how far it is.", shapes.Backfill)},
    problems=(404,),
)
async def read_backfill(call: Call, backfill_id: BackfillId) -> Response:
    """Read a backfill: progress while it runs, its summary afterwards."""
    return answer(_document(await _found(call, backfill_id)))


@routes.add(
    "POST",
    "/v1/backfills/{backfill_id:name}:stop",
    Rule(scope=Scope.JOBS_TRIGGER, writes=True, body_optional=True),
    answers={200: ("The backfill is stopped.", shapes.Backfill)},
    problems=(404, 409),
)
async def stop_backfill(call: Call, backfill_id: BackfillId) -> Response:
    """Stop a backfill. What it has started runs; the rest is as it was."""
    row = await _found(call, backfill_id)
    await concerns_parent(call, row.job_id)
    services = call.services
    try:
        after = await services.store.stop_backfill(
            call.fence,
            backfill_id=row.backfill_id,
            actor=call.caller.actor,
            host_id=services.host.host_id,
        )
    except Conflict as over:
        raise conflict("The backfill is done; there is nothing left to stop.") from over
    return answer(_document(after))


async def _found(call: Call, text: str) -> BackfillRow:
    backfill_id = ids.decode(ids.BACKFILL, text)
    row = None
    if backfill_id is not None:
        row = await call.services.store.get_backfill(call.tenant_id, backfill_id)
    if row is None:
        raise not_found("backfill")
    return row


def _document(row: BackfillRow) -> documents.Document:
    return {
        "backfill_id": ids.encode(ids.BACKFILL, row.backfill_id),
        "job_id": documents.job_text(row.job_id),
        "from": documents.instant(row.from_at),
        "until": documents.instant(row.until_at),
        "state": row.state,
        "total": row.total,
        "processed": row.started + row.present,
        "started": row.started,
        "replaced": row.replaced,
        "present": row.present,
        "cursor": documents.instant(row.cursor_at),
        "reason": row.reason,
        "max_per_second": row.max_per_second,
        "created_by": row.created_by,
        "created_at": documents.instant(row.created_at),
        "finished_at": documents.instant(row.finished_at),
        "stopped_by": row.stopped_by,
    }
