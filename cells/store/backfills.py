"""Backfills: occurrences of the past are run after all, under their own ids, so that none runs twice.

Rows of skipped occurrences stand for many; before a slice is written, the row that reaches beyond its
end (or its beginning) is divided there, so that every occurrence stays accounted for exactly once,
however far a backfill comes. Whoever has its row locked works on it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from psycopg import errors

from cells.domain import ids as ids_
from cells.domain.faults import ScheduleError
from cells.domain.job import JobState, OverlapPolicy
from cells.domain.run import run_generation
from cells.domain.schedule import Compiled, compile_schedule
from cells.ports import Conflict, Fence, JobRow, Member, Retryable, Terminal
from cells.scheduling import BackfillRow, Retimed
from cells.store.arrays import due_to_ms, from_datetime, instants
from cells.store.base import StoreBase
from cells.store.database import Connection, Row, fetch_all, fetch_one, fetch_row, run
from cells.store.idempotency import Keyed, keep, made_before
from cells.store.jobs import read_job
from cells.store.journal import Entry, seconds

#: Runs made in one transaction.
_SLICE = 50
_TICK = timedelta(microseconds=1)


class Backfills(StoreBase):
    """The backfill part of `scheduling.SchedulingStore`."""

    async def backfill_facts(
        self, tenant_id: uuid.UUID, job_id: uuid.UUID, from_at: datetime, until_at: datetime
    ) -> tuple[int, int]:
        """See `scheduling.SchedulingStore.backfill_facts`."""
        parameters = {"tenant": tenant_id, "job": job_id, "from": from_at, "until": until_at}
        async with self._database.transaction() as connection:
            present, skipped = await fetch_row(connection, "backfill_facts", parameters)
        return present, skipped

    async def start_backfill(
        self,
        fence: Fence,
        *,
        backfill_id: uuid.UUID,
        job: JobRow,
        from_at: datetime,
        until_at: datetime,
        total: int,
        max_per_second: int,
        actor: str,
        host_id: int,
        idempotency: tuple[str, str, bytes] | None = None,
    ) -> BackfillRow:
        """See `scheduling.SchedulingStore.start_backfill`."""
        tenant = fence.tenant_id
        parameters = {
            "tenant": tenant,
            "backfill": backfill_id,
            "job": job.job_id,
            "from": from_at,
            "until": until_at,
            "total": total,
            "rate": max_per_second,
            "actor": actor,
        }
        try:
            return await self._begin_backfill(fence, parameters, idempotency, host_id)
        except errors.UniqueViolation as taken:
            # Another request with this key was faster; the next one finds what it stored.
            raise Retryable("the idempotency key is in use") from taken

    async def _begin_backfill(
        self, fence: Fence, parameters: Mapping[str, Any], idempotency: Keyed | None, host_id: int
    ) -> BackfillRow:
        tenant, backfill_id = fence.tenant_id, parameters["backfill"]
        async with self._write(fence, host_id) as (connection, entry):
            known = None if idempotency is None else await made_before(connection, tenant, idempotency)
            begins = await fetch_one(connection, "backfill_insert", parameters)
            row = _row(tenant, await fetch_row(connection, "backfill_get", parameters))
            if begins is not None:
                if idempotency is not None and known is None:
                    await keep(connection, tenant, idempotency, backfill_id.bytes, status=202)
                entry.intent(tenant, "backfill.start", backfill_id.hex, 0, parameters["total"])
                _tell(entry, "backfill.started", row, parameters["actor"])
            return row

    async def get_backfill(self, tenant_id: uuid.UUID, backfill_id: uuid.UUID) -> BackfillRow | None:
        """One backfill, or None."""
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "backfill_get", {"tenant": tenant_id, "backfill": backfill_id})
        return None if row is None else _row(tenant_id, row)

    async def list_backfills(
        self,
        tenant_id: uuid.UUID,
        *,
        job_id: uuid.UUID | None,
        after: tuple[datetime, uuid.UUID] | None,
        limit: int,
    ) -> Sequence[BackfillRow]:
        """A page of them, newest first."""
        parameters = {
            "tenant": tenant_id,
            "job": job_id,
            "after_at": None if after is None else after[0],
            "after_id": None if after is None else after[1],
            "limit": limit,
        }
        async with self._database.transaction() as connection:
            return [_row(tenant_id, row) for row in await fetch_all(connection, "backfill_list", parameters)]

    async def stop_backfill(
        self, fence: Fence, *, backfill_id: uuid.UUID, actor: str, host_id: int
    ) -> BackfillRow:
        """See `scheduling.SchedulingStore.stop_backfill`."""
        tenant = fence.tenant_id
        ids: dict[str, object] = {"tenant": tenant, "backfill": backfill_id, "actor": actor}
        async with self._write(fence, host_id) as (connection, entry):
            stopped = (await run(connection, "backfill_stop", ids)).rowcount
            found = await fetch_one(connection, "backfill_get", ids)
            if found is None:
                raise Terminal("no such backfill")
            row = _row(tenant, found)
            if not stopped and row.state == "DONE":
                raise Conflict("the backfill is done")
            entry.intent(tenant, "backfill.stop", backfill_id.hex, 0, 0)
            if stopped:
                _tell(entry, "backfill.stopped", row, actor)
            return row

    async def step_backfill(self, *, host_id: int, now: datetime, kept: timedelta) -> Retimed | None:
        """See `scheduling.SchedulingStore.step_backfill`."""
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "backfill_next")
            if row is None:
                return None
            tenant, _, backfill_id, job_id, from_at, until_at, cursor, rate, actor = row
            ids: dict[str, object] = {"tenant": tenant, "backfill": backfill_id, "job": job_id}
            entry = Entry()
            members: list[Member] = []
            job, reason = await _usable(connection, tenant, job_id)
            if job is not None and cursor < now - kept:
                job, reason = None, "it has come too late: what lies so far back is not kept here any more"
            if job is None:
                done = {"cursor": cursor, "started": 0, "replaced": 0, "present": 0, "done": True}
                await run(connection, "backfill_advance", {**ids, **done, "reason": reason})
            elif await _must_wait(connection, job, ids):
                await run(connection, "backfill_wait", ids)
            else:
                alone = job.definition.overlap_policy is not OverlapPolicy.ALLOW
                slice_ = _Slice(connection, ids, job, 1 if alone else max(1, min(_SLICE, rate)))
                members = await slice_.write(from_at, cursor, until_at)
            entry.intent(tenant, "backfill.step", backfill_id.hex, seconds(cursor), len(members))
            after = _row(tenant, await fetch_row(connection, "backfill_get", ids))
            if after.state == "DONE":
                _tell(entry, "backfill.ended", after, actor)
            await self._journal.append(connection, host_id, entry)
            return Retimed(removed=(), added=members)


async def _usable(
    connection: Connection, tenant: uuid.UUID, job_id: uuid.UUID
) -> tuple[JobRow | None, str | None]:
    """The job, if its occurrences can be run; else why not. It cannot be cancelled before this transaction
    ends: what that finds then is cancelled with it."""
    try:
        await run(connection, "backfill_job", {"tenant": tenant, "job": job_id})
        job = await read_job(connection, tenant, job_id)
        if job is None:
            return None, "the job is no longer there"
        if job.state is JobState.CANCELLED:
            return None, "the job was cancelled"
        compile_schedule(job.definition.schedule)
    except (ScheduleError, msgspec.MsgspecError):
        return None, "the job cannot be read"
    return job, None


async def _must_wait(connection: Connection, job: JobRow, ids: dict[str, object]) -> bool:
    """A job that does not run beside itself is backfilled one run after the other."""
    if job.definition.overlap_policy is OverlapPolicy.ALLOW:
        return False
    return await fetch_one(connection, "backfill_busy", ids) is not None


class _Slice:
    """The next few occurrences of one backfill."""

    def __init__(self, connection: Connection, ids: dict[str, object], job: JobRow, size: int):
        self._connection = connection
        self._ids = ids
        self._job = job
        self._size = size
        self._compiled = compile_schedule(job.definition.schedule)

    async def write(self, from_at: datetime, cursor: datetime, until: datetime) -> list[Member]:
        """Make their rows DUE and move the cursor; their timers."""
        found = _occurrences(self._compiled, cursor, until, self._size)
        following = self._compiled.next(found[-1]) if found else None
        done = following is None or following.at >= until
        if cursor == from_at:
            await self._divide(cursor)
        if found:
            await self._divide(found[-1] + _TICK)
        definition = self._job.definition
        rows = await fetch_all(
            self._connection,
            "backfill_runs",
            {
                **self._ids,
                "instants": instants([from_datetime(at) for at in found]),
                "shard": self._job.shard,
                "priority": int(definition.priority),
                "version": self._job.version,
                "target": definition.target.label,
                "guarded": definition.overlap_policy is not OverlapPolicy.ALLOW,
            },
        )
        counts = {
            "started": len(rows),
            "replaced": sum(replaced for _, _, replaced in rows),
            "present": len(found) - len(rows),
        }
        place = until if done or following is None else following.at
        more = {**counts, "cursor": place, "done": done, "reason": None}
        await run(self._connection, "backfill_advance", {**self._ids, **more})
        return [self._member(at, timer) for at, timer, _ in rows]

    async def _divide(self, at: datetime) -> None:
        """Divide the row of skipped occurrences that reaches over an instant."""
        row = await fetch_one(self._connection, "backfill_span", {**self._ids, "at": at})
        if row is None or row[1] <= 1:
            return
        first, count, _ = row
        before = self._compiled.count(first - _TICK, at - _TICK)
        rest = self._compiled.next(at - _TICK)
        if not 0 < before < count or rest is None:
            return
        place = {**self._ids, "at": first}
        await run(self._connection, "backfill_rest", {**place, "rest": rest.at, "count": count - before})
        await run(self._connection, "backfill_shorten", {**place, "count": before})

    def _member(self, at: datetime, timer: datetime) -> Member:
        return Member(
            tenant_id=self._job.tenant_id,
            parent_id=self._job.job_id,
            scheduled_for=seconds(at),
            is_run=True,
            generation=run_generation(1, 0),
            priority=int(self._job.definition.priority),
            due_ms=due_to_ms(timer),
            shard=self._job.shard,
        )


def _occurrences(compiled: Compiled, cursor: datetime, until: datetime, size: int) -> list[datetime]:
    found: list[datetime] = []
    after = cursor - _TICK
    while len(found) < size:
        occurrence = compiled.next(after)
        if occurrence is None or occurrence.at >= until:
            break
        after = occurrence.at
        found.append(after)
    return found


def _tell(entry: Entry, type_: str, row: BackfillRow, actor: str) -> None:
    entry.event(
        row.tenant_id,
        type_,
        ids_.encode(ids_.JOB, row.job_id),
        actor,
        backfill_id=ids_.encode(ids_.BACKFILL, row.backfill_id),
        total=row.total,
        started=row.started,
        replaced=row.replaced,
        present=row.present,
        reason=row.reason,
    )


def _row(tenant: uuid.UUID, row: Row) -> BackfillRow:
    return BackfillRow(
        tenant_id=tenant,
        backfill_id=row[0],
        job_id=row[1],
        from_at=row[2],
        until_at=row[3],
        cursor_at=row[4],
        state=row[5],
        total=row[6],
        started=row[7],
        replaced=row[8],
        present=row[9],
        reason=row[10],
        max_per_second=row[11],
        created_by=row[12],
        created_at=row[13],
        finished_at=row[14],
        stopped_by=row[15],
    )
