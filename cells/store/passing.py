"""Rows for what will not run before a job's next occurrence: DST gaps and excluded dates.

A claim writes them for the time up to the next occurrence; where that is found in another way (a
creation, an edit, a resume, a changed calendar), this does.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cells.domain.claiming import Skip, swallowed
from cells.domain.epochs import next_epoch
from cells.domain.ids import shard_of
from cells.domain.job import Gap, JobDefinition, Schedule
from cells.domain.schedule import compile_schedule
from cells.ports import Fence
from cells.store.arrays import from_datetime, instants, int2s, int4s, int8s, labels, texts, uuids
from cells.store.database import Connection, run
from cells.store.journal import Entry


@dataclass(frozen=True, kw_only=True, slots=True)
class Passing:
    """What of one job will not run."""

    fence: Fence
    job_id: uuid.UUID
    version: int
    definition: JobDefinition
    skips: Sequence[Skip]


def may_pass_over(schedule: Schedule) -> bool:
    """Whether a schedule has anything that does not run. Almost none has."""
    return schedule.dst.gap is Gap.SKIP or schedule.calendar is not None


def ahead_of(schedule: Schedule, now: datetime, following: datetime | None) -> tuple[Skip, ...]:
    """What does not run between now and the occurrence that a job waits for."""
    if not may_pass_over(schedule) or (following is not None and following <= now):
        return ()
    return swallowed(compile_schedule(schedule), now, following)


async def write_skips(connection: Connection, entry: Entry, passing: Sequence[Passing]) -> None:
    """Write the rows of some jobs; nothing if there are none."""
    rows = [(p, skip) for p in passing for skip in p.skips]
    if not rows:
        return
    for p, skip in rows:
        entry.skipped(p.fence.tenant_id, p.job_id, skip.at, next_epoch(0, p.fence.epoch))
    await run(
        connection,
        "skips_insert",
        {
            "tenants": uuids([p.fence.tenant_id for p, _ in rows]),
            "jobs": uuids([p.job_id for p, _ in rows]),
            "instants": instants([from_datetime(skip.at) for _, skip in rows]),
            "shards": int2s([shard_of(p.job_id) for p, _ in rows]),
            "priorities": int2s([p.definition.priority for p, _ in rows]),
            "versions": int4s([p.version for p, _ in rows]),
            "epochs": int8s([next_epoch(0, p.fence.epoch) for p, _ in rows]),
            "targets": texts([p.definition.target.label for p, _ in rows]),
            "reasons": labels([skip.reason for _, skip in rows]),
            "skips": int4s([skip.count for _, skip in rows]),
        },
    )


async def tell_ahead_anew(
    connection: Connection,
    entry: Entry,
    fence: Fence,
    job_id: uuid.UUID,
    version: int,
    definition: JobDefinition,
    *,
    now: datetime,
    following: datetime | None,
    before: Schedule | None = None,
) -> None:
    """Replace what a job was told beforehand; `before` is the schedule it had."""
    if before is not None and may_pass_over(before):
        await run(connection, "skips_forget", {"tenant": fence.tenant_id, "job": job_id, "now": now})
    skips = ahead_of(definition.schedule, now, following)
    await write_skips(
        connection,
        entry,
        [Passing(fence=fence, job_id=job_id, version=version, definition=definition, skips=skips)],
    )
