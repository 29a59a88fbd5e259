"""Claiming: the conditional write that decides who runs what.

Two round trips for a batch. The first locks what is due; between them the pure planner decides;
the second writes runs, advances jobs, appends the journal and commits. Nobody waits for a lock:
what somebody else holds is passed over, so claimers cannot deadlock.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from psycopg import AsyncCursor, errors

from cells.domain.claiming import Skip, plan_claim
from cells.domain.epochs import next_epoch
from cells.domain.ids import RunKey
from cells.domain.job import JobDefinition, ScheduleType
from cells.ports import Claim, ClaimResult, Member
from cells.store import arrays
from cells.store.arrays import from_datetime, from_ms, instants, int2s, int4s, int8s, texts, to_ms, uuids
from cells.store.base import StoreBase
from cells.store.database import Connection, Row, fetch_all, run
from cells.store.definitions import decode_definition
from cells.store.journal import Entry

#: A push run's lease outlives its call's timeout by this much.
LEASE_MARGIN_MS = 60_000
#: Run ids of ad hoc jobs end in `:1`: their only occurrence is their first trigger.
NOW_ORDINAL = 1

_UNIX_EPOCH_S = 946_684_800  # 2000-01-01 in Unix seconds


def _micros(scheduled_s: int) -> int:
    return (scheduled_s - _UNIX_EPOCH_S) * 1_000_000


@dataclass(slots=True)
class _Batch:
    """What one claim transaction will write."""

    now: datetime
    careful: bool
    inserts: list[tuple[Member, Claim, int]] = field(default_factory=list)  # with due, microseconds
    skips: list[tuple[Member, Skip, Row, int, JobDefinition]] = field(default_factory=list)
    advances: list[tuple[Member, int | None, int | None]] = field(default_factory=list)
    updates: list[Claim] = field(default_factory=list)
    nexts: list[Member] = field(default_factory=list)


class Claims(StoreBase):
    """`claim`."""

    async def claim(self, members: Sequence[Member], *, host_id: int, host_name: str) -> ClaimResult:
        """See `ports.Store.claim`."""
        jobs, runs, stale = _sorted_out(members)
        try:
            return await self._claim(jobs, runs, stale, host_id, careful=False)
        except errors.UniqueViolation:
            # An occurrence has a run already: an edit or a resume went back in time.
            return await self._claim(jobs, runs, stale, host_id, careful=True)

    async def _claim(
        self,
        jobs: Sequence[Member],
        runs: Sequence[Member],
        stale: Sequence[Member],
        host_id: int,
        *,
        careful: bool,
    ) -> ClaimResult:
        async with self._database.transaction() as connection:
            unknown = [
                m for m in jobs if self._definitions.get((m.tenant_id, m.parent_id, m.generation)) is None
            ]
            async with connection.pipeline():
                wanted = await _fetch_versions(connection, unknown) if unknown else None
                job_cursor = await run(connection, "claim_lock_jobs", _job_keys(jobs)) if jobs else None
                run_cursor = await run(connection, "claim_lock_runs", _run_keys(runs)) if runs else None
            locked_jobs = await job_cursor.fetchall() if job_cursor else []
            locked_runs = await run_cursor.fetchall() if run_cursor else []
            one_shot: dict[tuple[uuid.UUID, uuid.UUID, int], tuple[JobDefinition, bytes | None]] = {}
            if wanted:
                for i, stored, payload in await wanted.fetchall():
                    m = unknown[i - 1]
                    key = (m.tenant_id, m.parent_id, m.generation)
                    one_shot[key] = self._definitions.put(key, stored, payload)
            lost_jobs, lost_runs = _lost(jobs, locked_jobs), _lost(runs, locked_runs)
            too_early = (
                await _still_waiting(connection, lost_jobs, lost_runs) if lost_jobs or lost_runs else set()
            )
            stale = [*stale, *(m for m in (*lost_jobs, *lost_runs) if id(m) not in too_early)]
            early = [m for m in (*lost_jobs, *lost_runs) if id(m) in too_early]
            if not locked_jobs and not locked_runs:
                return ClaimResult(claims=(), next_members=(), stale=stale, too_early=early)

            batch = _Batch(now=max(row[-1] for row in (*locked_jobs, *locked_runs)), careful=careful)
            for row in locked_jobs:
                member = jobs[row[0] - 1]
                key = (member.tenant_id, member.parent_id, row[1])
                version = (
                    self._definitions.get(key) or one_shot.get(key) or await self._version(connection, key)
                )
                self._plan_job(batch, member, row, version)
            for row in locked_runs:
                batch.updates.append(_reclaim(runs[row[0] - 1], row, batch.now))
            if careful:
                stale = [*stale, *await _drop_existing(connection, batch)]
            async with connection.pipeline():
                await self._write_batch(connection, batch, host_id)
                await connection.commit()
            return ClaimResult(
                claims=[*(claim for _, claim, _ in batch.inserts), *batch.updates],
                next_members=batch.nexts,
                stale=stale,
                too_early=early,
            )

    async def _version(
        self, connection: Connection, key: tuple[uuid.UUID, uuid.UUID, int]
    ) -> tuple[JobDefinition, bytes | None]:
        """The version that holds now, where the member named an older one."""
        tenant, job, version = key
        parameters = {"tenants": uuids([tenant]), "jobs": uuids([job]), "versions": int4s([version])}
        ((_, stored, payload),) = await fetch_all(connection, "claim_definitions", parameters)
        return self._definitions.put(key, stored, payload)

    def _plan_job(
        self, batch: _Batch, member: Member, row: Row, version: tuple[JobDefinition, bytes | None]
    ) -> None:
        _, number, due_at, offset_ms, priority, shard, ownership_epoch, _ = row
        definition, payload = version
        scheduled_for = datetime.fromtimestamp(member.scheduled_for, tz=due_at.tzinfo)
        plan = plan_claim(definition, scheduled_for, batch.now, offset_ms=offset_ms)
        offset = offset_ms * 1000
        epoch = next_epoch(0, ownership_epoch)
        if plan.run_at is not None:
            due = (
                from_datetime(due_at) if plan.run_at == scheduled_for else from_datetime(plan.run_at) + offset
            )
            claim = Claim(
                tenant_id=member.tenant_id,
                key=RunKey(
                    parent_id=member.parent_id,
                    scheduled_for=plan.run_at,
                    ordinal=NOW_ORDINAL if definition.schedule.type is ScheduleType.NOW else 0,
                ),
                epoch=epoch,
                series=1,
                attempt=1,
                priority=priority,
                shard=shard,
                version=number,
                definition=definition,
                payload=payload,
                due_ms=to_ms(due),
                released_ms=member.released_ms,
                claimed_ms=arrays.datetime_to_ms(batch.now),
                lease_ms=definition.target.timeout_seconds * 1000 + LEASE_MARGIN_MS,
            )
            batch.inserts.append((member, claim, due))
        for skip in plan.skipped:
            batch.skips.append((member, skip, row, from_datetime(skip.at) + offset, definition))
        if plan.next is None:
            batch.advances.append((member, None, None))
        else:
            following = from_datetime(plan.next)
            batch.advances.append((member, following, following + offset))
            batch.nexts.append(
                Member(
                    tenant_id=member.tenant_id,
                    parent_id=member.parent_id,
                    scheduled_for=following // 1_000_000 + _UNIX_EPOCH_S,
                    generation=number,
                    priority=priority,
                    due_ms=to_ms(following + offset),
                    shard=shard,
                )
            )

    async def _write_batch(self, connection: Connection, batch: _Batch, host_id: int) -> None:
        entry = Entry()
        if batch.inserts:
            claims = [claim for _, claim, _ in batch.inserts]
            await run(
                connection,
                "claim_insert_runs",
                {
                    **_claim_keys(claims),
                    "shards": int2s([c.shard for c in claims]),
                    "priorities": int2s([c.priority for c in claims]),
                    "versions": int4s([c.version for c in claims]),
                    "dues": instants([due for _, _, due in batch.inserts]),
                    "targets": texts([c.definition.target.target_id for c in claims]),
                    **_holding(claims, batch.now, host_id),
                },
            )
        if batch.skips:
            await self._write_skips(connection, batch, entry)
        if batch.advances:
            await run(
                connection,
                "claim_advance_jobs",
                {
                    "tenants": uuids([m.tenant_id for m, _, _ in batch.advances]),
                    "jobs": uuids([m.parent_id for m, _, _ in batch.advances]),
                    "nexts": instants([following for _, following, _ in batch.advances]),
                    "dues": instants([due for _, _, due in batch.advances]),
                },
            )
        if batch.updates:
            await run(
                connection,
                "claim_update_runs",
                {**_claim_keys(batch.updates), **_holding(batch.updates, batch.now, host_id)},
            )
        for claim in (*(c for _, c, _ in batch.inserts), *batch.updates):
            key = claim.key
            entry.claimed.append(
                (
                    claim.tenant_id.hex,
                    key.parent_id.hex,
                    int(key.scheduled_for.timestamp()),
                    key.ordinal,
                    claim.epoch,
                )
            )
        await self._journal.append(connection, host_id, entry)

    async def _write_skips(self, connection: Connection, batch: _Batch, entry: Entry) -> None:
        skips = batch.skips
        await run(
            connection,
            "claim_insert_skipped",
            {
                "tenants": uuids([m.tenant_id for m, *_ in skips]),
                "parents": uuids([m.parent_id for m, *_ in skips]),
                "instants": instants([from_datetime(skip.at) for _, skip, *_ in skips]),
                "shards": int2s([row[5] for _, _, row, *_ in skips]),
                "priorities": int2s([row[4] for _, _, row, *_ in skips]),
                "versions": int4s([row[1] for _, _, row, *_ in skips]),
                "epochs": int8s([next_epoch(0, row[6]) for _, _, row, *_ in skips]),
                "dues": instants([due for *_, due, _ in skips]),
                "targets": texts([definition.target.target_id for *_, definition in skips]),
                "reasons": texts([skip.reason for _, skip, *_ in skips]),
                "skips": int4s([skip.count for _, skip, *_ in skips]),
                "now": batch.now,
            },
        )
        for member, skip, row, *_ in skips:
            entry.skipped(member.tenant_id, member.parent_id, skip.at, next_epoch(0, row[6]))


def _sorted_out(members: Sequence[Member]) -> tuple[list[Member], list[Member], list[Member]]:
    """Jobs, runs, and those that name the same thing a second time."""
    jobs: dict[tuple[uuid.UUID, uuid.UUID, int, int], Member] = {}
    runs: dict[tuple[uuid.UUID, uuid.UUID, int, int], Member] = {}
    again = []
    for m in members:
        named = runs if m.is_run else jobs
        key = (m.tenant_id, m.parent_id, m.scheduled_for, m.ordinal)
        if named.setdefault(key, m) is not m:
            again += [m]
    return list(jobs.values()), list(runs.values()), again


def _lost(members: Sequence[Member], locked: Sequence[Row]) -> list[Member]:
    if len(members) == len(locked):
        return []
    won = {row[0] for row in locked}
    return [m for i, m in enumerate(members, 1) if i not in won]


def _job_keys(members: Sequence[Member]) -> dict[str, object]:
    return {
        "tenants": uuids([m.tenant_id for m in members]),
        "jobs": uuids([m.parent_id for m in members]),
        "instants": instants([_micros(m.scheduled_for) for m in members]),
    }


def _run_keys(members: Sequence[Member]) -> dict[str, object]:
    return {
        "tenants": uuids([m.tenant_id for m in members]),
        "parents": uuids([m.parent_id for m in members]),
        "instants": instants([_micros(m.scheduled_for) for m in members]),
        "ordinals": int4s([m.ordinal for m in members]),
    }


def _claim_keys(claims: Sequence[Claim]) -> dict[str, object]:
    return {
        "tenants": uuids([c.tenant_id for c in claims]),
        "parents": uuids([c.key.parent_id for c in claims]),
        "instants": instants([from_datetime(c.key.scheduled_for) for c in claims]),
        "ordinals": int4s([c.key.ordinal for c in claims]),
    }


def _holding(claims: Sequence[Claim], now: datetime, host_id: int) -> dict[str, object]:
    start = from_datetime(now)
    return {
        "epochs": int8s([c.epoch for c in claims]),
        "leases": instants([start + c.lease_ms * 1000 for c in claims]),
        "released": instants([from_ms(c.released_ms) if c.released_ms else None for c in claims]),
        "host": host_id,
        "now": now,
    }


async def _fetch_versions(connection: Connection, members: Sequence[Member]) -> AsyncCursor[Row]:
    return await run(
        connection,
        "claim_definitions",
        {
            "tenants": uuids([m.tenant_id for m in members]),
            "jobs": uuids([m.parent_id for m in members]),
            "versions": int4s([m.generation for m in members]),
        },
    )


async def _still_waiting(connection: Connection, jobs: Sequence[Member], runs: Sequence[Member]) -> set[int]:
    """Identities of the lost members that still name what waits."""
    found: set[int] = set()
    if jobs:
        rows = await fetch_all(connection, "claim_unlocked_jobs", _job_keys(jobs))
        found |= {id(jobs[row[0] - 1]) for row in rows}
    if runs:
        rows = await fetch_all(connection, "claim_unlocked_runs", _run_keys(runs))
        found |= {id(runs[row[0] - 1]) for row in rows}
    return found


async def _drop_existing(connection: Connection, batch: _Batch) -> list[Member]:
    """Leave out occurrences that have a run already; their jobs advance all the same."""
    keys = [(m, c.key) for m, c, _ in batch.inserts]
    keys += [(m, RunKey(parent_id=m.parent_id, scheduled_for=s.at)) for m, s, *_ in batch.skips]
    rows = await fetch_all(
        connection,
        "claim_existing_runs",
        {
            "tenants": uuids([m.tenant_id for m, _ in keys]),
            "parents": uuids([key.parent_id for _, key in keys]),
            "instants": instants([from_datetime(key.scheduled_for) for _, key in keys]),
            "ordinals": int4s([key.ordinal for _, key in keys]),
        },
    )
    taken = {row[0] - 1 for row in rows}
    n = len(batch.inserts)
    dropped = [m for i, (m, _, _) in enumerate(batch.inserts) if i in taken]
    batch.inserts = [kept for i, kept in enumerate(batch.inserts) if i not in taken]
    batch.skips = [kept for i, kept in enumerate(batch.skips, n) if i not in taken]
    return dropped


def _reclaim(member: Member, row: Row, now: datetime) -> Claim:
    (
        _,
        version,
        epoch,
        series,
        attempt,
        priority,
        shard,
        due_at,
        traceparent,
        ownership,
        stored,
        payload,
        _,
    ) = row
    definition = decode_definition(stored)
    return Claim(
        tenant_id=member.tenant_id,
        key=RunKey(
            parent_id=member.parent_id,
            scheduled_for=datetime.fromtimestamp(member.scheduled_for, tz=due_at.tzinfo),
            ordinal=member.ordinal,
        ),
        epoch=next_epoch(epoch, ownership),
        series=series,
        attempt=attempt + 1,
        priority=priority,
        shard=shard,
        version=version,
        definition=definition,
        payload=payload,
        due_ms=arrays.datetime_to_ms(due_at),
        released_ms=member.released_ms,
        claimed_ms=arrays.datetime_to_ms(now),
        lease_ms=definition.target.timeout_seconds * 1000 + LEASE_MARGIN_MS,
        traceparent=traceparent,
    )
