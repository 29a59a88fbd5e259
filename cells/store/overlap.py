"""Admission of claims: what an occurrence does while the one before it has not ended.

Runs of jobs with such a policy are *guarded*: a narrow index holds those of them that have not ended.
The claim has the job locked, so that of two runs one looks after the other's commit: whether the one is a
new occurrence, or one that was backfilled or redriven. What has to wait is a DUE run with the reason
`overlap`; the end of the one before wakes the oldest, and each looks by itself from time to time, because
the end may have come between the look and the commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from cells.domain.claiming import OVERLAP, Skip
from cells.domain.job import OverlapPolicy
from cells.ports import Claim, Member
from cells.store.arrays import bools, due_to_ms, from_datetime, instants, int4s, uuids
from cells.store.claim_batch import Cancelled, ClaimBatch, Insert, Skipped, is_guarded
from cells.store.database import Connection, Row, fetch_all
from cells.store.journal import seconds

#: A buffered occurrence looks after a second, and ever more rarely the longer it waits.
_FIRST_LOOK = timedelta(seconds=1)
_LAST_LOOK = timedelta(seconds=60)
#: Set in the generation of a timer that was moved, so that queues tell it from the one it replaces.
_MOVED = 1 << 30


async def admit_overlaps(connection: Connection, batch: ClaimBatch) -> None:
    """Change a batch so that it holds to its jobs' overlap policies. No round trip where none has one."""
    guarded = [
        insert
        for insert in batch.inserts
        if insert.claim.definition.overlap_policy is not OverlapPolicy.ALLOW and not insert.claim.key.ordinal
    ]
    if guarded:
        await _admit_new(connection, batch, guarded)
    waiting = [
        claim for claim in batch.updates if is_guarded(claim) and claim.attempt == 1 and not claim.key.ordinal
    ]
    if waiting:
        await _admit_waiting(connection, batch, waiting)


async def _admit_new(connection: Connection, batch: ClaimBatch, guarded: Sequence[Insert]) -> None:
    rows = await fetch_all(
        connection,
        "overlap_active",
        {
            "tenants": uuids([insert.member.tenant_id for insert in guarded]),
            "jobs": uuids([insert.member.parent_id for insert in guarded]),
        },
    )
    if not rows:
        return
    displacing: list[Insert] = []
    for i, active, waiting in rows:
        insert = guarded[i - 1]
        policy = insert.claim.definition.overlap_policy
        if policy is OverlapPolicy.CANCEL_PREVIOUS:
            displacing.append(insert)
            continue
        if policy is OverlapPolicy.SKIP and not active:
            continue  # what waits lets the schedule go first
        batch.inserts.remove(insert)
        if policy is OverlapPolicy.BUFFER_ONE and not waiting:
            batch.buffered.append((insert, batch.now + _FIRST_LOOK))
            batch.nexts.append(_timer(insert.claim, batch.now + _FIRST_LOOK))
        else:
            batch.skips.append(_skipped(insert))
    if displacing:
        batch.displaced += await _displace(connection, batch, displacing)


async def _displace(
    connection: Connection, batch: ClaimBatch, displacing: Sequence[Insert]
) -> list[Cancelled]:
    rows = await fetch_all(
        connection,
        "overlap_displace",
        {
            "tenants": uuids([insert.member.tenant_id for insert in displacing]),
            "jobs": uuids([insert.member.parent_id for insert in displacing]),
        },
    )
    cancelled: list[Cancelled] = []
    for i, tenant, parent, at, ordinal, epoch, state in rows:
        insert = displacing[i - 1]
        if state is None:
            # Passed over, the one before would go on beside this one: the claim comes a moment later.
            batch.put_back(insert)
        elif state == "CANCELLED":
            policy = insert.claim.definition.region_policy
            cancelled.append(Cancelled(tenant, parent, at, ordinal, epoch, policy))
    return cancelled


def _skipped(insert: Insert) -> Skipped:
    claim = insert.claim
    return Skipped(
        insert.member,
        Skip(claim.key.scheduled_for, OVERLAP, 1),
        claim.epoch,
        insert.due,
        claim.version,
        claim.priority,
        claim.shard,
        claim.definition.target.label,
    )


async def _admit_waiting(connection: Connection, batch: ClaimBatch, waiting: Sequence[Claim]) -> None:
    """Runs that wait already: of each job the oldest may begin, if the job is not at work."""
    jobs = sorted({_job(claim) for claim in waiting}, key=lambda job: (job[0].int, job[1].int))
    rows = await fetch_all(
        connection,
        "overlap_jobs",
        {"tenants": uuids([tenant for tenant, _ in jobs]), "jobs": uuids([job for _, job in jobs])},
    )
    locked = {jobs[i - 1] for (i,) in rows}
    given = {_job(insert.claim) for insert in batch.inserts}
    waiting = sorted(waiting, key=lambda claim: claim.key.scheduled_for)
    busy: list[bool] = []
    for claim in waiting:
        job = _job(claim)
        busy.append(job not in locked or job in given)
        given.add(job)
    looks = [
        _next_look(claim, batch.now) if _job(claim) in locked else batch.now + _FIRST_LOOK
        for claim in waiting
    ]
    rows = await fetch_all(
        connection,
        "overlap_put_off",
        {
            "tenants": uuids([claim.tenant_id for claim in waiting]),
            "parents": uuids([claim.key.parent_id for claim in waiting]),
            "instants": instants([from_datetime(claim.key.scheduled_for) for claim in waiting]),
            "ordinals": int4s([claim.key.ordinal for claim in waiting]),
            "looks": instants([from_datetime(look) for look in looks]),
            "busy": bools(busy),
        },
    )
    for (i,) in rows:
        claim = waiting[i - 1]
        batch.updates.remove(claim)
        batch.put_off += 1
        batch.nexts.append(_timer(claim, looks[i - 1]))


def _job(claim: Claim) -> tuple[uuid.UUID, uuid.UUID]:
    return claim.tenant_id, claim.key.parent_id


def _next_look(claim: Claim, now: datetime) -> datetime:
    waited = timedelta(milliseconds=max(0, int(now.timestamp() * 1000) - claim.due_ms))
    return now + min(max(waited / 4, _FIRST_LOOK), _LAST_LOOK)


def _timer(claim: Claim, at: datetime) -> Member:
    return moved_timer(
        claim.tenant_id,
        claim.key.parent_id,
        claim.key.scheduled_for,
        claim.key.ordinal,
        claim.priority,
        claim.shard,
        at,
    )


def moved_timer(
    tenant_id: uuid.UUID, parent_id: uuid.UUID, scheduled_for: datetime, ordinal: int, priority: int,
    shard: int, at: datetime,
) -> Member:  # fmt: skip
    """The timer of a run whose time was moved: another one than the timer it had."""
    return Member(
        tenant_id=tenant_id,
        parent_id=parent_id,
        scheduled_for=seconds(scheduled_for),
        ordinal=ordinal,
        is_run=True,
        generation=_MOVED | (due_to_ms(at) & (_MOVED - 1)),
        priority=priority,
        due_ms=due_to_ms(at),
        shard=shard,
    )


async def wake_buffered(connection: Connection, ended: Sequence[tuple[uuid.UUID, uuid.UUID]]) -> list[Member]:
    """Guarded runs of these jobs ended in this transaction: what waited for that is due now."""
    jobs = sorted(set(ended), key=lambda pair: (pair[0].int, pair[1].int))
    parameters = {
        "tenants": uuids([tenant for tenant, _ in jobs]),
        "jobs": uuids([job for _, job in jobs]),
    }
    rows: list[Row] = await fetch_all(connection, "overlap_wake", parameters)
    return [moved_timer(*row) for row in rows]
