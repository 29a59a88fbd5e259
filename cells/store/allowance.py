"""Two limits of a tenant that are checked where jobs get their timers.

*Strict jobs* (CRITICAL, window 0, on a schedule) promise their exact second, so how many may be
due in one second is counted under a lock. *Pending timers* guards the cell's size and may be
approximate: the count is taken again after a time that grows with it, so that counting costs a
bounded share, and small tenants are always counted exactly.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from cells.domain.job import JobDefinition, JobState, Priority, ScheduleType
from cells.ports import AllowanceExceeded, NewJob, QuotaExceeded, TenantConfig
from cells.store.arrays import from_datetime, instants, uuids
from cells.store.database import Connection, fetch_all, fetch_one, run

#: How far ahead a free second is looked for.
_SEARCH = timedelta(minutes=10)
#: Counting may cost the time of this many index entries per second.
_COUNTED_PER_SECOND = 20_000
_LONGEST_TRUST_SECONDS = 30.0


def needs_allowance(definition: JobDefinition, window_ms: int) -> bool:
    """Whether a job of that kind has to keep its exact second."""
    return (
        definition.priority is Priority.CRITICAL
        and window_ms == 0
        and definition.schedule.type is not ScheduleType.NOW
    )


def is_strict(job: NewJob) -> bool:
    """Whether a job needs room in its tenant's strict allowance."""
    return (
        job.due_at is not None
        and job.state is JobState.ACTIVE
        and needs_allowance(job.definition, job.window_ms)
    )


def _second(at: datetime) -> datetime:
    return at.replace(microsecond=0)


async def check_strict(
    connection: Connection,
    timers: Sequence[tuple[uuid.UUID, datetime, TenantConfig]],
    *,
    but_not: uuid.UUID | None = None,
) -> dict[int, AllowanceExceeded]:
    """Positions of strict timers that have no room, each with the next second that has.

    Holds the tenants' allowances until the transaction ends. `but_not` is a job that gives its
    own place up.
    """
    wanted = [(tenant, _second(due_at)) for tenant, due_at, _ in timers]
    keys = list(dict.fromkeys(wanted))
    parameters = {
        "tenants": uuids([tenant for tenant, _ in keys]),
        "seconds": instants([from_datetime(second) for _, second in keys]),
        "but_not": but_not,
    }
    await run(connection, "create_strict_locks", {"tenants": parameters["tenants"]})
    used = Counter(
        {keys[i - 1]: n for i, n in await fetch_all(connection, "create_strict_counts", parameters)}
    )
    refused: dict[int, AllowanceExceeded] = {}
    for i, ((tenant, second), (_, _, config)) in enumerate(zip(wanted, timers, strict=True)):
        if used[tenant, second] < config.strict_jobs_per_second:
            used[tenant, second] += 1
        else:
            refused[i] = AllowanceExceeded(await _nearest(connection, tenant, second, config, used))
    return refused


async def _nearest(
    connection: Connection,
    tenant: uuid.UUID,
    second: datetime,
    config: TenantConfig,
    used: Counter[tuple[uuid.UUID, datetime]],
) -> datetime | None:
    if config.strict_jobs_per_second <= 0:
        return None
    parameters = {"tenant": tenant, "since": second, "until": second + _SEARCH}
    taken: dict[datetime, int] = dict(await fetch_all(connection, "create_strict_taken", parameters))
    at = second + timedelta(seconds=1)
    while at < second + _SEARCH:
        if max(taken.get(at, 0), used[tenant, at]) < config.strict_jobs_per_second:
            return at
        at += timedelta(seconds=1)
    return None


class PendingTimers:
    """How many timers tenants have waiting, as far as this process needs to know."""

    def __init__(self) -> None:
        self._counts: dict[uuid.UUID, tuple[int, float]] = {}  # with the time until it is trusted

    async def room(self, connection: Connection, tenant: uuid.UUID, limit: int) -> int:
        """How many more timers the tenant may have."""
        now = time.monotonic()
        count, trusted_until = self._counts.get(tenant, (0, 0.0))
        if now >= trusted_until:
            row = await fetch_one(connection, "create_pending", {"tenant": tenant, "limit": limit + 1})
            count = 0 if row is None else row[0]
            trust = min(count / _COUNTED_PER_SECOND, _LONGEST_TRUST_SECONDS)
            self._counts[tenant] = (count, now + trust)
        return max(limit - count, 0)

    async def take(self, connection: Connection, tenant: uuid.UUID, limit: int) -> None:
        """One more timer: of a job that had none. `QuotaExceeded` where there is no room."""
        if await self.room(connection, tenant, limit) <= 0:
            raise QuotaExceeded("pending_timers", limit)
        self.add(tenant, 1)

    def add(self, tenant: uuid.UUID, timers: int) -> None:
        """Timers were created."""
        count, trusted_until = self._counts.get(tenant, (0, 0.0))
        self._counts[tenant] = (count + timers, trusted_until)
