"""Changes of jobs: edit, cancel, pause, resume, trigger."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from cells.api import building, documents, idempotency, scheduling, shapes
from cells.api.finding import JobId, check_version, found_job, job_id_of
from cells.api.judging import fixed_for_life, judged, read_job
from cells.api.models import JobPatch, TriggerIn
from cells.api.problems import Problem, body_fault, conflict, invalid, of_exception
from cells.api.reading import Fields, take_payload
from cells.api.routing import Call, Routes, Rule, answer
from cells.contract import ErrorCode, Scope
from cells.domain.job import STATUS, JobState
from cells.domain.resuming import resumes_at
from cells.domain.windows import due_at
from cells.ports import AllowanceExceeded, Conflict, JobRow, NewJob, QuotaExceeded

routes = Routes("Jobs")

#: An edit without If-Match is merged again this often when another edit was first.
_EDIT_TRIES = 3


# --- edit --------------------------------------------------------------------------------
@routes.add(
    "PATCH",
    "/v1/jobs/{job_id:name}",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={200: ("The job as it is now.", shapes.Job)},
    problems=(404, 409, 412, 413),
    patch=JobPatch,
    etag=True,
)
async def edit_job(call: Call, job_id: JobId) -> Response:
    """Edit a job with a JSON merge patch over the fields of its creation.

    An edit makes a new version; runs under way keep theirs. A changed schedule is followed from
    now on. An edit that loses against a run that is just beginning answers 409 RUN_UNDER_WAY.
    """
    patch = call.fields()
    wanted = job_id_of(job_id)
    tries = 0
    while True:
        tries += 1
        row = await found_job(call, wanted)
        pinned = check_version(call, row.version)
        if row.state not in (JobState.ACTIVE, JobState.PAUSED):
            raise conflict(f"The job is {STATUS[row.state]}; it cannot be edited any more.")
        edited = await _edited(call, row, patch)
        try:
            after = await call.services.store.edit_job(
                call.fence,
                base_version=row.version,
                seen_next_run_at=row.next_run_at,
                job=edited,
                host_id=call.services.host.host_id,
                now=call.services.now(),
            )
        except (AllowanceExceeded, QuotaExceeded):
            raise
        except Conflict as lost:
            current = await found_job(call, wanted)
            if current.version != row.version and not pinned and tries < _EDIT_TRIES:
                continue  # another edit was first; a merge patch applies to its outcome as well
            raise _why_lost(call, row, current, lost) from lost
        requeue(call, row, after)
        return _shown(call, after)


def _why_lost(call: Call, seen: JobRow, current: JobRow, lost: Conflict) -> Problem:
    """What an edit lost against."""
    if current.version != seen.version:
        check_version(call, current.version)
        return conflict("The job is being edited by others at the same time; try again.")
    if current.state is not seen.state and current.state is not JobState.DONE:
        return conflict(f"The job has become {STATUS[current.state]} in the meantime; nothing was changed.")
    if current.next_run_at != seen.next_run_at:
        return conflict(
            "A run of the job began while it was edited; nothing was changed.", ErrorCode.RUN_UNDER_WAY
        )
    return of_exception(lost) or conflict("The job has changed in the meantime; nothing was changed.")


async def _edited(call: Call, row: JobRow, patch: Fields) -> NewJob:
    now = call.services.now()
    if "paused" in patch:
        raise invalid([body_fault("/paused", "says how a job is created; use :pause and :resume")])
    fields = _merged(row, patch)
    payload = take_payload(fields)
    given = await read_job(call, fields)
    old = row.definition
    wanted = await judged(
        call,
        given,
        schedule=lambda: scheduling.checked_schedule(call, given.schedule, now),
        payload=payload,
        region_policy=old.region_policy,
        also=fixed_for_life(given, old),
    )
    return building.new_job(
        job_id=row.job_id,
        definition=wanted.definition,
        payload=wanted.payload,
        config=call.tenant.config,
        now=now,
        actor=call.caller.actor,
        traceparent=call.traceparent,
        state=row.state,
        keep=row if wanted.definition.schedule == old.schedule else None,
    )


def _merged(row: JobRow, patch: Fields) -> Fields:
    """The body that would create the job as the patch wants it."""
    base: Fields = {
        name: msgspec.Raw(msgspec.json.encode(value))
        for name, value in documents.definition_document(row.definition).items()
        if value is not None
    }
    if row.payload is not None:
        base["payload"] = msgspec.Raw(row.payload)
    for name in ("on_success", "on_failure"):
        if "url" in _object(patch.get(name)):
            base.pop(name, None)
    given_schedule, given_target = _object(patch.get("schedule")), _object(patch.get("target"))
    if given_schedule.get("type", row.definition.schedule.type.value) != row.definition.schedule.type.value:
        base.pop("schedule")  # the fields of another type would be unknown ones
    old = row.definition.target
    if "input" in given_target and "payload" not in patch:
        base.pop("payload", None)  # another place for the same
    if given_target.get("type", old.type) != old.type:
        base.pop("target")
    elif "url" in given_target:
        base["target"] = msgspec.Raw(
            msgspec.json.encode({"method": old.method, "timeout_seconds": old.timeout_seconds})
        )
    return building.merged(base, patch)


def _object(raw: msgspec.Raw | None) -> dict[str, Any]:
    if raw is None:
        return {}
    found = msgspec.json.decode(raw)
    return found if isinstance(found, dict) else {}


def requeue(call: Call, before: JobRow, after: JobRow) -> None:
    """Tell the queue that a job's timer was replaced."""
    old = building.member_of(before, call.tenant_id, version=before.version)
    new = building.member_of(after, call.tenant_id, version=after.version)
    if old == new:
        return
    if old is not None:
        call.services.feed.remove((old,))
    if new is not None:
        call.services.feed.add((new,))


# --- states ------------------------------------------------------------------------------
@routes.add(
    "DELETE",
    "/v1/jobs/{job_id:name}",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={200: ("The job is cancelled.", shapes.JobStatus)},
    problems=(404, 409, 412),
    etag=True,
)
async def cancel_job(call: Call, job_id: JobId) -> Response:
    """Cancel a job and its waiting runs. Cancelling it again changes nothing."""
    row = await found_job(call, job_id_of(job_id))
    after = await set_state(call, row, JobState.CANCELLED)
    return answer({"job_id": documents.job_text(after.job_id), "status": STATUS[after.state]})


@routes.add(
    "POST",
    "/v1/jobs/{job_id:name}:pause",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={200: ("The job is paused.", shapes.Job)},
    problems=(404, 409, 412),
    etag=True,
)
async def pause_job(call: Call, job_id: JobId) -> Response:
    """Pause a job: it keeps everything but its timer. Runs under way go on."""
    row = await found_job(call, job_id_of(job_id))
    return _shown(call, await set_state(call, row, JobState.PAUSED))


@routes.add(
    "POST",
    "/v1/jobs/{job_id:name}:resume",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={200: ("The job waits for its next occurrence.", shapes.Job)},
    problems=(404, 409, 412),
    etag=True,
)
async def resume_job(call: Call, job_id: JobId) -> Response:
    """Resume a paused job at its first occurrence after now. A one-off time that went by in the
    meantime is late, as it would be after an outage: it runs now."""
    row = await found_job(call, job_id_of(job_id))
    return _shown(call, await set_state(call, row, JobState.ACTIVE))


def _shown(call: Call, row: JobRow) -> Response:
    return answer(
        documents.job_row_document(row, payload_shown=call.may(Scope.PAYLOADS_READ)),
        headers={"ETag": f'"{row.version}"'},
    )


async def set_state(call: Call, row: JobRow, state: JobState) -> JobRow:
    """Move a job that was read to a state, and tell the queue. 409 if it does not allow it."""
    pinned = check_version(call, row.version)
    if row.state is state:
        return row
    services = call.services
    next_run_at, timer = row.next_run_at, None
    if state is JobState.ACTIVE:
        if row.state is not JobState.PAUSED:
            raise conflict(f"The job is {STATUS[row.state]}; only a paused one can be resumed.")
        next_run_at = resumes_at(row.definition.schedule, row.next_run_at, services.now())
        if next_run_at is None:
            state = JobState.DONE  # it was paused beyond its last occurrence
        else:
            # What went by while it was paused is due now, and not late by the pause.
            timer = max(due_at(next_run_at, row.offset_ms), services.now())
    try:
        after = await services.store.set_job_state(
            call.fence,
            job_id=row.job_id,
            state=state,
            base_version=row.version if pinned else None,
            next_run_at=next_run_at,
            due_at=timer,
            actor=call.caller.actor,
            host_id=services.host.host_id,
            now=services.now(),
        )
    except (AllowanceExceeded, QuotaExceeded):
        raise
    except Conflict as lost:
        current = await found_job(call, row.job_id)
        if pinned:
            check_version(call, current.version)
        raise conflict(f"The job is {STATUS[current.state]}; it cannot become {STATUS[state]}.") from lost
    requeue(call, row, after)
    return after


# --- runs by hand ------------------------------------------------------------------------
@routes.add(
    "POST",
    "/v1/jobs/{job_id:name}:trigger",
    Rule(scope=Scope.JOBS_TRIGGER, writes=True, body_optional=True),
    answers={
        201: ("The run, due at once.", shapes.Run),
        200: ("The run that was started under this Idempotency-Key.", shapes.Run),
    },
    problems=(404, 409, 413, 429),
    idempotent=True,
)
async def trigger_job(call: Call, job_id: JobId, body: TriggerIn) -> Response:
    """Start a run by hand, now, whatever the schedule says."""
    services = call.services
    wanted = job_id_of(job_id)
    await found_job(call, wanted)
    key = idempotency.read_key(call.header(b"idempotency-key"))
    route = f"POST /v1/jobs/{documents.job_text(wanted)}:trigger"
    with services.in_flight.hold(call.tenant_id, route, key):
        run, member, replayed = await services.store.trigger_job(
            call.fence,
            job_id=wanted,
            now=services.now(),
            payload=call.payload,
            actor=call.caller.actor,
            traceparent=call.traceparent,
            idempotency=idempotency.keyed(route, key, call.raw_body),
            host_id=services.host.host_id,
        )
    if member is not None and not replayed:
        services.feed.add((member,))
    document = documents.run_document(run, bodies_shown=call.may(Scope.PAYLOADS_READ))
    headers = {"Location": f"/v1/runs/{document['run_id']}"}
    if replayed:
        return answer(document, 200, headers | {"Idempotency-Replayed": "true"})
    return answer(document, 201, headers)
