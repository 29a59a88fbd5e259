"""LOW work of a tenant whose budget is spent: it waits, in order, and runs in the end."""

from __future__ import annotations

import uuid
from typing import Any

from cells.domain.job import Priority, TargetRef, TargetType
from cells.ports import Member
from cells.pulling import Poller
from cells.timers.queue import ValkeyQueue
from tests.component.cells.store.world import World
from tests.component.cells.timers.conftest import MakeMember, SetClock
from tests.component.cells.timers.harness import Timers, soon
from tests.component.cells.timers.test_release import ids, popped, wake
from tests.waiting import eventually

QUEUE = TargetRef(type=TargetType.TASK_QUEUE, task_queue="ledger", lease_seconds=60)


async def told(world: World) -> list[uuid.UUID]:
    """Whom events say that the budget is spent."""
    return [
        t
        for (t,) in await world.rows("SELECT tenant_id FROM events WHERE type = 'budget.spent' ORDER BY seq")
    ]


async def test_the_gate_holds_what_is_low_and_lets_it_go_in_order(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID]
) -> None:
    now = clock.now_ms()
    old = [member(now - 10 * n, priority=3, shard=n) for n in range(3)]
    mine, others = member(now, priority=2), member(now, priority=3, tenant=tenants[1])
    await queue.put_delayed({tenants[0]})
    await queue.add([*old, mine, others])
    first = await wake(queue, now)
    assert (first.by_class, first.held) == ((0, 0, 1, 1), 3)
    assert [m.tenant_id for m in await popped(queue, priority=3)] == [tenants[1]]
    # What comes meanwhile joins what waits, also where it was due before.
    newer, older = member(now + 50, priority=3), member(now - 1000, priority=3)
    await queue.add([newer, older])
    assert (await wake(queue, now + 5000)).by_class == (0, 0, 0, 0)
    await queue.put_delayed((), gone=[tenants[0]])
    assert (await wake(queue, now + 7000)).by_class == (0, 0, 0, 5)
    expected = sorted([*old, newer, older], key=lambda m: m.due_ms)
    assert ids(await popped(queue, priority=3)) == ids(expected)


async def test_low_work_waits_and_everything_runs_in_the_end(timers: Timers) -> None:
    world = timers.world
    await world.put_tenant(world.a, version=2, low_delayed=True)
    low = await timers.jobs(*[soon(-100 * n) for n in range(1, 6)], priority=Priority.LOW)
    others = await timers.jobs(soon(-1), fence=world.b, priority=Priority.LOW)
    mine = await timers.jobs(soon(-1))
    came: list[Member] = []

    async def have_come(count: int) -> bool:
        for priority in Priority:
            members = await timers.queue.pop(priority=priority, limit=100)
            came.extend(members)
            await timers.claim(members)
        return len(came) >= count

    async with timers.running(timers.loader(), timers.dispatcher(), timers.sweeper(), worker=False):
        await eventually(lambda: have_come(2))
        await eventually(lambda: timers.metrics.tenants_held._value.get() == 1)
        newer = await timers.jobs(soon(-1), priority=Priority.LOW)
        await timers.queue.add(timers.members(newer))
        # Held however often the gate looks.
        looked = timers.metrics.wakes._value.get()
        await eventually(lambda: timers.metrics.wakes._value.get() > looked + 2)
        assert await have_come(2)
        assert {m.parent_id for m in came} == {job.job_id for job in (*others, *mine)}
        await eventually(lambda: told_one(world))
        await world.put_tenant(world.a, version=3)
        await eventually(lambda: have_come(8))
    waited = sorted(timers.members([*low, *newer]), key=lambda m: m.due_ms)
    assert [m.parent_id for m in came[2:]] == [m.parent_id for m in waited]
    assert (len(timers.claims), timers.stale) == (8, [])


async def told_one(world: World) -> bool:
    return await told(world) == [world.a.tenant_id]


async def test_an_episode_is_told_once_and_the_next_one_again(world: World) -> None:
    a, b = world.a.tenant_id, world.b.tenant_id

    async def tell() -> list[uuid.UUID]:
        await world.store.tell_delayed([a, b], host_id=world.host_id)
        return await told(world)

    assert await tell() == []
    await world.put_tenant(world.a, version=2, low_delayed=True)
    assert (await tell(), await tell()) == ([a], [a])
    assert (await world.store.holdups(a)).low_delayed
    await world.put_tenant(world.a, version=3)
    assert await tell() == [a]
    assert not (await world.store.holdups(a)).low_delayed
    await world.put_tenant(world.a, version=4, low_delayed=True)
    assert await tell() == [a, a]


async def test_low_tasks_are_not_handed_out_and_keep_their_turn(timers: Timers) -> None:
    world = timers.world

    async def offered(ms: float, **changes: Any) -> uuid.UUID:
        (job,) = await timers.jobs(soon(ms), target=QUEUE, **changes)
        await timers.claim(timers.members([job]))
        return job.job_id

    async def polled() -> list[uuid.UUID]:
        poller = Poller(tenant_id=world.a.tenant_id, task_queue="ledger", worker_id="w-1", count=10)
        (tasks,) = await world.store.poll([poller], host_id=world.host_id)
        return [task.claim.key.parent_id for task in tasks]

    old = await offered(-3000, priority=Priority.LOW)
    default = await offered(-1000)
    await world.put_tenant(world.a, version=2, low_delayed=True)
    assert await polled() == [default]
    assert await polled() == []
    newer = await offered(-500, priority=Priority.LOW)
    assert await polled() == []
    await world.put_tenant(world.a, version=3)
    # At the very next look, what is older first: nothing was taken for gone meanwhile.
    assert await polled() == [old, newer]
