"""Loader, dispatcher and sweeper together: on time, and whole again after every loss."""

from __future__ import annotations

from pathlib import Path

import redis.asyncio as redis

from cells.timers.metrics import TimerMetrics
from cells.timers.queue import ValkeyQueue
from deploy.engines import Valkey, running
from deploy.ports import Reservation
from tests.component.cells.store.world import World
from tests.component.cells.timers.harness import CLOCK, AllShards, Breakable, Timers, ids, soon
from tests.waiting import eventually

#: Generous: a shared machine pauses for as long now and then. Never early is exact.
LATE_MS = 250


async def test_a_job_that_is_due_soon_is_released_on_time(timers: Timers) -> None:
    async with timers.running(timers.dispatcher()):
        await eventually(lambda: timers.metrics.shards._value.get() == 256)
        jobs = await timers.jobs(soon(300))
        await timers.queue.add(timers.members(jobs))
        await eventually(lambda: timers.claims)
    (claim,) = timers.claims
    assert 0 <= claim.released_ms - claim.due_ms < LATE_MS


async def test_a_clock_that_is_ahead_releases_nothing_that_cannot_be_claimed(timers: Timers) -> None:
    """Else it would be refused, put back and released again, many times a second."""
    jobs = await timers.jobs(soon(700))
    far = await timers.jobs(soon(60_000))
    await timers.queue.add(timers.members(jobs + far))
    async with timers.running(timers.dispatcher(ahead_ms=120_000)):
        await eventually(lambda: timers.claims)
        assert timers.claimed_ids() == ids(jobs)
        assert 0 <= timers.claims[0].released_ms - timers.claims[0].due_ms < LATE_MS
        assert timers.metrics.released.labels("DEFAULT")._value.get() == 1


async def test_a_dispatcher_that_ended_hears_no_more(timers: Timers) -> None:
    before = len(timers.queue._signals._on_wake)
    async with timers.running(timers.dispatcher()):
        await eventually(lambda: len(timers.queue._signals._on_wake) == before + 1)
    assert len(timers.queue._signals._on_wake) == before


async def test_a_nearer_add_wakes_a_dispatcher_that_sleeps(timers: Timers) -> None:
    far = await timers.jobs(soon(25_000))
    await timers.queue.add(timers.members(far))
    async with timers.running(timers.dispatcher()):
        await eventually(lambda: timers.metrics.wakes._value.get() >= 1)
        near = await timers.jobs(soon(150))
        await timers.queue.add(timers.members(near))
        await eventually(lambda: timers.claims)
    assert timers.claimed_ids() == ids(near)
    assert 0 <= timers.claims[0].released_ms - timers.claims[0].due_ms < LATE_MS


async def test_jobs_nobody_told_the_queue_about(timers: Timers) -> None:
    """Overdue ones, present ones, and ones of the next hours."""
    dues = [soon(n) for n in (-90_000_000, -7_000, -100, 300, 600)]
    near = await timers.jobs(*dues)
    far = await timers.jobs(*(soon(60_000 * n) for n in range(2, 119)))
    async with timers.running(timers.loader(), timers.dispatcher(), timers.sweeper()):
        await eventually(lambda: len(timers.claims) >= len(near))
        await eventually(lambda: timers.metrics.loads.labels("loader")._value.get() >= 121)
    assert timers.claimed_ids() == ids(near)
    # The far ones lie in their buckets: none is new.
    assert await timers.queue.restore(timers.members(far)) == 0


async def test_an_emptied_valkey_loses_nothing(timers: Timers, valkey: redis.Redis) -> None:
    jobs = await timers.jobs(*(soon(n * 10) for n in range(-100, 250)))
    async with timers.running(timers.loader(), timers.dispatcher(), timers.sweeper(), worker=False):
        # Some are queued, some in buckets of this minute, some due while it is empty.
        await eventually(lambda: timers.metrics.released.labels("DEFAULT")._value.get() >= 100)
        await valkey.flushdb()
        async with timers.running():
            await eventually(lambda: len(timers.claims) >= len(jobs))
    assert timers.claimed_ids() == ids(jobs)
    assert timers.metrics.generations._value.get() == 1
    last_due = max(claim.due_ms for claim in timers.claims)
    assert max(claim.released_ms for claim in timers.claims) - last_due < 4000


async def test_a_restarted_valkey_loses_nothing(world: World, tmp_path: Path, cell: str) -> None:
    reservation = Reservation()
    engine = Valkey(tmp_path / "valkey", port=reservation.port, password="x" * 16, durable=False)
    queue = ValkeyQueue(engine.url, cell=cell, clock=CLOCK)
    timers = Timers(world, Breakable(world.store), queue, TimerMetrics())
    await queue.open()
    jobs = await timers.jobs(*(soon(n * 10) for n in range(-100, 250)))
    async with timers.running(timers.loader(), timers.dispatcher(), timers.sweeper()):
        # The services start before the engine does.
        await eventually(lambda: timers.metrics.faults.labels("loader")._value.get() > 0)
        with running(engine, tmp_path / "log"):
            await eventually(lambda: len(timers.claims) >= 100)
        with running(engine, tmp_path / "log"):
            await eventually(lambda: len(timers.claims) >= len(jobs))
            # And signals are heard again.
            near = await timers.jobs(soon(200))
            await timers.queue.add(timers.members(near))
            await eventually(lambda: len(timers.claims) > len(jobs))
            assert timers.claims[-1].released_ms - timers.claims[-1].due_ms < LATE_MS
    assert timers.claimed_ids() == ids([*jobs, *near])
    await queue.close()
    reservation.release()


async def test_a_store_that_is_away_for_a_while(timers: Timers) -> None:
    jobs = await timers.jobs(*(soon(n * 20) for n in range(50)))
    timers.store.down = True
    async with timers.running(timers.loader(), timers.dispatcher(), timers.sweeper()):
        for service in ("loader", "sweeper", "dispatcher-shards"):
            await eventually(lambda s=service: timers.metrics.faults.labels(s)._value.get() >= 2)
        timers.store.down = False
        await eventually(lambda: len(timers.claims) >= len(jobs))
    assert timers.claimed_ids() == ids(jobs)


async def test_minutes_without_a_loader_are_read_by_the_dispatcher(timers: Timers) -> None:
    jobs = await timers.jobs(soon(0), soon(2500))
    async with timers.running(timers.dispatcher(), timers.sweeper()):
        await eventually(lambda: timers.metrics.loads.labels("dispatcher")._value.get() >= 1)
        await eventually(lambda: len(timers.claims) >= 2)
    assert timers.claimed_ids() == ids(jobs)


async def test_two_dispatchers_of_the_same_shards_do_no_harm(
    timers: Timers, valkey_url: str, cell: str
) -> None:
    timers.store = AllShards(timers.world.store)
    await timers.world.put_tenant(timers.world.a, version=2, job_runs_per_second=100_000)
    jobs = await timers.jobs(*(soon(500 + n) for n in range(1000)))
    await timers.queue.add(timers.members(jobs))
    other = ValkeyQueue(valkey_url, cell=cell, clock=CLOCK)
    await other.open()
    async with timers.running(timers.dispatcher(), timers.dispatcher(other)):
        await eventually(lambda: len(timers.claims) >= len(jobs))
    await other.close()
    assert timers.claimed_ids() == ids(jobs)
    assert timers.stale == []
    assert all(claim.released_ms >= claim.due_ms for claim in timers.claims)


async def test_two_loaders_share_the_minutes(timers: Timers) -> None:
    jobs = await timers.jobs(*(soon(20_000 * n) for n in range(1, 300)))
    async with timers.running(timers.loader(), timers.loader(), worker=False):
        await eventually(lambda: timers.metrics.loads.labels("loader")._value.get() >= 121)
    assert timers.metrics.loaded._value.get() == len(jobs)
    generation = await timers.queue.generation()
    first = CLOCK.now_ms() // 60_000
    assert set(await timers.queue.not_loaded(generation, range(first, first + 120))) == {frozenset()}
    assert await timers.loader().look() == 0


async def test_a_failed_load_leaves_its_minute_unmarked(timers: Timers) -> None:
    await timers.jobs(soon(100_000))
    timers.store.down = True
    loader = timers.loader()
    async with timers.running(loader, worker=False):
        await eventually(lambda: timers.metrics.faults.labels("loader")._value.get() >= 3)
        assert timers.metrics.loads.labels("loader")._value.get() == 0
        timers.store.down = False
        await eventually(lambda: timers.metrics.loaded._value.get() == 1)


async def test_a_suspended_tenants_work_is_held_and_released_in_order(timers: Timers) -> None:
    world = timers.world
    await world.put_tenant(world.a, "SUSPENDED", version=2)
    b_jobs = await timers.jobs(soon(100), fence=world.b)
    await world.put_tenant(world.a, version=3)
    jobs = await timers.jobs(*(soon(n) for n in (50, 100, 150)))
    await world.put_tenant(world.a, "SUSPENDED", version=4)
    async with timers.running(
        timers.loader(), timers.dispatcher(), timers.sweeper(overdue_ms=0, sweep_seconds=0.1)
    ):
        await eventually(lambda: timers.metrics.held._value.get() >= 3)
        await eventually(lambda: len(timers.claims) == 1)
        await world.put_tenant(world.a, version=5)
        await eventually(lambda: len(timers.claims) == 4)
    assert [c.key.parent_id for c in timers.claims] == [b_jobs[0].job_id, *(job.job_id for job in jobs)]
