"""What workers say is written in batches: of several tenants, with claims among them that are lost."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from cells.domain.job import TargetRef, TargetType
from cells.domain.run import RunState
from cells.ports import Completion, Fence, LeaseLost
from cells.pulling import Beat, Held, Poller, PulledTask
from tests.component.cells.store.world import World, completion, member_of, new_job, once, seconds_ago

pytestmark = pytest.mark.asyncio

QUEUE = "ledger"


async def tasks_of(world: World, fence: Fence, count: int, *, lease_seconds: int = 60) -> None:
    at = seconds_ago(5)
    target = TargetRef(type=TargetType.TASK_QUEUE, task_queue=QUEUE, lease_seconds=lease_seconds)
    jobs = [new_job(at, once(at, target=target)) for _ in range(count)]
    await world.create(*jobs, fence=fence)
    await world.claim(*(member_of(job, fence.tenant_id) for job in jobs))


async def polled(world: World, *fences: Fence, count: int) -> list[list[PulledTask]]:
    pollers = [
        Poller(tenant_id=fence.tenant_id, task_queue=QUEUE, worker_id="w", count=count) for fence in fences
    ]
    return [list(tasks) for tasks in await world.store.poll(pollers, host_id=world.host_id)]


def held(task: PulledTask, *, epoch: int = 0) -> Held:
    claim = task.claim
    return Held(tenant_id=claim.tenant_id, key=claim.key, epoch=claim.epoch + epoch)


def ended(task: PulledTask) -> Completion:
    return completion(task.claim, RunState.SUCCEEDED)


async def stored(world: World) -> list[tuple[object, ...]]:
    """All that a batch may change."""
    return await world.rows(
        "SELECT tenant_id, parent_id, state, epoch, lease_expires_at, heartbeat_at, progress, finished_at,"
        " attempts FROM runs ORDER BY 1, 2"
    )


async def under_way(world: World) -> tuple[int, int]:
    """Runs of a tenant, as the quota counts them and as its use shows them."""
    counted = (await world.store.running()).get(world.a.tenant_id)
    use = await world.store.tenant_use(world.a.tenant_id, most_timers=10, most_runs=10, now=seconds_ago(0))
    return counted.runs if counted is not None else 0, use.running_runs


async def stored_end(world: World, task: PulledTask) -> datetime:
    rows = {row[1]: row[4] for row in await stored(world)}
    at = rows[task.claim.key.parent_id]
    assert isinstance(at, datetime)
    return at


async def test_one_batch_of_two_tenants_with_lost_claims_among_good_ones(world: World) -> None:
    await tasks_of(world, world.a, 3)
    await tasks_of(world, world.b, 2)
    mine, theirs = await polled(world, world.a, world.b, count=3)
    assert (len(mine), len(theirs)) == (3, 2)
    before = {row[1]: row for row in await stored(world)}
    strange = Held(tenant_id=world.b.tenant_id, key=mine[2].claim.key, epoch=mine[2].claim.epoch)
    beats = [
        Beat(held=held(theirs[0]), progress=b'{"done": 1}'),
        Beat(held=held(mine[1], epoch=-1)),
        Beat(held=held(mine[0])),
        Beat(held=strange),
        Beat(held=held(theirs[0])),
    ]
    told = await world.store.heartbeat(beats, host_id=world.host_id)
    assert [one is not None for one in told] == [True, False, True, False, True]
    assert told[0] == told[4]
    after = {row[1]: row for row in await stored(world)}
    changed = {parent for parent, row in after.items() if row != before[parent]}
    assert changed == {mine[0].claim.key.parent_id, theirs[0].claim.key.parent_id}
    assert after[theirs[0].claim.key.parent_id][6] == {"done": 1}

    (lost,) = await world.store.give_back([held(mine[0])], host_id=world.host_id)
    assert lost == (world.a.tenant_id, QUEUE)
    ends = [ended(task) for task in (theirs[1], mine[0], mine[1], theirs[0])]
    applied = await world.store.complete(ends, host_id=world.host_id)
    assert applied.applied == [True, False, True, True]
    states = await world.rows("SELECT state, count(*) FROM runs GROUP BY 1")
    assert dict(states) == {"SUCCEEDED": 3, "READY": 1, "RUNNING": 1}
    finished = [len(body.finished) for body in await world.journal() if body.finished]
    assert finished == [1, 3]  # the one that went back; the batch, in one row


async def test_a_batch_under_a_lease_that_was_lost_changes_nothing(world: World) -> None:
    await tasks_of(world, world.a, 2)
    await tasks_of(world, world.b, 1)
    mine, theirs = await polled(world, world.a, world.b, count=1)
    before, rows = await stored(world), len(await world.journal())
    await world.sql.execute(b"UPDATE hosts SET lease_expires_at = now()")
    with pytest.raises(LeaseLost):
        await world.store.heartbeat([Beat(held=held(t)) for t in (*mine, *theirs)], host_id=world.host_id)
    with pytest.raises(LeaseLost):
        await world.store.complete([ended(t) for t in (*mine, *theirs)], host_id=world.host_id)
    with pytest.raises(LeaseLost):
        await polled(world, world.a, count=1)
    assert (await stored(world), len(await world.journal())) == (before, rows)


async def test_a_beat_extends_the_lease_and_moves_its_stored_end_when_that_is_near(world: World) -> None:
    await tasks_of(world, world.a, 1)
    ((task,),) = await polled(world, world.a, count=1)
    first = await stored_end(world, task)

    async def beat() -> datetime:
        (told,) = await world.store.heartbeat([Beat(held=held(task))], host_id=world.host_id)
        assert told is not None
        run = await world.run(task.claim)
        assert run.lease_expires_at == told.lease_expires_at
        return told.lease_expires_at

    assert await beat() > first
    assert await stored_end(world, task) == first  # no index was written
    passed = b"UPDATE runs SET lease_expires_at = clock_timestamp() - interval '6 s'"
    await world.sql.execute(passed)
    look = await world.store.look_at_leases()
    assert (look.live, look.expired) == (1, 0)
    assert (await world.store.reap_pulled(host_id=world.host_id, limit=10)).taken == 0
    # Nor does it make room in the tenant's quota of what runs, before a beat moves it.
    await world.sql.execute(b"UPDATE runs SET lease_expires_at = clock_timestamp() - interval '20 s'")
    assert await under_way(world) == (1, 1)
    ends = await beat()
    assert ends - await stored_end(world, task) < timedelta(seconds=5)  # it moved, with the beat
    # It fell silent: what the last beat gave has passed, too.
    await world.sql.execute(passed + b", heartbeat_at = clock_timestamp() - interval '66 s'")
    look = await world.store.look_at_leases()
    assert (look.live, look.expired) == (0, 1)
    assert (await world.store.reap_pulled(host_id=world.host_id, limit=10)).taken == 1
    (told,) = await world.store.heartbeat([Beat(held=held(task))], host_id=world.host_id)
    assert told is None
