"""Jobs by the key their client gave them: declared by deploys, read and cancelled."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from fastapi import Path
from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from cells.api import building, documents, scheduling, shapes
from cells.api.finding import check_version
from cells.api.job_changes import requeue, set_state
from cells.api.jobs import read_document
from cells.api.judging import Judged, fixed_for_life, judged, read_job
from cells.api.models import JobIn
from cells.api.problems import Problem, body_fault, conflict, invalid, not_found, schedule_faults
from cells.api.reading import Fields, take_payload
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.texts import Name
from cells.contract import ErrorCode, Scope
from cells.domain.faults import ScheduleError
from cells.domain.job import STATUS, JobDefinition, JobState, Schedule, ScheduleType
from cells.domain.schedule import anchored, normalise
from cells.ports import AllowanceExceeded, Conflict, JobRow, NewJob, QuotaExceeded

routes = Routes("Jobs")

JobKey = Annotated[
    str, Path(description="The job's `key`, percent-encoded.", examples=["nightly-report"], max_length=200)
]

#: A declaration that meets other writers is compared with their outcome again this often.
_TRIES = 8

_key: TypeAdapter[str] = TypeAdapter(Name)
_ETAG = re.compile(r'(?:W/)?"(\d{1,9})"')


@routes.add(
    "PUT",
    "/v1/jobs/by-key/{key:key}",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={
        201: ("The job was created.", shapes.JobDeclared),
        200: ("The job is as declared; `changed` says whether it had to be edited.", shapes.JobDeclared),
    },
    problems=(409, 412, 413, 429),
    body=JobIn,
    etag=True,
)
async def declare_job(call: Call, key: JobKey) -> Response:
    """Make the job under a key be what the body says, whether it is there or not.

    Meant for deploys: sending the same again changes nothing and makes no version. What the body
    leaves out has its default; a RATE without `start_at` keeps the anchor it has. A paused job is
    edited and stays paused. A completed one runs again if its schedule is another one now, a
    cancelled one always, from its first occurrence after now. Two declarations at once make one job.
    `If-None-Match: *` only creates, `If-Match` only edits.
    """
    fields = call.fields()
    _under(fields, key)
    payload = take_payload(fields)
    given = await read_job(call, fields)
    for _ in range(_TRIES):
        row = await call.services.store.get_job_by_key(call.tenant_id, key)
        _check_conditions(call, row)
        try:
            if row is None:
                return await _created(call, given, payload)
            return await _brought_up(call, row, given, payload)
        except (AllowanceExceeded, QuotaExceeded):
            raise
        except Conflict:
            continue  # somebody was faster: look at what they made of it
    raise conflict("The job is being changed by others at the same time; try again.")


def _under(fields: Fields, key: str) -> None:
    try:
        _key.validate_python(key)
    except ValidationError:
        raise invalid(
            [body_fault("/key", "a key has 1 to 200 characters, none of them control ones")]
        ) from None
    text = msgspec.json.encode(key)
    given = fields.get("key")
    if given is not None and bytes(given) != b"null" and _decoded(given) != key:
        raise invalid([body_fault("/key", "differs from the key in the path")])
    fields["key"] = msgspec.Raw(text)


def _decoded(raw: msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        return None


def _check_conditions(call: Call, row: JobRow | None) -> None:
    """If-Match and If-None-Match (RFC 9110), or 412."""
    if row is None:
        if call.header(b"if-match") is not None:
            raise Problem(412, ErrorCode.PRECONDITION_FAILED, "There is no job under this key.")
        return
    unwanted = call.header(b"if-none-match")
    if unwanted is not None:
        parts = [part.strip() for part in unwanted.split(",")]
        matches = [_ETAG.fullmatch(part) for part in parts]
        if "*" in parts or any(match is not None and int(match[1]) == row.version for match in matches):
            raise Problem(
                412,
                ErrorCode.PRECONDITION_FAILED,
                f"There is a job under this key already, at version {row.version}.",
                extra={"version": row.version, "job_id": documents.job_text(row.job_id)},
                headers={"ETag": f'"{row.version}"'},
            )
    check_version(call, row.version)


async def _created(call: Call, given: JobIn, payload: bytes | None) -> Response:
    services = call.services
    now = services.now()
    wanted = await judged(
        call,
        given,
        schedule=lambda: scheduling.checked_schedule(call, given.schedule, now),
        payload=payload,
    )
    job = building.new_job(
        job_id=services.fresh_id(),
        definition=wanted.definition,
        payload=wanted.payload,
        config=call.tenant.config,
        now=now,
        actor=call.caller.actor,
        traceparent=call.traceparent,
        state=building.first_state(given),
    )
    call.concerns(job.definition.region_policy)
    await services.creator.create(call.fence, job)
    member = building.member_of(job, call.tenant_id, version=1)
    if member is not None:
        services.feed.add((member,))
    document = documents.job_document(
        job_id=job.job_id,
        definition=job.definition,
        state=job.state,
        version=1,
        next_run_at=job.next_run_at,
        due_at=job.due_at,
        created_at=now,
        updated_at=now,
    )
    document |= {"payload_hidden": True, "changed": True}
    return answer(document, 201, {"Location": f"/v1/jobs/{document['job_id']}", "ETag": '"1"'})


async def _brought_up(call: Call, row: JobRow, given: JobIn, payload: bytes | None) -> Response:
    call.concerns(row.definition.region_policy)
    wanted, payload = await _wanted(call, row, given, payload)
    same = wanted == row.definition and _compact(payload) == _compact(row.payload)
    if same and row.state is not JobState.CANCELLED:
        return _shown(call, row, changed=False)
    edited, revive = _edited(call, row, wanted, payload, building.first_state(given))
    services = call.services
    after = await services.store.edit_job(
        call.fence,
        base_version=row.version,
        seen_next_run_at=row.next_run_at,
        job=edited,
        host_id=services.host.host_id,
        now=services.now(),
        revive=revive,
    )
    requeue(call, row, after)
    return _shown(call, after, changed=True)


async def _wanted(call: Call, row: JobRow, given: JobIn, payload: bytes | None) -> Judged:
    old = row.definition
    return await judged(
        call,
        given,
        schedule=lambda: _schedule(call, old.schedule, given),
        payload=payload,
        region_policy=old.region_policy,
        also=fixed_for_life(given, old),
    )


async def _schedule(call: Call, old: Schedule, given: JobIn) -> Schedule:
    now = call.services.now()
    try:
        asked = await scheduling.with_calendar(call, scheduling.to_schedule(given.schedule))
        if asked.type is old.type is ScheduleType.RATE and asked.start_at is None:
            asked = msgspec.structs.replace(asked, start_at=old.start_at)
        if anchored(asked, now) == old:
            return old  # perhaps over by now, which is no fault of a declaration that was there before
        return normalise(asked, now)
    except ScheduleError as error:
        raise invalid(schedule_faults(error)) from None


def _edited(
    call: Call, row: JobRow, wanted: JobDefinition, payload: bytes | None, first_state: JobState
) -> tuple[NewJob, bool]:
    """The job as declared, and whether it comes back to life."""
    same_schedule = wanted.schedule == row.definition.schedule
    over = row.state is JobState.DONE and same_schedule
    revive = row.state in (JobState.CANCELLED, JobState.DONE) and not over
    if revive and same_schedule:
        # It was declared before, and may have ended in the meantime.
        scheduling.check_runs_again(wanted.schedule, call.services.now())
    edited = building.new_job(
        job_id=row.job_id,
        definition=wanted,
        payload=payload,
        config=call.tenant.config,
        now=call.services.now(),
        actor=call.caller.actor,
        traceparent=call.traceparent,
        state=first_state if revive else row.state,
        keep=row if same_schedule and not revive else None,
    )
    return edited, revive


def _compact(payload: bytes | None) -> bytes | None:
    """Equal for payloads that differ in white space only."""
    return None if payload is None else msgspec.json.format(payload, indent=-1)


def _shown(call: Call, row: JobRow, *, changed: bool) -> Response:
    document = documents.job_row_document(row, payload_shown=call.may(Scope.PAYLOADS_READ))
    document["changed"] = changed
    headers = {"Location": f"/v1/jobs/{document['job_id']}", "ETag": f'"{row.version}"'}
    return answer(document, 200, headers)


@routes.add(
    "GET",
    "/v1/jobs/by-key/{key:key}",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The job and its latest runs.", shapes.JobRead)},
    problems=(404,),
)
async def read_job_by_key(call: Call, key: JobKey) -> Response:
    """Read the job under a key with its ten latest runs."""
    row = await _found(call, key)
    return answer(await read_document(call, row), headers={"ETag": f'"{row.version}"'})


@routes.add(
    "DELETE",
    "/v1/jobs/by-key/{key:key}",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={200: ("The job is cancelled.", shapes.JobStatus)},
    problems=(404, 409, 412),
    etag=True,
)
async def cancel_job_by_key(call: Call, key: JobKey) -> Response:
    """Cancel the job under a key and its waiting runs. The key stays its own: declared again, the
    same job runs again."""
    row = await _found(call, key)
    after = await set_state(call, row, JobState.CANCELLED)
    return answer({"job_id": documents.job_text(after.job_id), "status": STATUS[after.state]})


async def _found(call: Call, key: str) -> JobRow:
    row = None
    if len(key) <= 200 and "\0" not in key:
        row = await call.services.store.get_job_by_key(call.tenant_id, key)
    if row is None:
        raise not_found("job")
    call.concerns(row.definition.region_policy)
    return row
