"""Starting a run of a job by hand."""

from __future__ import annotations

import uuid
from datetime import datetime

import msgspec
from psycopg import errors

from cells.domain.ids import RunKey
from cells.domain.run import run_generation
from cells.ports import Conflict, Fence, Member, Retryable, RunRow, Terminal
from cells.store.arrays import due_to_ms
from cells.store.base import StoreBase
from cells.store.database import Connection, fetch_one, run
from cells.store.idempotency import Keyed, keep, made_before
from cells.store.jobs import read_job
from cells.store.journal import seconds
from cells.store.runs import run_row


class Triggers(StoreBase):
    """`trigger_job`."""

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
        idempotency: Keyed | None,
        host_id: int,
    ) -> tuple[RunRow, Member | None, bool]:
        tenant = fence.tenant_id
        async with self._write(fence, host_id) as (connection, entry):
            if idempotency is not None:
                known = await made_before(connection, tenant, idempotency)
                if known is not None:
                    first = msgspec.json.decode(known, type=RunKey)
                    found = await _read_run(connection, tenant, first)
                    entry.intent(tenant, "run.trigger.replay", job_id.hex, 0, 0)
                    return found, None, True
            row = await fetch_one(connection, "job_trigger", {"tenant": tenant, "job": job_id})
            if row is None:
                if await read_job(connection, tenant, job_id) is None:
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
                await keep(connection, tenant, idempotency, msgspec.json.encode(run_key), status=201)
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


async def _read_run(connection: Connection, tenant_id: uuid.UUID, key: RunKey) -> RunRow:
    row = await fetch_one(
        connection,
        "run_get",
        {"tenant": tenant_id, "parent": key.parent_id, "at": key.scheduled_for, "ordinal": key.ordinal},
    )
    if row is None:
        raise Terminal("the run is no longer kept")
    return run_row(tenant_id, row)
