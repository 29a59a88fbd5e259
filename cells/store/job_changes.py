"""Changes of one job: edit, pause, resume, cancel. Bulk operations use the same steps."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime

from psycopg import errors

from cells.domain import ids as ids_
from cells.domain.claiming import Skip
from cells.domain.epochs import next_epoch
from cells.domain.job import NOW_ORDINAL, JobState, ScheduleType
from cells.domain.missed import CANCELLED, EDITED, PAUSED, missed, through
from cells.domain.run import RunState
from cells.domain.transitions import job_allowed
from cells.ports import Conflict, Fence, JobRow, NewJob, TenantConfig, Terminal
from cells.store.allowance import PendingTimers, check_strict, is_strict, needs_allowance
from cells.store.arrays import blobs, from_datetime, instants, int4s, texts, uuids
from cells.store.base import StoreBase, fenced
from cells.store.calendars import outdated
from cells.store.create import facets
from cells.store.database import Connection, Row, fetch_all, fetch_one, run
from cells.store.definitions import encode_definition
from cells.store.jobs import read_job, reread_job
from cells.store.journal import Entry, seconds
from cells.store.passing import tell_ahead_anew

#: Which named transition leads to a state that somebody asks for.
_VERBS = {
    JobState.PAUSED: "pause",
    JobState.ACTIVE: "resume",
    JobState.DONE: "resume_done",
    JobState.CANCELLED: "cancel",
}
_TOLD = {
    JobState.PAUSED: "job.paused",
    JobState.ACTIVE: "job.resumed",
    JobState.DONE: "job.completed",
    JobState.CANCELLED: "job.cancelled",
}
_EDITS = {
    JobState.ACTIVE: "edit",
    JobState.PAUSED: "edit_paused",
    JobState.DONE: "edit_done",
}
_STATEMENTS = {
    JobState.PAUSED: "job_pause",
    JobState.ACTIVE: "job_resume",
    JobState.DONE: "job_finish",
    JobState.CANCELLED: "job_cancel",
}


class JobChanges(StoreBase):
    """`edit_job` and `set_job_state`."""

    async def edit_job(
        self,
        fence: Fence,
        *,
        base_version: int,
        seen_next_run_at: datetime | None,
        job: NewJob,
        host_id: int,
        now: datetime | None = None,
        revive: bool = False,
    ) -> JobRow:
        """See `ports.Store.edit_job`."""
        tenant = fence.tenant_id
        ids: dict[str, object] = {"tenant": tenant, "job": job.job_id}
        try:
            async with self._database.transaction() as connection:
                config = await fenced(connection, fence)
                if is_strict(job) and job.due_at is not None:
                    # Before the row's lock: creators hold allowances first, too.
                    await _have_allowance(connection, tenant, job.due_at, config, but_not=job.job_id)
                if await outdated(connection, [(tenant, job.definition.schedule)]):
                    raise Conflict("the calendar was changed just then")
                state, version, next_run_at, _, created_at = await _lock(connection, ids)
                current = JobState(state)
                verb = "revive" if revive else _EDITS[job.state]
                if (
                    version != base_version
                    or next_run_at != seen_next_run_at
                    or not job_allowed(verb, current)
                ):
                    raise Conflict("the job has changed since it was read", version=version)
                entry = Entry()
                before = await reread_job(connection, tenant, job.job_id)
                if job.due_at is not None and before.due_at is None:
                    await self._pending.take(connection, tenant, config.pending_timers)
                if now is not None and before.definition.schedule != job.definition.schedule:
                    reason = PAUSED if current is JobState.PAUSED else EDITED
                    passed = missed(before.definition.schedule, next_run_at, through(now), reason)
                    await _record(connection, entry, fence, before, passed)
                await write_version(connection, fence, job, version + 1, created_at)
                if job.definition.overlap_policy is not before.definition.overlap_policy:
                    await run(connection, "overlap_guard", ids)
                if now is not None and before.definition.schedule != job.definition.schedule:
                    await tell_ahead_anew(
                        connection, entry, fence, job.job_id, version + 1, job.definition,
                        now=now, following=job.next_run_at, before=before.definition.schedule,
                    )  # fmt: skip
                entry.intent(tenant, "job.edit", job.job_id.hex, version, version + 1)
                told = "job.revived" if revive else "job.edited"
                subject = ids_.encode(ids_.JOB, job.job_id)
                entry.event(tenant, told, subject, job.actor, version=version + 1, name=job.definition.name)
                await self._journal.append(connection, host_id, entry)
                return await reread_job(connection, tenant, job.job_id)
        except errors.UniqueViolation as e:
            raise Conflict(f"another job has the key {job.definition.key!r}") from e

    async def set_job_state(
        self,
        fence: Fence,
        *,
        job_id: uuid.UUID,
        state: JobState,
        base_version: int | None,
        next_run_at: datetime | None,
        due_at: datetime | None,
        actor: str,
        host_id: int,
        now: datetime | None = None,
    ) -> JobRow:
        """See `ports.Store.set_job_state`."""
        async with self._database.transaction() as connection:
            config = await fenced(connection, fence)
            entry = Entry()
            changed = await change_state(
                connection,
                entry,
                fence,
                config,
                job_id=job_id,
                state=state,
                base_version=base_version,
                next_run_at=next_run_at,
                due_at=due_at,
                now=now,
                pending=self._pending,
            )
            after = await reread_job(connection, fence.tenant_id, job_id)
            if changed:
                subject = ids_.encode(ids_.JOB, job_id)
                entry.event(fence.tenant_id, _TOLD[state], subject, actor, name=after.definition.name)
                await self._journal.append(connection, host_id, entry)
            return after


async def change_state(
    connection: Connection,
    entry: Entry,
    fence: Fence,
    config: TenantConfig,
    *,
    job_id: uuid.UUID,
    state: JobState,
    base_version: int | None,
    next_run_at: datetime | None,
    due_at: datetime | None,
    now: datetime | None,
    pending: PendingTimers,
) -> bool:
    """Move one job to a state, inside a fenced transaction that appends `entry`. False if it is in
    that state already. A timer that it gets counts as one that is created. Raises as
    `ports.Store.set_job_state` does."""
    tenant = fence.tenant_id
    ids: dict[str, object] = {"tenant": tenant, "job": job_id}
    if state is JobState.ACTIVE and due_at is not None:
        read = await read_job(connection, tenant, job_id)
        if read is not None and needs_allowance(read.definition, read.window_ms):
            base_version = read.version if base_version is None else base_version
            await _have_allowance(connection, tenant, due_at, config, but_not=job_id)
    current, version, waited_for, policy, _ = await _lock(connection, ids)
    if base_version is not None and base_version != version:
        raise Conflict("the job has changed since it was read", version=version)
    if current == state:
        return False
    verb = _VERBS[state]
    if not job_allowed(verb, JobState(current)):
        raise Conflict(f"a {current} job cannot become {state.value}", version=version)
    if state is JobState.ACTIVE and due_at is not None:
        await pending.take(connection, tenant, config.pending_timers)
    if waited_for is not None and state is not JobState.PAUSED:
        before = await reread_job(connection, tenant, job_id)
        passed = _passed_over(before, state, next_run_at, now)
        await _record(connection, entry, fence, before, passed)
    entry.intent(tenant, f"job.{verb}", job_id.hex, version, version)
    await run(connection, _STATEMENTS[state], {**ids, "next": next_run_at, "due": due_at})
    if state is JobState.ACTIVE and now is not None and next_run_at is not None:
        resumed = await reread_job(connection, tenant, job_id)
        await tell_ahead_anew(
            connection, entry, fence, job_id, version, resumed.definition, now=now, following=next_run_at
        )
    if state is JobState.CANCELLED:
        for at, ordinal, epoch, became in await fetch_all(connection, "job_cancel_runs", ids):
            if became != RunState.CANCELLED:
                continue
            entry.ended(
                tenant.hex,
                job_id.hex,
                seconds(at),
                ordinal,
                epoch,
                "CANCELLED",
                attempts=0,
                region_policy=policy,
            )
    return True


def _passed_over(
    before: JobRow, state: JobState, next_run_at: datetime | None, now: datetime | None
) -> Skip | None:
    schedule = before.definition.schedule
    if state is JobState.CANCELLED:
        if now is None:
            return None
        reason = PAUSED if before.state is JobState.PAUSED else CANCELLED
        return missed(schedule, before.next_run_at, through(now), reason)
    # Up to what it waits for from now on: exact, whatever the clocks say.
    return missed(schedule, before.next_run_at, next_run_at if state is JobState.ACTIVE else None, PAUSED)


async def _record(
    connection: Connection, entry: Entry, fence: Fence, before: JobRow, passed: Skip | None
) -> None:
    """Account for occurrences of a job, locked in this transaction, that will not run."""
    if passed is None:
        return
    epoch = next_epoch(0, fence.epoch)
    once = before.definition.schedule.type is ScheduleType.NOW
    parameters = {
        "tenant": fence.tenant_id,
        "job": before.job_id,
        "at": passed.at,
        "ordinal": NOW_ORDINAL if once else 0,
        "epoch": epoch,
        "reason": passed.reason,
        "count": passed.count,
    }
    if await fetch_one(connection, "job_passed_over", parameters) is not None:
        entry.skipped(fence.tenant_id, before.job_id, passed.at, epoch)


async def _have_allowance(
    connection: Connection, tenant: uuid.UUID, due_at: datetime, config: TenantConfig, *, but_not: uuid.UUID
) -> None:
    for error in (await check_strict(connection, [(tenant, due_at, config)], but_not=but_not)).values():
        raise error


async def _lock(connection: Connection, ids: Mapping[str, object]) -> Row:
    row = await fetch_one(connection, "job_lock", ids)
    if row is None:
        raise Terminal("no such job")
    return row


async def write_version(
    connection: Connection, fence: Fence, job: NewJob, version: int, created_at: datetime
) -> None:
    """The next version of a job that is locked in this transaction, and what it waits for."""
    definition = job.definition
    ids: dict[str, object] = {"tenant": fence.tenant_id, "job": job.job_id}
    terms = facets(definition)
    tenants, jobs = [fence.tenant_id], [job.job_id]
    async with connection.pipeline():
        await run(
            connection,
            "job_edit",
            {
                **ids,
                "state": job.state.value,
                "priority": int(definition.priority),
                "window": job.window_ms,
                "offset": job.offset_ms,
                "next": job.next_run_at,
                "due": job.due_at,
                "target": definition.target.label,
                "name": definition.name,
                "key": definition.key,
            },
        )
        await run(
            connection,
            "create_versions",
            {
                "tenants": uuids(tenants),
                "jobs": uuids(jobs),
                "versions": int4s([version]),
                "definitions": blobs([encode_definition(definition)]),
                "payloads": blobs([job.payload]),
                "actors": texts([job.actor]),
                "created": instants([None]),
                "traces": texts([job.traceparent]),
            },
        )
        await run(connection, "job_facets_clear", ids)
        await run(
            connection,
            "create_facets",
            {
                "tenants": uuids(tenants * len(terms)),
                "facets": texts(terms),
                "jobs": uuids(jobs * len(terms)),
                "created": instants([from_datetime(created_at)] * len(terms)),
            },
        )
