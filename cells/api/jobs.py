"""Jobs: create, list, read. Their changes are in `job_changes.py`."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import datetime
from typing import Annotated

import msgspec
from fastapi import Query
from starlette.responses import Response

from cells.api import building, documents, idempotency, pagination, scheduling, shapes
from cells.api.finding import JobId, found_job, job_id_of
from cells.api.holdups import holdup_of
from cells.api.judging import judged, more_faults
from cells.api.models import JobIn
from cells.api.problems import key_reused
from cells.api.queries import JobQuery
from cells.api.routing import Call, Routes, Rule, answer, page
from cells.contract import Scope
from cells.domain.job import Misfire, ScheduleType
from cells.ports import Created, JobFilter, JobRow, NewJob

routes = Routes("Jobs")

_CREATE = "POST /v1/jobs"
_RECENT = 10
#: The sort key in a cursor: when it was created (epoch microseconds), and its id.
_Place = tuple[int, uuid.UUID]


# --- create ------------------------------------------------------------------------------
@routes.add(
    "POST",
    "/v1/jobs",
    Rule(scope=Scope.JOBS_WRITE, writes=True, also=more_faults),
    answers={
        201: ("The job was created.", shapes.JobCreated),
        200: ("The job was there under this Idempotency-Key; the answer of then.", shapes.JobCreated),
    },
    problems=(409, 413, 429),
    idempotent=True,
)
async def create_job(call: Call, body: JobIn) -> Response:
    """Create a job.

    The answer does not repeat the payload. `notes` says what a client may not expect, such as a
    one-off time that is past.
    """
    services = call.services
    now = services.now()
    wanted = await judged(
        call,
        body,
        schedule=lambda: scheduling.checked_schedule(call, body.schedule, now),
        payload=call.payload,
    )
    key = idempotency.read_key(call.header(b"idempotency-key"))
    if key is None:
        job_id = services.fresh_id()
    else:
        job_id = idempotency.job_id_for(
            call.tenant_id, _CREATE, key, call.raw_body, store=services.settings.stores.own
        )
    job = building.new_job(
        job_id=job_id,
        definition=wanted.definition,
        payload=wanted.payload,
        config=call.tenant.config,
        now=now,
        actor=call.caller.actor,
        traceparent=call.traceparent,
        state=building.first_state(body),
    )
    call.concerns(job.definition.region_policy)
    document = documents.job_document(
        job_id=job_id,
        definition=job.definition,
        state=job.state,
        version=1,
        next_run_at=job.next_run_at,
        due_at=job.due_at,
        created_at=now,
        updated_at=now,
    )
    document["payload_hidden"] = True
    document["notes"] = _notes(job, now)
    shown = msgspec.json.encode(document)
    location = {"Location": f"/v1/jobs/{document['job_id']}", "ETag": '"1"'}
    if key is None:
        await services.creator.create(call.fence, job)
    else:
        keyed = dataclasses.replace(
            job,
            idempotency_route=_CREATE,
            idempotency_key=key,
            fingerprint=idempotency.fingerprint(call.raw_body),
            answer=shown,
        )
        with services.in_flight.hold(call.tenant_id, _CREATE, key):
            created = await services.creator.create(call.fence, keyed)
        if created.key_reused:
            raise key_reused()
        if not created.created:
            return await _replayed(call, job_id, created, location)
    member = building.member_of(job, call.tenant_id, version=1)
    if member is not None:
        services.feed.add((member,))
    return answer(shown, 201, location, encoded=True)


def _notes(job: NewJob, now: datetime) -> list[str]:
    definition = job.definition
    if definition.schedule.type is not ScheduleType.ONCE or job.next_run_at is None or job.next_run_at >= now:
        return []
    late = (now - job.next_run_at).total_seconds()
    if definition.misfire_policy is Misfire.SKIP and late > (definition.misfire_grace_seconds or 60):
        return ["run_at is past: it will be recorded as SKIPPED, because misfire_policy is SKIP."]
    policy = definition.misfire_policy.value
    return [f"run_at is past: the job runs as soon as its window allows, because misfire_policy is {policy}."]


async def _replayed(call: Call, job_id: uuid.UUID, created: Created, location: dict[str, str]) -> Response:
    headers = location | {"Idempotency-Replayed": "true"}
    if created.answer is not None:
        return answer(created.answer, 200, headers, encoded=True)
    # The record of the key has been purged, but the job it made is there.
    row = await found_job(call, job_id)
    return answer(
        documents.job_row_document(row, payload_shown=False),
        200,
        headers | {"ETag": f'"{row.version}"'},
    )


# --- read --------------------------------------------------------------------------------
@routes.add(
    "GET",
    "/v1/jobs",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("One page of jobs.", shapes.JobPage)},
)
async def list_jobs(call: Call, query: Annotated[JobQuery, Query()]) -> Response:
    """List jobs, the newest first, without their payloads."""
    filters = query.model_dump(mode="json", exclude={"limit", "cursor", "include"})
    after = pagination.read_cursor(query.cursor, "jobs", filters, _Place)
    rows = await call.services.store.list_jobs(
        call.tenant_id,
        JobFilter(
            state=query.job_state(),
            target_id=query.target,
            tag=query.tag,
            name_prefix=query.name_prefix,
            due_from=query.due_from,
            due_until=query.due_until,
        ),
        after=(pagination.read_instant(after[0]), after[1]) if after is not None else None,
        limit=query.limit + 1,
    )
    # Without payloads: 200 of them could be 50 MiB.
    shown = {row.job_id: documents.job_row_document(row, payload_shown=False) for row in rows[: query.limit]}
    if query.include is not None:
        last = await call.services.store.last_runs(call.tenant_id, list(shown), now=call.services.now())
        for job_id, document in shown.items():
            document["last_run"] = documents.recent_run(last[job_id]) if job_id in last else None
    return page(
        list(shown.values()),
        path="/v1/jobs",
        filters=filters | {"include": query.include},
        limit=query.limit,
        cursor=pagination.make_cursor("jobs", filters, _place(rows[query.limit - 1]))
        if len(rows) > query.limit
        else None,
    )


def _place(row: JobRow) -> _Place:
    return pagination.instant_key(row.created_at), row.job_id


@routes.add(
    "GET",
    "/v1/jobs/{job_id:name}",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The job and its latest runs.", shapes.JobRead)},
    problems=(404,),
)
async def read_job(call: Call, job_id: JobId) -> Response:
    """Read a job with its ten latest runs."""
    row = await found_job(call, job_id_of(job_id))
    return answer(await read_document(call, row), headers={"ETag": f'"{row.version}"'})


async def read_document(call: Call, row: JobRow) -> documents.Document:
    """A job with its latest runs."""
    runs = await call.services.store.list_runs(call.tenant_id, job_id=row.job_id, limit=_RECENT)
    document = documents.job_row_document(row, payload_shown=call.may(Scope.PAYLOADS_READ))
    document["recent_runs"] = [documents.recent_run(run) for run in runs]
    now = call.services.now()
    member = building.member_of(row, call.tenant_id, version=row.version)
    due = member is not None and row.due_at is not None and row.due_at <= now
    document["waiting"] = await holdup_of(call, member, now) if member is not None and due else None
    return document
