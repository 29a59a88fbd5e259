"""Claiming: the conditional write that decides who runs what.

Two round trips for a batch. The first locks what is due; between them the pure planner decides;
the second writes runs, advances jobs, appends the journal and commits. Nobody waits for a lock:
what somebody else holds is passed over, so claimers cannot deadlock.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from psycopg import errors

from cells.domain.claiming import plan_claim
from cells.domain.epochs import next_epoch
from cells.domain.ids import RunKey
from cells.domain.job import NOW_ORDINAL, Priority, ScheduleType
from cells.domain.run import LEASE_MARGIN_MS
from cells.domain.schedule import ScheduleError
from cells.ports import Claim, ClaimResult, Member
from cells.rounds import Rounds
from cells.spans import asked_by
from cells.store import callbacks, concurrency
from cells.store.arrays import datetime_to_ms, from_datetime, to_ms
from cells.store.base import StoreBase
from cells.store.calendars import with_calendars
from cells.store.claim_batch import (
    ClaimBatch,
    Insert,
    Skipped,
    job_keys,
    occurrence_keys,
    run_keys,
    to_unix_seconds,
    version_keys,
)
from cells.store.database import Connection, Purpose, Row, fetch_all, fetch_row, run
from cells.store.definitions import Version, decode_definition
from cells.store.job_workflows import begin_workflows, take_workflows
from cells.store.journal import Entry, seconds
from cells.store.offers import offered_claims, offered_queues, offers, write_offers
from cells.store.overlap import admit_overlaps

_log = logging.getLogger(__name__)


class Claims(StoreBase):
    """`claim`."""

    async def claim(self, members: Sequence[Member], *, host_id: int, host_name: str) -> ClaimResult:
        """See `ports.Store.claim`."""
        jobs, runs, again = _sorted_out(members)
        try:
            return await self._claim(jobs, runs, again, host_id, careful=False)
        except errors.UniqueViolation:
            # An occurrence has a run already: an edit or a resume went back in time.
            return await self._claim(jobs, runs, again, host_id, careful=True)

    async def _claim(
        self,
        jobs: Sequence[Member],
        runs: Sequence[Member],
        again: Sequence[Member],
        host_id: int,
        *,
        careful: bool,
    ) -> ClaimResult:
        versions = [self._definitions.get(m.tenant_id, m.parent_id, m.generation) for m in jobs]
        unknown = [i for i, version in enumerate(versions) if version is None]
        urgent = all(m.priority <= Priority.HIGH for m in (*jobs, *runs))
        async with self._database.transaction(Purpose.URGENT if urgent else Purpose.COMMON) as connection:
            async with connection.pipeline():
                wanted = [jobs[i] for i in unknown]
                fetched = await run(connection, "claim_definitions", version_keys(wanted)) if wanted else None
                job_cursor = await run(connection, "claim_lock_jobs", job_keys(jobs)) if jobs else None
                run_cursor = await run(connection, "claim_lock_runs", run_keys(runs)) if runs else None
            if fetched:
                rows = await fetched.fetchall()
                for i, version in await self._decoded(connection, wanted, rows):
                    versions[unknown[i - 1]] = version
            locked_jobs = await job_cursor.fetchall() if job_cursor else []
            locked_runs = await run_cursor.fetchall() if run_cursor else []
            stale, early = await _sort_lost(connection, _lost(jobs, locked_jobs), _lost(runs, locked_runs))
            stale += again
            if locked_jobs or locked_runs:
                batch = ClaimBatch(now=max(row[-1] for row in (*locked_jobs, *locked_runs)))
                rounds = Rounds()
                for row in locked_jobs:
                    await rounds.give_way()
                    member, version = jobs[row[0] - 1], versions[row[0] - 1]
                    if version is None or row[1] != member.generation:
                        version = await self._version_that_holds(connection, member, row[1])
                    try:
                        _plan_job(batch, member, row, version)
                    except ScheduleError:
                        # One definition that this code cannot read must not hold up the others.
                        _log.exception(
                            "job %s of tenant %s cannot be planned", member.parent_id, member.tenant_id
                        )
                        stale.append(member)
                for row in locked_runs:
                    batch.updates.append(_reclaim(runs[row[0] - 1], row, batch.now))
                if careful:
                    stale += await _drop_existing(connection, batch)
                await admit_overlaps(connection, batch)
                await concurrency.admit(connection, batch, self._held)
                await offers(connection, batch)
                take_workflows(batch)
                if not batch.empty():
                    async with connection.pipeline():
                        await self._write_batch(connection, batch, host_id)
                        await connection.commit()
                if batch.starts or batch.starts_again:
                    self.workflows_due()
                for claim in offered_claims(batch):
                    queue = (claim.tenant_id, claim.definition.target.task_queue)
                    self._ready.came(queue, claim.priority, datetime.fromtimestamp(claim.due_ms / 1000, UTC))
                return ClaimResult(
                    claims=batch.claims(),
                    next_members=batch.nexts,
                    stale=stale,
                    too_early=[*early, *batch.early],
                    offered=offered_queues(batch),
                )
        return ClaimResult(claims=(), next_members=(), stale=stale, too_early=early)

    async def _version_that_holds(self, connection: Connection, member: Member, version: int) -> Version:
        """The definition of a job whose member named an older version."""
        tenant, job = member.tenant_id, member.parent_id
        kept = self._definitions.get(tenant, job, version)
        if kept is not None:
            return kept
        keys = version_keys([member], versions=[version])
        row = await fetch_row(connection, "claim_definitions", keys)
        decoded = await self._decoded(connection, [member], [row], version=version)
        return decoded[0][1]

    async def _decoded(
        self,
        connection: Connection,
        wanted: Sequence[Member],
        rows: Sequence[Row],
        *,
        version: int | None = None,
    ) -> list[tuple[int, Version]]:
        """Rows of `claim_definitions`, read and kept."""
        asked = [(wanted[i - 1].tenant_id, decode_definition(stored)) for i, stored, *_ in rows]
        definitions = await with_calendars(connection, asked)
        found = []
        rounds = Rounds()
        for (i, _, payload, trace), definition in zip(rows, definitions, strict=True):
            await rounds.give_way()
            m = wanted[i - 1]
            number = m.generation if version is None else version
            kept = self._definitions.put(m.tenant_id, m.parent_id, number, definition, payload, trace)
            found.append((i, kept))
        return found

    async def _write_batch(self, connection: Connection, batch: ClaimBatch, host_id: int) -> None:
        if batch.inserts:
            await run(connection, "claim_insert_runs", batch.insert_columns(host_id))
        if batch.skips:
            await run(connection, "claim_insert_skipped", batch.skip_columns())
        if batch.buffered:
            await run(connection, "overlap_insert_buffered", batch.buffer_columns())
        if batch.advances:
            await run(connection, "claim_advance_jobs", batch.advance_columns())
        if batch.updates:
            await run(connection, "claim_update_runs", batch.update_columns(host_id))
        await write_offers(connection, batch)
        begun = await begin_workflows(connection, batch)
        if batch.holding:
            await concurrency.hold(connection, batch.holding)
        entry = Entry()
        for skip in batch.skips:
            m = skip.member
            entry.skipped(m.tenant_id, m.parent_id, skip.skip.at, skip.epoch)
        for c in batch.displaced:
            entry.ended(
                c.tenant_id.hex,
                c.parent_id.hex,
                seconds(c.at),
                c.ordinal,
                c.epoch,
                "CANCELLED",
                attempts=0,
                region_policy=c.region_policy,
            )
        for claim in (*batch.claims(), *begun):
            key = claim.key
            at = seconds(key.scheduled_for)
            entry.claimed.append((claim.tenant_id.hex, key.parent_id.hex, at, key.ordinal, claim.epoch))
        await self._journal.append(connection, host_id, entry)


def _plan_job(batch: ClaimBatch, member: Member, row: Row, version: Version) -> None:
    _, number, due_at, offset_ms, priority, shard, ownership_epoch, delay_ms, _ = row
    definition, payload, trace = version
    scheduled_for = datetime.fromtimestamp(member.scheduled_for, tz=due_at.tzinfo)
    plan = plan_claim(definition, scheduled_for, batch.now, offset_ms=offset_ms + delay_ms)
    offset = offset_ms * 1000
    epoch = next_epoch(0, ownership_epoch)
    if plan.run_at is not None:
        own = plan.run_at == scheduled_for
        due = from_datetime(due_at) if own else from_datetime(plan.run_at) + offset
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
            claimed_ms=batch.now_ms,
            lease_ms=definition.target.timeout_seconds * 1000 + LEASE_MARGIN_MS,
            traceparent=trace,
        )
        batch.inserts.append(Insert(member, claim, due))
    for skip in plan.skipped:
        due = from_datetime(skip.at) + offset
        target_id = definition.target.label
        batch.skips.append(Skipped(member, skip, epoch, due, number, priority, shard, target_id))
    if plan.next is None:
        batch.advances.append((member, None, None))
    else:
        following = from_datetime(plan.next)
        batch.advances.append((member, following, following + offset))
        batch.nexts.append(
            Member(
                tenant_id=member.tenant_id,
                parent_id=member.parent_id,
                scheduled_for=to_unix_seconds(following),
                generation=number,
                priority=priority,
                due_ms=to_ms(following + offset),
                shard=shard,
            )
        )


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
        trace,
        ownership,
        stored,
        payload,
        made,
        which,
        _,
    ) = row
    definition = decode_definition(stored)
    trace = asked_by(trace, made, definition, member.ordinal)
    if which is not None:
        definition = callbacks.as_job(definition, which)
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
        due_ms=datetime_to_ms(due_at),
        released_ms=member.released_ms,
        claimed_ms=datetime_to_ms(now),
        lease_ms=definition.target.timeout_seconds * 1000 + LEASE_MARGIN_MS,
        traceparent=trace,
    )


def _sorted_out(members: Sequence[Member]) -> tuple[list[Member], list[Member], list[Member]]:
    """Jobs, runs, and those that name the same thing a second time."""
    jobs: dict[tuple[int, int, int, int], Member] = {}
    runs: dict[tuple[int, int, int, int], Member] = {}
    again: list[Member] = []
    for m in members:
        named = runs if m.is_run else jobs
        key = (m.tenant_id.int, m.parent_id.int, m.scheduled_for, m.ordinal)
        if named.setdefault(key, m) is not m:
            again += [m]
    return list(jobs.values()), list(runs.values()), again


def _lost(members: Sequence[Member], locked: Sequence[Row]) -> list[Member]:
    if len(members) == len(locked):
        return []
    won = {row[0] for row in locked}
    return [m for i, m in enumerate(members, 1) if i not in won]


async def _sort_lost(
    connection: Connection, jobs: Sequence[Member], runs: Sequence[Member]
) -> tuple[list[Member], list[Member]]:
    """The stale ones, and those that still name what waits (too early, or locked just now)."""
    waiting: set[int] = set()
    if jobs:
        rows = await fetch_all(connection, "claim_unlocked_jobs", job_keys(jobs))
        waiting |= {id(jobs[row[0] - 1]) for row in rows}
    if runs:
        rows = await fetch_all(connection, "claim_unlocked_runs", run_keys(runs))
        waiting |= {id(runs[row[0] - 1]) for row in rows}
    lost = [*jobs, *runs]
    return [m for m in lost if id(m) not in waiting], [m for m in lost if id(m) in waiting]


async def _drop_existing(connection: Connection, batch: ClaimBatch) -> list[Member]:
    """Leave out occurrences that have a run already; their jobs advance all the same."""
    keys = [(insert.member, insert.claim.key) for insert in batch.inserts]
    keys += [(s.member, RunKey(parent_id=s.member.parent_id, scheduled_for=s.skip.at)) for s in batch.skips]
    rows = await fetch_all(connection, "claim_existing_runs", occurrence_keys(keys))
    taken = {row[0] - 1 for row in rows}
    n = len(batch.inserts)
    dropped = [insert.member for i, insert in enumerate(batch.inserts) if i in taken]
    batch.inserts = [insert for i, insert in enumerate(batch.inserts) if i not in taken]
    batch.skips = [skip for i, skip in enumerate(batch.skips, n) if i not in taken]
    return dropped
