"""Finding what waits, in pages."""

from __future__ import annotations

from datetime import datetime, timedelta

from cells.domain.job import JobState
from cells.domain.run import RunState
from cells.ports import Member
from tests.component.cells.store.world import World, completion, member_of, ms, new_job, now, seconds_ago


async def due(
    world: World,
    *,
    shards: object = range(256),
    since: datetime | None = None,
    until: datetime,
    page: int = 5000,
) -> list[Member]:
    pages = world.store.due_members(shards=list(shards), since=since, until=until, page=page)  # type: ignore[call-overload]
    return [member async for members in pages for member in members]


async def test_every_waiting_thing_is_found_once_whatever_the_page(world: World) -> None:
    base = seconds_ago(-60)
    jobs = [new_job(base + timedelta(seconds=i // 10), offset_ms=i % 3) for i in range(60)]
    await world.create(*jobs[:40])
    await world.create(*jobs[40:], fence=world.b)
    await world.set_state(jobs[0], JobState.PAUSED)
    expected = sorted(job.job_id for job in jobs[1:])
    for page in (1, 7, 5000):
        found = await due(world, until=base + timedelta(hours=1), page=page)
        assert sorted(m.parent_id for m in found) == expected
    by_id = {job.job_id: job for job in jobs}
    for m in found:
        job = by_id[m.parent_id]
        assert job.next_run_at is not None
        assert job.due_at is not None
        assert (m.scheduled_for, m.due_ms) == (int(job.next_run_at.timestamp()), ms(job.due_at))
        assert (m.shard, m.generation, m.priority, m.is_run, m.ordinal) == (job.shard, 1, 2, False, 0)


async def test_only_the_shards_and_the_range_that_were_asked_for(world: World) -> None:
    base = seconds_ago(-60)
    jobs = [new_job(base + timedelta(seconds=i)) for i in range(20)]
    await world.create(*jobs)
    shard = jobs[3].shard
    found = await due(world, shards=[shard], until=base + timedelta(hours=1))
    assert {m.parent_id for m in found} == {job.job_id for job in jobs if job.shard == shard}
    found = await due(world, since=base + timedelta(seconds=5), until=base + timedelta(seconds=8))
    assert {m.parent_id for m in found} == {job.job_id for job in jobs[5:8]}
    assert await due(world, shards=[], until=base + timedelta(hours=1)) == []


async def test_waiting_runs_are_found_as_runs(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    at = now() + timedelta(seconds=5)
    applied = await world.store.complete(
        [completion(claim, RunState.RETRY_WAIT, timer_at=at)], host_id=world.host_id
    )
    job = new_job(seconds_ago(-600))
    await world.create(job)
    run, member, _ = await world.store.trigger_job(
        world.a, job_id=job.job_id, now=now(), payload=None, actor="x", traceparent=None, idempotency=None,
        host_id=world.host_id,
    )  # fmt: skip
    found = await due(world, until=now() + timedelta(seconds=60), page=1)
    assert sorted(found, key=lambda m: m.due_ms) == [member, *applied.retries]
    assert (await world.claim(member_of(job, world.a.tenant_id))).claims == ()
    assert run.state is RunState.DUE


async def test_due_times_are_exact_to_the_microsecond_and_never_early(world: World) -> None:
    base = seconds_ago(30)
    lags = (0, 1, 999, 1000, 1001, 123_456, 999_999)
    jobs = [new_job(base) for _ in lags]
    await world.create(*jobs)
    for job, lag in zip(jobs, lags, strict=True):
        due = base + timedelta(microseconds=lag)
        await world.sql.execute(b"UPDATE jobs SET due_at = %s WHERE job_id = %s", (due, job.job_id))
    found = {}
    async for page in world.store.due_members(
        shards=range(256), since=base, until=base + timedelta(seconds=1), page=2
    ):
        found |= {member.parent_id: member.due_ms for member in page}
    start = int(base.timestamp()) * 1000
    assert [found[job.job_id] - start for job in jobs] == [0, 1, 1, 1, 2, 124, 1000]
