"""One job at a time: reading, listing, editing, pausing, cancelling, starting by hand."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from psycopg import errors

from cells.domain.ids import RunKey
from cells.domain.job import JobState
from cells.domain.transitions import job_allowed
from cells.ports import (
    Conflict,
    Fence,
    JobFilter,
    JobRow,
    KeyReused,
    Member,
    NewJob,
    Retryable,
    RunRow,
    Terminal,
)
from cells.store.allowance import check_strict, is_strict
from cells.store.arrays import blobs, due_to_ms, int4s, texts, uuids
from cells.store.base import StoreBase, fenced
from cells.store.complete import run_generation
from cells.store.create import facets
from cells.store.database import Connection, Row, fetch_all, fetch_one, fetch_row, run
from cells.store.definitions import decode_definition, encode_definition
from cells.store.journal import Entry, seconds
from cells.store.runs import run_row

#: Sorts after every name that begins with a prefix (collation C).
_LAST = "\U0010ffff"
#: Which named transition leads to a state that somebody asks for.
_VERBS = {
    JobState.PAUSED: "pause",
    JobState.ACTIVE: "resume",
    JobState.DONE: "resume_done",
    JobState.CANCELLED: "cancel",
}
_STATEMENTS = {
    JobState.PAUSED: "job_pause",
    JobState.ACTIVE: "job_resume",
    JobState.DONE: "job_finish",
    JobState.CANCELLED: "job_cancel",
}


class Jobs(StoreBase):
    """Jobs as people and the API see them."""

    async def get_job(self, tenant_id: uuid.UUID, job_id: uuid.UUID) -> JobRow | None:
        """One job, or None if the tenant has none of that id."""
        async with self._database.transaction() as connection:
            return await _read(connection, tenant_id, job_id)

    async def list_jobs(
        self, tenant_id: uuid.UUID, where: JobFilter, *, after: uuid.UUID | None, limit: int
    ) -> Sequence[JobRow]:
        """See `ports.Store.list_jobs`."""
        terms = [f"target:{where.target_id}"] if where.target_id is not None else []
        if where.tag is not None:
            terms.append(f"tag:{where.tag}")
        prefix = None if where.name_prefix is None else f"name:{where.name_prefix}"
        if terms:
            name = "job_list_by_facet"
        elif prefix is not None:
            name = "job_list_by_name"
        elif where.due_from is not None or where.due_until is not None:
            name = "job_list_by_due"
        else:
            name = "job_list"
        parameters = {
            "tenant": tenant_id,
            "after": after,
            "limit": limit,
            "state": None if where.state is None else where.state.value,
            "due_from": where.due_from,
            "due_until": where.due_until,
            "facet": terms[0] if terms else None,
            "other": terms[1] if len(terms) > 1 else None,
            "name_from": prefix,
            "name_until": None if prefix is None else prefix + _LAST,
        }
        async with self._database.transaction() as connection:
            return [job_row(tenant_id, row) for row in await fetch_all(connection, name, parameters)]

    async def edit_job(
        self, fence: Fence, *, base_version: int, seen_next_run_at: datetime | None, job: NewJob, host_id: int
    ) -> JobRow:
        """See `ports.Store.edit_job`."""
        ids: dict[str, object] = {"tenant": fence.tenant_id, "job": job.job_id}
        try:
            async with self._database.transaction() as connection:
                config = await fenced(connection, fence)
                if is_strict(job):  # before the row's lock: creators hold allowances first, too
                    asked = [(fence.tenant_id, job, config)]
                    for error in (await check_strict(connection, asked, but_not=job.job_id)).values():
                        raise error
                state, version, next_run_at, *_ = await _lock(connection, ids)
                verb = "edit" if job.state is not JobState.PAUSED else "edit_paused"
                if (
                    version != base_version
                    or next_run_at != seen_next_run_at
                    or not job_allowed(verb, JobState(state))
                ):
                    raise Conflict("the job has changed since it was read", version=version)
                await self._write_version(connection, fence, job, version + 1)
                entry = Entry()
                entry.intent(fence.tenant_id, "job.edit", job.job_id.hex, version, version + 1)
                await self._journal.append(connection, host_id, entry)
                return await _reread(connection, fence.tenant_id, job.job_id)
        except errors.UniqueViolation as e:
            raise Conflict(f"another job has the key {job.definition.key!r}") from e

    async def _write_version(self, connection: Connection, fence: Fence, job: NewJob, version: int) -> None:
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
                    "target": definition.target.target_id,
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
                },
            )

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
    ) -> JobRow:
        """See `ports.Store.set_job_state`. `actor` is kept by the control plane's audit log."""
        ids: dict[str, object] = {"tenant": fence.tenant_id, "job": job_id}
        async with self._database.transaction() as connection:
            await fenced(connection, fence)
            current, version, *_, policy, _, _, _ = await _lock(connection, ids)
            if base_version is not None and base_version != version:
                raise Conflict("the job has changed since it was read", version=version)
            if current == state:
                return await _reread(connection, fence.tenant_id, job_id)
            verb = _VERBS[state]
            if not job_allowed(verb, JobState(current)):
                raise Conflict(f"a {current} job cannot become {state.value}", version=version)
            entry = Entry()
            entry.intent(fence.tenant_id, f"job.{verb}", job_id.hex, version, version)
            await run(connection, _STATEMENTS[state], {**ids, "next": next_run_at, "due": due_at})
            if state is JobState.CANCELLED:
                for at, ordinal, epoch in await fetch_all(connection, "job_cancel_waiting", ids):
                    entry.ended(
                        fence.tenant_id.hex,
                        job_id.hex,
                        seconds(at),
                        ordinal,
                        epoch,
                        "CANCELLED",
                        attempts=0,
                        region_policy=policy,
                    )
                await run(connection, "job_cancel_running", ids)
            await self._journal.append(connection, host_id, entry)
            return await _reread(connection, fence.tenant_id, job_id)

    async def trigger_job(
        self,
        fence: Fence,
        *,
        job_id: uuid.UUID,
        now: datetime,
        payload: bytes | None,
        actor: str,
        traceparent: str | None,
        idempotency: tuple[str, str, bytes] | None,
        host_id: int,
    ) -> tuple[RunRow, Member | None, bool]:
        """See `ports.Store.trigger_job`."""
        try:
            return await self._trigger(fence, job_id, now, payload, traceparent, idempotency, host_id)
        except errors.UniqueViolation:
            # Somebody else used the key just now: the second try finds what they stored.
            try:
                return await self._trigger(fence, job_id, now, payload, traceparent, idempotency, host_id)
            except errors.UniqueViolation as e:
                raise Retryable("the idempotency key is in use") from e

    async def _trigger(
        self,
        fence: Fence,
        job_id: uuid.UUID,
        now: datetime,
        payload: bytes | None,
        traceparent: str | None,
        idempotency: tuple[str, str, bytes] | None,
        host_id: int,
    ) -> tuple[RunRow, Member | None, bool]:
        tenant = fence.tenant_id
        async with self._write(fence, host_id) as (connection, entry):
            stored: Mapping[str, object] = {}
            if idempotency is not None:
                route, key, fingerprint = idempotency
                stored = {
                    "tenant": tenant,
                    "route": route,
                    "key": key,
                    "fingerprint": fingerprint,
                    "status": 201,
                }
                known = await fetch_one(connection, "key_get", stored)
                if known is not None:
                    if known[0] != fingerprint:
                        raise KeyReused("the idempotency key came with another request before")
                    first = msgspec.json.decode(known[2], type=RunKey)
                    found = await _read_run(connection, tenant, first)
                    entry.intent(tenant, "run.trigger.replay", job_id.hex, 0, 0)
                    return found, None, True
            row = await fetch_one(connection, "job_trigger", {"tenant": tenant, "job": job_id})
            if row is None:
                if await _read(connection, tenant, job_id) is None:
                    raise Terminal("no such job")
                raise Conflict("a CANCELLED job cannot be started")
            ordinal, version, priority, shard, target_id = row
            run_key = RunKey(parent_id=job_id, scheduled_for=now.replace(microsecond=0), ordinal=ordinal)
            await run(
                connection,
                "run_trigger",
                {
                    "tenant": tenant,
                    "job": job_id,
                    "now": now,
                    "ordinal": ordinal,
                    "shard": shard,
                    "priority": priority,
                    "version": version,
                    "target": target_id,
                    "input": payload,
                    "traceparent": traceparent,
                },
            )
            if idempotency is not None:
                await run(connection, "key_put", {**stored, "body": msgspec.json.encode(run_key)})
            entry.intent(tenant, "run.trigger", f"{job_id.hex}:{seconds(now)}:{ordinal}", version, version)
            member = Member(
                tenant_id=tenant,
                parent_id=job_id,
                scheduled_for=seconds(now),
                ordinal=ordinal,
                is_run=True,
                generation=run_generation(1, 0),
                priority=priority,
                due_ms=due_to_ms(now),
                shard=shard,
            )
            return await _read_run(connection, tenant, run_key), member, False


async def _lock(connection: Connection, ids: Mapping[str, object]) -> Row:
    row = await fetch_one(connection, "job_lock", ids)
    if row is None:
        raise Terminal("no such job")
    return row


async def _read(connection: Connection, tenant_id: uuid.UUID, job_id: uuid.UUID) -> JobRow | None:
    row = await fetch_one(connection, "job_get", {"tenant": tenant_id, "job": job_id})
    return None if row is None else job_row(tenant_id, row)


async def _reread(connection: Connection, tenant_id: uuid.UUID, job_id: uuid.UUID) -> JobRow:
    return job_row(tenant_id, await fetch_row(connection, "job_get", {"tenant": tenant_id, "job": job_id}))


async def _read_run(connection: Connection, tenant_id: uuid.UUID, key: RunKey) -> RunRow:
    row = await fetch_one(
        connection,
        "run_get",
        {"tenant": tenant_id, "parent": key.parent_id, "at": key.scheduled_for, "ordinal": key.ordinal},
    )
    if row is None:
        raise Terminal("the run is no longer kept")
    return run_row(tenant_id, row)


def job_row(tenant_id: uuid.UUID, row: Row) -> JobRow:
    """From the columns of `job_get` and `job_list…`."""
    return JobRow(
        tenant_id=tenant_id,
        job_id=row[0],
        shard=row[1],
        state=JobState(row[2]),
        version=row[3],
        window_ms=row[4],
        offset_ms=row[5],
        next_run_at=row[6],
        due_at=row[7],
        definition=decode_definition(row[8]),
        payload=row[9],
        created_at=row[10],
        updated_at=row[11],
    )
