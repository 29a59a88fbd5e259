"""The quota of running runs: past it a tenant's work waits at the gate, and loses nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from cells.clock import SystemClock
from cells.domain.job import TargetRef, TargetType
from cells.domain.run import RunState
from cells.pulling import Poller
from cells.timers.queue import ValkeyQueue
from cells.timers.quota import CALM_SECONDS, RunningQuota
from tests.component.cells.store.world import World, new_job, seconds_ago
from tests.component.cells.timers.conftest import MakeMember, SetClock
from tests.component.cells.timers.harness import Timers, soon
from tests.component.cells.timers.test_release import popped, wake
from tests.waiting import eventually


class Later(SystemClock):
    """A steady clock that the test sets forward."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.passed


async def told(world: World) -> list[tuple[Any, dict[str, Any]]]:
    """Events about reached quotas: whose, and the data."""
    rows = await world.rows("SELECT tenant_id, data FROM events WHERE type = 'quota.reached' ORDER BY seq")
    return [(tenant, msgspec.json.decode(data)) for tenant, data in rows]


async def test_at_its_quota_a_tenant_waits_and_everything_runs_in_the_end(timers: Timers) -> None:
    world = timers.world
    await world.put_tenant(world.a, version=2, running_runs=5)
    await timers.jobs(*[soon(-n) for n in range(1, 13)])
    others = await timers.jobs(*[soon(-n) for n in range(1, 13)], fence=world.b)
    async with timers.running(timers.loader(), timers.dispatcher(), timers.sweeper()):
        mine = lambda: [c for c in timers.claims if c.tenant_id == world.a.tenant_id]  # noqa: E731
        ended = 0
        for most in (5, 7, 12):
            await eventually(lambda most=most: len(mine()) == most)  # type: ignore[misc]
            if most < 12:
                # Held for as long as nothing ends, however often the gate looks.
                looked = timers.metrics.wakes._value.get()
                await eventually(lambda looked=looked: timers.metrics.wakes._value.get() > looked + 5)  # type: ignore[misc]
                assert len(mine()) == most
            for claim in mine()[ended : ended + (2 if ended == 0 else 5)]:
                assert await world.complete(claim, RunState.SUCCEEDED)
                ended += 1
        # Nobody else was held up.
        assert len(timers.claims) - len(mine()) == len(others)
    ((tenant, data),) = await told(world)
    # It may be told before all five are in the store's count: the others have passed the gate.
    assert (tenant, data["quota"], data["limit"]) == (world.a.tenant_id, "running_runs", 5)
    assert 0 <= data["used"] <= 5


async def test_tasks_in_the_hands_of_workers_count(timers: Timers) -> None:
    world = timers.world
    await world.put_tenant(world.a, version=2, running_runs=3)
    queue = TargetRef(type=TargetType.TASK_QUEUE, task_queue="ledger", lease_seconds=60)
    tasks = await timers.jobs(soon(-10), soon(-11), target=queue)
    await timers.claim(timers.members(tasks))
    poller = Poller(tenant_id=world.a.tenant_id, task_queue="ledger", worker_id="w-1", count=10)
    (taken,) = await world.store.poll([poller], host_id=world.host_id)
    assert len(taken) == 2
    assert (await world.store.running())[world.a.tenant_id].runs == 2
    await timers.jobs(soon(-1), soon(-2))
    async with timers.running(timers.loader(), timers.dispatcher(), timers.sweeper()):
        await eventually(lambda: timers.metrics.tenants_full._value.get() == 1)
        assert len(timers.claims) == 1
        use = await world.store.tenant_use(
            world.a.tenant_id, most_timers=10, most_runs=10, now=taken[0].claim.key.scheduled_for
        )
        assert use.running_runs == 3


async def test_an_episode_is_told_once_and_the_next_one_again(world: World, queue: ValkeyQueue) -> None:
    clock = Later()
    quota = RunningQuota(world.store, queue, clock)
    await world.put_tenant(world.a, version=2, running_runs=1)

    async def look() -> int:
        clock.passed += 10.0
        await quota.look(await world.store.list_tenants(), host_id=world.host_id)
        return len(await told(world))

    assert await look() == 0
    claim = await world.claimed(new_job(seconds_ago(1)))
    assert (await look(), await look(), quota.full, quota.short) == (1, 1, 1, True)
    assert (await world.store.holdups(world.a.tenant_id)).full_since is not None
    assert await world.complete(claim, RunState.SUCCEEDED)
    assert (await look(), quota.full, quota.short) == (1, 1, False)
    clock.passed += CALM_SECONDS
    assert (await look(), quota.full) == (1, 0)
    assert (await world.store.holdups(world.a.tenant_id)).full_since is None
    await world.claimed(new_job(seconds_ago(1)))
    assert await look() == 2
    # A dispatcher that begins anew knows of it from the store.
    quota = RunningQuota(world.store, queue, clock)
    assert (await look(), quota.full) == (2, 1)


async def test_what_passed_lately_counts_until_the_store_knows_of_it(
    world: World, queue: ValkeyQueue, clock: SetClock, member: MakeMember
) -> None:
    """Between the gate and its claim a member is in no count of the store."""
    steady = Later()
    quota = RunningQuota(world.store, queue, steady)
    await world.put_tenant(world.a, version=2, running_runs=3)
    now = clock.now_ms()
    await queue.add([member(now - n, tenant=world.a.tenant_id, shard=n) for n in range(9)])

    async def look() -> None:
        steady.passed += 10.0
        await quota.look(await world.store.list_tenants(), host_id=world.host_id)

    await look()
    assert (await wake(queue, now)).by_class == (0, 0, 3, 0)
    taken = await popped(queue)
    await look()
    assert (await wake(queue, now + 1000)).total == 0
    # Stale ones give their places back at once.
    await queue.refund(taken[:1])
    assert (await wake(queue, now + 2000)).total == 1
    # Nobody claimed any: at the look after the next the places are free again.
    await popped(queue)
    await look()
    await look()
    assert (await wake(queue, now + 3000)).total == 3


async def test_the_urgent_go_first_where_there_is_little_room(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember
) -> None:
    now = clock.now_ms()
    low, critical = member(now - 2, priority=3), member(now - 1, priority=0)
    await queue.put_room({low.tenant_id: 0})
    await queue.add([low, critical])
    assert (await wake(queue, now)).by_class == (0, 0, 0, 0)
    await queue.put_room({low.tenant_id: 1})
    assert (await wake(queue, now + 100)).by_class == (1, 0, 0, 0)
    await queue.put_room({}, gone=[low.tenant_id])
    assert (await wake(queue, now + 200)).by_class == (0, 0, 0, 1)
