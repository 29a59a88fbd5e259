"""Creating jobs: many tenants' requests in one transaction, each judged on its own.

What is known to be refused or replayed is found by reading first; then everything else is
written with plain inserts. Where a concurrent writer was faster, the unique violation rolls the
batch back and it is judged again, now seeing what the other wrote. A batch that the database
cannot store at all is halved until the one bad job stands alone.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence

import msgspec
import psycopg
from psycopg import errors

from cells.domain.job import JobDefinition, ScheduleType
from cells.ports import (
    Conflict,
    Created,
    Fence,
    NewJob,
    NotOwner,
    QuotaExceeded,
    Retryable,
    TenantConfig,
    Terminal,
)
from cells.store.allowance import check_strict, is_strict
from cells.store.arrays import blobs, from_datetime_or_none, instants, int2s, int4s, labels, texts, uuids
from cells.store.base import StoreBase
from cells.store.calendars import facet_of, outdated
from cells.store.database import Connection, Database, fetch_all, run
from cells.store.definitions import encode_definition
from cells.store.events import tell_created
from cells.store.journal import Entry
from cells.store.limits_told import LimitsTold
from cells.store.passing import Passing, write_skips

_ATTEMPTS = 5
_CREATED = 201
_WRITTEN = Created(created=True, status=_CREATED, answer=None)

Item = tuple[Fence, NewJob]
Outcome = Created | Exception


def facets(definition: JobDefinition) -> list[str]:
    """The terms under which a job is found."""
    found = [f"target:{definition.target.label}", *(f"tag:{tag}" for tag in definition.tags)]
    if definition.name:
        found.append(f"name:{definition.name}")
    if definition.schedule.calendar is not None:
        found.append(facet_of(definition.schedule.calendar))
    return found


class Creation(StoreBase):
    """`create_jobs`."""

    def __init__(self, database: Database, *, cell_name: str) -> None:
        super().__init__(database, cell_name=cell_name)
        self._limits = LimitsTold()

    async def create_jobs(
        self, fences: Sequence[Fence], jobs: Sequence[NewJob], *, host_id: int
    ) -> Sequence[Created | Exception]:
        """See `ports.Store.create_jobs`."""
        return await self._create_all(list(zip(fences, jobs, strict=True)), host_id) if jobs else []

    async def _create_all(self, items: Sequence[Item], host_id: int) -> list[Outcome]:
        for _ in range(_ATTEMPTS):
            try:
                return await self._create(items, host_id)
            except (errors.UniqueViolation, Retryable) as e:
                lost_race = isinstance(e, errors.UniqueViolation) or isinstance(
                    e.__cause__, errors.DeadlockDetected
                )
                if not lost_race:
                    raise
            except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError) as e:
                if len(items) == 1:
                    return [Terminal(str(e))]
                half = len(items) // 2
                first = await self._create_all(items[:half], host_id)
                return first + await self._create_all(items[half:], host_id)
        raise Retryable("too many concurrent creations of the same jobs")

    async def _create(self, items: Sequence[Item], host_id: int) -> list[Outcome]:
        outcomes: list[Outcome | None] = [None] * len(items)
        async with self._database.transaction() as connection:
            twins = await self._judge(connection, items, outcomes)
            entry = Entry()
            self._limits.tell(entry, items, outcomes)
            accepted = [i for i, outcome in enumerate(outcomes) if outcome is None and i not in twins]
            if accepted:
                # One order of keys for all writers: they may wait for each other, never in a circle.
                accepted.sort(key=lambda i: (items[i][0].tenant_id.int, items[i][1].job_id.int))
                chosen = [items[i] for i in accepted]
                for fence, job in chosen:
                    entry.intent(fence.tenant_id, "job.create", job.job_id.hex, 0, 1)
                tell_created(entry, chosen)
                passing = [
                    Passing(
                        fence=fence, job_id=job.job_id, version=1, definition=job.definition, skips=job.passed
                    )
                    for fence, job in chosen
                    if job.passed
                ]
                async with connection.pipeline():
                    await _insert(connection, chosen)
                    await write_skips(connection, entry, passing)
                    await self._journal.append(connection, host_id, entry)
                    await connection.commit()
                self._count_timers(chosen)
            elif entry.events:
                await self._journal.append(connection, host_id, entry)
        return [_outcome(i, items, outcomes, twins) for i in range(len(items))]

    def _count_timers(self, chosen: Sequence[Item]) -> None:
        timers = Counter(fence.tenant_id for fence, job in chosen if job.due_at is not None)
        for tenant, n in timers.items():
            self._pending.add(tenant, n)

    async def _judge(
        self, connection: Connection, items: Sequence[Item], outcomes: list[Outcome | None]
    ) -> dict[int, int]:
        """Fill in the outcome of every item that must not be written; which items repeat the
        idempotency key of another one in the batch."""
        owned = await _owned(connection, {fence.tenant_id for fence, _ in items})
        for i, (fence, _) in enumerate(items):
            if owned.get(fence.tenant_id, (0, None))[0] != fence.epoch:
                outcomes[i] = NotOwner(
                    f"tenant {fence.tenant_id} is not active here under epoch {fence.epoch}"
                )
        configs = {tenant: config for tenant, (_, config) in owned.items()}
        twins = await _judge_keys(connection, items, outcomes)
        judged = [i for i in range(len(items)) if i not in twins]
        await _judge_names(connection, items, judged, outcomes)
        await _judge_calendars(connection, items, judged, outcomes)
        await self._judge_pending(connection, items, judged, outcomes, configs)
        strict = [i for i in judged if outcomes[i] is None and is_strict(items[i][1])]
        if strict:
            asked = [
                (items[i][0].tenant_id, due_at, configs[items[i][0].tenant_id])
                for i in strict
                if (due_at := items[i][1].due_at) is not None
            ]
            for position, error in (await check_strict(connection, asked)).items():
                outcomes[strict[position]] = error
        return twins

    async def _judge_pending(
        self,
        connection: Connection,
        items: Sequence[Item],
        judged: Sequence[int],
        outcomes: list[Outcome | None],
        configs: dict[uuid.UUID, TenantConfig],
    ) -> None:
        room: dict[uuid.UUID, int] = {}
        for i in judged:
            fence, job = items[i]
            if outcomes[i] is not None or job.due_at is None:
                continue
            tenant, limit = fence.tenant_id, configs[fence.tenant_id].pending_timers
            if tenant not in room:
                room[tenant] = await self._pending.room(connection, tenant, limit)
            if room[tenant] <= 0:
                outcomes[i] = QuotaExceeded("pending_timers", limit)
            room[tenant] -= 1


async def _owned(
    connection: Connection, tenants: set[uuid.UUID]
) -> dict[uuid.UUID, tuple[int, TenantConfig]]:
    rows = await fetch_all(connection, "tenant_fences", {"tenants": uuids(list(tenants))})
    return {row[0]: (row[1], msgspec.json.decode(row[2], type=TenantConfig)) for row in rows}


async def _judge_keys(
    connection: Connection, items: Sequence[Item], outcomes: list[Outcome | None]
) -> dict[int, int]:
    """Replays: a stored answer, or a job under the same derived id whose key was forgotten.
    Returns those that repeat the key of an earlier item, with that item."""
    keyed = [i for i, (_, job) in enumerate(items) if outcomes[i] is None and job.idempotency_key is not None]
    if not keyed:
        return {}
    tenants = uuids([items[i][0].tenant_id for i in keyed])
    async with connection.pipeline():
        known = await run(
            connection,
            "create_known_keys",
            {
                "tenants": tenants,
                "routes": texts([items[i][1].idempotency_route or "" for i in keyed]),
                "keys": texts([items[i][1].idempotency_key for i in keyed]),
            },
        )
        ids = uuids([items[i][1].job_id for i in keyed])
        existing = await run(connection, "create_known_jobs", {"tenants": tenants, "jobs": ids})
    for (position,) in await existing.fetchall():
        outcomes[keyed[position - 1]] = Created(created=False, status=_CREATED, answer=None)
    for position, stored, status, body in await known.fetchall():
        i = keyed[position - 1]
        reused = stored != items[i][1].fingerprint
        outcomes[i] = Created(created=False, status=status, answer=body, key_reused=reused)
    first: dict[tuple[uuid.UUID, str | None, str | None], int] = {}
    for i in keyed:
        if outcomes[i] is None:
            fence, job = items[i]
            first.setdefault((fence.tenant_id, job.idempotency_route, job.idempotency_key), i)
    return {
        i: original
        for i in keyed
        if outcomes[i] is None
        and (
            original := first[
                items[i][0].tenant_id, items[i][1].idempotency_route, items[i][1].idempotency_key
            ]
        )
        != i
    }


def _outcome(
    i: int, items: Sequence[Item], outcomes: Sequence[Outcome | None], twins: dict[int, int]
) -> Outcome:
    original = twins.get(i)
    if original is None:
        return outcomes[i] or _WRITTEN
    fate, first, job = outcomes[original], items[original][1], items[i][1]
    if isinstance(fate, Exception):
        return fate
    reused = first.fingerprint != job.fingerprint
    return Created(created=False, status=_CREATED, answer=first.answer, key_reused=reused)


async def _judge_names(
    connection: Connection, items: Sequence[Item], judged: Sequence[int], outcomes: list[Outcome | None]
) -> None:
    named = [i for i in judged if outcomes[i] is None and items[i][1].definition.key is not None]
    if not named:
        return
    keys = [(items[i][0].tenant_id, items[i][1].definition.key) for i in named]
    parameters = {"tenants": uuids([t for t, _ in keys]), "job_keys": texts([k for _, k in keys])}
    taken = {keys[row[0] - 1] for row in await fetch_all(connection, "create_known_names", parameters)}
    for i, key in zip(named, keys, strict=True):
        if key in taken:
            outcomes[i] = Conflict(f"another job has the key {key[1]!r}")
        taken.add(key)


async def _judge_calendars(
    connection: Connection, items: Sequence[Item], judged: Sequence[int], outcomes: list[Outcome | None]
) -> None:
    left = [i for i in judged if outcomes[i] is None]
    asked = [(items[i][0].tenant_id, items[i][1].definition.schedule) for i in left]
    for position in await outdated(connection, asked):
        outcomes[left[position]] = Conflict("the calendar was changed just then; try again")


async def _insert(connection: Connection, chosen: Sequence[Item]) -> None:
    jobs = [job for _, job in chosen]
    tenants = uuids([fence.tenant_id for fence, _ in chosen])
    ids = uuids([job.job_id for job in jobs])
    created = instants([from_datetime_or_none(job.created_at) for job in jobs])
    terms = [(fence.tenant_id, term, job) for fence, job in chosen for term in facets(job.definition)]
    keyed = [(f.tenant_id, j) for f, j in chosen if j.idempotency_key is not None]
    if keyed:
        await run(
            connection,
            "create_keys",
            {
                "tenants": uuids([tenant for tenant, _ in keyed]),
                "routes": texts([job.idempotency_route or "" for _, job in keyed]),
                "keys": texts([job.idempotency_key for _, job in keyed]),
                "fingerprints": blobs([job.fingerprint or b"" for _, job in keyed]),
                "statuses": int2s([_CREATED] * len(keyed)),
                "bodies": blobs([job.answer or b"" for _, job in keyed]),
            },
        )
    await run(
        connection,
        "create_jobs",
        {
            "tenants": tenants,
            "jobs": ids,
            "shards": int2s([job.shard for job in jobs]),
            "states": labels([job.state for job in jobs]),
            "priorities": int2s([job.definition.priority for job in jobs]),
            "windows": int4s([job.window_ms for job in jobs]),
            "offsets": int4s([job.offset_ms for job in jobs]),
            "nexts": instants([from_datetime_or_none(job.next_run_at) for job in jobs]),
            "dues": instants([from_datetime_or_none(job.due_at) for job in jobs]),
            # An ad hoc job's occurrence is its first run by hand: `...:1`.
            "triggers": int4s([int(job.definition.schedule.type is ScheduleType.NOW) for job in jobs]),
            "targets": labels([job.definition.target.label for job in jobs]),
            "names": texts([job.definition.name for job in jobs]),
            "job_keys": texts([job.definition.key for job in jobs]),
            "policies": labels([job.definition.region_policy for job in jobs]),
            "created": created,
        },
    )
    await run(
        connection,
        "create_versions",
        {
            "tenants": tenants,
            "jobs": ids,
            "versions": int4s([1] * len(jobs)),
            "definitions": blobs([encode_definition(job.definition) for job in jobs]),
            "payloads": blobs([job.payload for job in jobs]),
            "actors": labels([job.actor for job in jobs]),
            "created": created,
            "traces": labels([job.traceparent for job in jobs]),
        },
    )
    await run(
        connection,
        "create_facets",
        {
            "tenants": uuids([tenant for tenant, _, _ in terms]),
            "facets": texts([term for _, term, _ in terms]),
            "jobs": uuids([job.job_id for _, _, job in terms]),
            "created": instants([from_datetime_or_none(job.created_at) for _, _, job in terms]),
        },
    )
