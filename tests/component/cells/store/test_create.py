"""Creating jobs: group commits, replays, limits, and that one bad job harms no other."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cells.domain import ids
from cells.domain.job import JobState, Priority, Schedule, ScheduleType
from cells.ports import (
    AllowanceExceeded,
    Conflict,
    Created,
    Fence,
    JobFilter,
    LeaseLost,
    NewJob,
    NotOwner,
    QuotaExceeded,
    Terminal,
)
from tests.component.cells.store.world import (
    EPOCH,
    World,
    definition,
    every,
    new_id,
    new_job,
    seconds_ago,
)

CREATED = Created(created=True, status=201, answer=None)


def keyed(key: str, *, body: bytes = b"a", **changes: Any) -> NewJob:
    return new_job(
        seconds_ago(-60), idempotency_route="POST /v1/jobs", idempotency_key=key, fingerprint=body,
        answer=b"answer " + key.encode(), **changes,
    )  # fmt: skip


def strict(at_in: float = 60, **changes: Any) -> NewJob:
    at = seconds_ago(-at_in)
    return new_job(
        at, every(3600, at, priority=Priority.CRITICAL, dispatch_window_seconds=0), window_ms=0, **changes
    )


async def create(world: World, *items: tuple[Fence, NewJob]) -> list[object]:
    fences, jobs = [fence for fence, _ in items], [job for _, job in items]
    return list(await world.store.create_jobs(fences, jobs, host_id=world.host_id))


async def test_a_batch_of_several_tenants_is_one_commit(world: World) -> None:
    a, b = new_job(seconds_ago(-60)), new_job(seconds_ago(-60))
    done = new_job(None)
    rows = await world.value("SELECT count(*) FROM journal")
    assert await create(world, (world.a, a), (world.b, b), (world.a, done)) == [CREATED] * 3
    assert await world.value("SELECT count(*) FROM journal") == rows + 1
    row = await world.job(a)
    assert (row.definition, row.payload, row.version, row.state) == (
        a.definition,
        b'{"n":1}',
        1,
        JobState.ACTIVE,
    )
    assert (row.next_run_at, row.due_at, row.shard) == (a.next_run_at, a.due_at, a.shard)
    assert (await world.job(done)).state is JobState.DONE
    assert await world.store.get_job(world.a.tenant_id, b.job_id) is None
    *_, body = await world.journal()
    assert sorted(body.intents) == sorted(
        (fence.tenant_id.hex, "job.create", job.job_id.hex, 0, 1)
        for fence, job in ((world.a, a), (world.b, b), (world.a, done))
    )


async def test_only_the_tenant_that_is_not_owned_is_refused(world: World) -> None:
    stranger, old = (
        Fence(tenant_id=new_id(), epoch=EPOCH),
        Fence(tenant_id=world.a.tenant_id, epoch=EPOCH - 1),
    )
    await world.put_tenant(world.b, "SUSPENDED", version=2)
    good = new_job(seconds_ago(-60))
    items = [(f, new_job(seconds_ago(-60))) for f in (stranger, old, world.b)]
    results = await create(world, *items, (world.a, good))
    assert [type(r) for r in results] == [NotOwner, NotOwner, NotOwner, Created]
    assert await world.rows("SELECT job_id FROM jobs") == [(good.job_id,)]


async def test_a_lapsed_host_creates_nothing(world: World) -> None:
    await world.sql.execute(b"UPDATE hosts SET lease_expires_at = now()")
    before = await world.everything()
    with pytest.raises(LeaseLost):
        await create(world, (world.a, new_job(seconds_ago(-60))))
    assert await world.everything() == before


async def test_a_repeated_key_answers_what_was_answered(world: World) -> None:
    job = keyed("k1")
    assert await create(world, (world.a, job)) == [CREATED]
    before = await world.everything()
    results = await create(world, (world.a, job), (world.a, replace(job, job_id=new_id(), fingerprint=b"b")))
    assert results == [
        Created(created=False, status=201, answer=b"answer k1"),
        Created(created=False, status=201, answer=b"answer k1", key_reused=True),
    ]
    assert await world.everything() == before
    assert await create(world, (world.b, job)) == [CREATED]


async def test_a_key_twice_in_one_batch_is_one_job(world: World) -> None:
    first, second, third = keyed("k", job_id=new_id()), keyed("k"), keyed("k", body=b"other")
    results = await create(world, (world.a, first), (world.a, second), (world.a, third))
    assert results == [
        CREATED,
        Created(created=False, status=201, answer=b"answer k"),
        Created(created=False, status=201, answer=b"answer k", key_reused=True),
    ]
    assert await world.rows("SELECT job_id FROM jobs") == [(first.job_id,)]


async def test_a_job_outlives_the_memory_of_its_key(world: World) -> None:
    """The id is derived from the key, so a retry after the key was forgotten finds the job."""
    job = keyed("k")
    await create(world, (world.a, job))
    await world.sql.execute(b"UPDATE idempotency_keys SET created_at = now() - interval '25 hours'")
    assert (await world.store.purge(page=10))["idempotency_keys"] == 1
    assert await create(world, (world.a, job)) == [Created(created=False, status=201, answer=None)]


async def test_concurrent_requests_with_one_key_make_one_job(world: World) -> None:
    """Overlapping batches in different orders: each key is created once, nobody fails."""
    jobs = [keyed(f"k{i}") for i in range(30)]
    orders = [jobs, jobs[::-1], jobs[10:] + jobs[:10], jobs[20:] + jobs[:20]]
    batches = await asyncio.gather(*(create(world, *((world.a, job) for job in order)) for order in orders))
    results = [r for batch in batches for r in batch]
    assert all(isinstance(r, Created) for r in results)
    assert sum(r == CREATED for r in results) == 30
    assert await world.value("SELECT count(*) FROM jobs") == 30


async def test_a_clients_own_key_names_one_job(world: World) -> None:
    one, two = (new_job(seconds_ago(-60), definition(key="nightly")) for _ in range(2))
    results = await create(world, (world.a, one), (world.a, two), (world.b, two))
    assert results[0] == results[2] == CREATED
    assert isinstance(results[1], Conflict)
    (later,) = await create(world, (world.a, replace(two, job_id=new_id())))
    assert isinstance(later, Conflict)


async def test_one_bad_job_fails_alone(world: World) -> None:
    jobs = [new_job(seconds_ago(-60)) for _ in range(9)]
    jobs[4] = replace(jobs[4], definition=definition(name="no\x00name"))
    jobs[7] = replace(jobs[7], due_at=seconds_ago(-10))  # before its own instant
    results = await create(world, *((world.a, job) for job in jobs))
    assert [type(r) for r in results] == [Created] * 4 + [Terminal] + [Created] * 2 + [Terminal, Created]
    assert await world.value("SELECT count(*) FROM jobs") == 7


async def test_strict_jobs_stay_inside_the_allowance(world: World) -> None:
    jobs = [strict() for _ in range(4)]
    at = jobs[0].next_run_at
    assert at is not None
    jobs = [replace(job, next_run_at=at, due_at=at) for job in jobs]
    now_job = new_job(
        at, definition(schedule=Schedule(type=ScheduleType.NOW), priority=Priority.CRITICAL), window_ms=0
    )
    results = await create(world, *((world.a, job) for job in jobs), (world.a, now_job), (world.b, jobs[0]))
    assert results[:2] == [CREATED] * 2
    assert results[4:] == [CREATED] * 2
    for refused in results[2:4]:
        assert isinstance(refused, AllowanceExceeded)
        assert refused.nearest_available == at + timedelta(seconds=1)


async def test_the_allowance_holds_under_concurrency(world: World) -> None:
    at = seconds_ago(-60)
    results = await asyncio.gather(
        *(create(world, (world.a, replace(strict(), next_run_at=at, due_at=at))) for _ in range(8))
    )
    assert sum(r == [CREATED] for r in results) == 2
    assert await world.value("SELECT count(*) FROM jobs") == 2


async def test_without_an_allowance_nothing_is_strict(world: World) -> None:
    await world.put_tenant(world.a, version=2, strict_jobs_per_second=0)
    (refused,) = await create(world, (world.a, strict()))
    assert isinstance(refused, AllowanceExceeded)
    assert refused.nearest_available is None


async def test_pending_timers_are_bounded(world: World) -> None:
    await world.put_tenant(world.a, version=2, pending_timers=3)
    jobs = [new_job(seconds_ago(-60)) for _ in range(5)]
    results = await create(world, *((world.a, job) for job in jobs), (world.b, new_job(seconds_ago(-60))))
    assert [type(r) for r in results] == [Created] * 3 + [QuotaExceeded] * 2 + [Created]
    await world.set_state(jobs[0], JobState.CANCELLED)
    assert await create(world, (world.a, new_job(seconds_ago(-60)))) == [CREATED]


async def test_jobs_are_found_by_what_they_say(world: World) -> None:
    soon, late = seconds_ago(-60), seconds_ago(-7200)
    jobs = [
        new_job(soon, definition(name="rollup daily", tags=("a", "b"))),
        new_job(soon, definition(name="rollup weekly", tags=("a",))),
        new_job(late, definition(name="report")),
    ]
    await world.create(*jobs)
    await world.create(new_job(soon, definition(name="rollup other", tags=("a",))), fence=world.b)

    async def found(**where: object) -> list[int]:
        rows = await world.store.list_jobs(world.a.tenant_id, JobFilter(**where), after=None, limit=10)  # type: ignore[arg-type]
        return [[job.job_id for job in jobs].index(row.job_id) for row in rows]

    assert await found() == [2, 1, 0]
    assert await found(tag="a") == [1, 0]
    assert await found(tag="b", target_id="tgt_reports") == [0]
    assert await found(tag="b", target_id="tgt_other") == []
    assert await found(name_prefix="rollup") == [1, 0]
    assert await found(name_prefix="rollup w", tag="a") == [1]
    assert await found(due_from=seconds_ago(-3600)) == [2]
    assert await found(due_until=seconds_ago(-3600), target_id="tgt_reports") == [1, 0]
    await world.set_state(jobs[1], JobState.PAUSED)
    assert await found(state=JobState.PAUSED) == [1]
    newest = await world.job(jobs[2])
    after = (newest.created_at, newest.job_id)
    rows = await world.store.list_jobs(world.a.tenant_id, JobFilter(), after=after, limit=1)
    assert [row.job_id for row in rows] == [jobs[1].job_id]


async def test_lists_are_in_the_order_of_creation_whatever_the_ids(world: World) -> None:
    begin = seconds_ago(500)
    jobs = [
        replace(
            new_job(seconds_ago(-60), definition(name=f"n{i}", tags=("t",))),
            job_id=ids.derived_id(tenant_id=world.a.tenant_id, key=str(i)),
            created_at=begin + timedelta(seconds=i // 2),
        )
        for i in range(12)
    ]
    await world.create(*jobs)
    await world.store.edit_job(
        world.a,
        base_version=1,
        seen_next_run_at=jobs[3].next_run_at,
        job=replace(jobs[3], definition=definition(name="n3", tags=("t",), priority=Priority.LOW)),
        host_id=world.host_id,
    )
    expected = sorted(jobs, key=lambda job: (job.created_at, job.job_id), reverse=True)  # type: ignore[arg-type, return-value]
    for where in (JobFilter(), JobFilter(tag="t"), JobFilter(name_prefix="n"), JobFilter(due_from=begin)):
        seen: list[uuid.UUID] = []
        after = None
        while rows := await world.store.list_jobs(world.a.tenant_id, where, after=after, limit=5):
            seen += [row.job_id for row in rows]
            after = (rows[-1].created_at, rows[-1].job_id)
        assert seen == [job.job_id for job in expected]
