"""Many leases of workers that end together, on real rows: mostly it is our side that was deaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import msgspec
import pytest

from cells.domain.job import TargetRef, TargetType
from cells.domain.reaping import LONGEST_HOLD_SECONDS, RECOVERY_RATE, Mode
from cells.execution.host_agent import HostAgent
from cells.execution.reaper import Reaper
from cells.observability.metrics import Metrics
from cells.pulling import Beat, Held, Poller, PulledTask
from cells.timers.queue import ValkeyQueue
from tests.component.cells.execution.harness import SteppedClock
from tests.component.cells.store.conftest import store, world
from tests.component.cells.store.world import World, member_of, new_job, once, seconds_ago

__all__ = ["store", "world"]

LEASE_SECONDS = 60
#: A third of the lease.
INTERVAL = LEASE_SECONDS / 3
QUEUE = TargetRef(type=TargetType.TASK_QUEUE, task_queue="ledger", lease_seconds=LEASE_SECONDS)


@dataclass(frozen=True)
class Settled:
    """A host that never loses its lease."""

    host_id: int

    def settled(self, seconds: float) -> bool:
        return True


class Reaping:
    """The reaper on a world whose workers hold tasks; its steady clock is set forward by the test."""

    def __init__(self, world: World, queue: ValkeyQueue) -> None:
        self.world = world
        self.clock = SteppedClock()
        self.metrics = Metrics()
        self.reaper = Reaper(
            world.store, queue, cast(HostAgent, Settled(world.host_id)), self.clock, self.metrics
        )
        self.tasks: list[PulledTask] = []

    async def hold(self, count: int) -> None:
        """So many tasks in the hands of one worker."""
        at = seconds_ago(5)
        jobs = [new_job(at, once(at, target=QUEUE)) for _ in range(count)]
        for start in range(0, count, 500):
            part = jobs[start : start + 500]
            await self.world.create(*part)
            await self.world.claim(*(member_of(job, self.world.a.tenant_id) for job in part))
        poller = Poller(tenant_id=self.world.a.tenant_id, task_queue="ledger", worker_id="w-1", count=count)
        (tasks,) = await self.world.store.poll([poller], host_id=self.world.host_id)
        assert len(tasks) == count
        self.tasks = list(tasks)

    async def expire(self, count: int) -> list[Any]:
        """The leases of the first ones end, each a moment after the one before; the runs, oldest first."""
        parents = [task.claim.key.parent_id for task in self.tasks[:count]]
        for n, parent in enumerate(parents):
            await self.world.rows(
                "UPDATE runs SET lease_expires_at = now() - '1 min'::interval + %s * '10 ms'::interval"
                " WHERE parent_id = %s RETURNING 1",
                n,
                parent,
            )
        return parents

    async def beat(self) -> None:
        """A heartbeat of the last task arrives."""
        claim = self.tasks[-1].claim
        held = Held(tenant_id=claim.tenant_id, key=claim.key, epoch=claim.epoch)
        (extended,) = await self.world.store.heartbeat(
            [Beat(held=held, progress=None)], host_id=self.world.host_id
        )
        assert extended is not None

    async def look(self, after: float) -> list[Any]:
        """A look that many seconds later; the runs that it took back."""
        self.clock.passed += after
        before = await self.taken()
        self.reaper._rested = 0.0  # however long the look before took
        await self.reaper._reap_pulled()
        return [parent for parent in await self.taken() if parent not in set(before)]

    async def taken(self) -> list[Any]:
        rows = await self.world.rows("SELECT parent_id FROM runs WHERE state = 'RETRY_WAIT' ORDER BY 1")
        return [parent for (parent,) in rows]

    async def told(self) -> list[tuple[str, int]]:
        rows = await self.world.rows(
            "SELECT data FROM events WHERE type = 'task_queue.workers_silent' ORDER BY seq"
        )
        found = [msgspec.json.decode(data) for (data,) in rows]
        return [(data["mode"], data["count"]) for data in found]

    def holding(self) -> float:
        return self.metrics.registry.get_sample_value("reaper_holding") or 0.0


@pytest.fixture
def reaping(world: World, valkey_url: str) -> Reaping:
    return Reaping(world, ValkeyQueue(valkey_url, cell="reaping", clock=SteppedClock()))


async def test_one_silent_worker_loses_its_tasks_at_once(reaping: Reaping) -> None:
    await reaping.hold(100)
    silent = await reaping.expire(19)
    assert sorted(await reaping.look(1.0)) == sorted(silent)
    assert (reaping.reaper._policy.mode, reaping.holding(), await reaping.told()) == (Mode.FLOWING, 0.0, [])


async def test_a_tenth_of_many_is_no_mass(reaping: Reaping) -> None:
    await reaping.hold(400)
    silent = await reaping.expire(40)
    assert sorted(await reaping.look(1.0)) == sorted(silent)
    assert reaping.holding() == 0.0


async def test_many_at_once_are_held_until_heartbeats_have_flowed_and_then_taken_slowly(
    reaping: Reaping,
) -> None:
    await reaping.hold(300)
    silent = await reaping.expire(150)
    assert await reaping.look(1.0) == []
    assert (reaping.holding(), await reaping.told()) == (1.0, [("HOLDING", 150)])
    # Nobody is heard of: however long that is, nothing is concluded from it.
    for _ in range(5):
        assert await reaping.look(INTERVAL) == []
    # Heartbeats flow, but not for two intervals yet.
    for _ in range(4):
        await reaping.beat()
        assert await reaping.look(INTERVAL / 2) == []
    assert reaping.holding() == 1.0
    taken: list[list[Any]] = []
    for seconds in (INTERVAL / 2, *[1.0] * 5):
        await reaping.beat()
        taken.append(await reaping.look(seconds))
    sizes = [len(part) for part in taken if part]
    assert sum(sizes) == 150
    assert max(sizes) <= RECOVERY_RATE + 1
    assert [sorted(part) for part in taken if part] == [
        sorted(silent[sum(sizes[:n]) : sum(sizes[: n + 1])]) for n in range(len(sizes))
    ], "the oldest first"
    assert await reaping.look(1.0) == []
    assert (reaping.holding(), reaping.reaper._policy.mode) == (0.0, Mode.FLOWING)
    assert [mode for mode, _ in await reaping.told()] == ["HOLDING", "RECOVERING"]
    count = reaping.metrics.registry.get_sample_value
    assert count("reaper_holds_total") == 1
    assert count("reaper_tasks_reclaimed_total") == 150
    live = await reaping.world.value("SELECT count(*) FROM runs WHERE state = 'RUNNING'")
    assert live == 150, "who was heard of keeps its tasks"


async def test_workers_that_come_back_keep_what_they_hold(reaping: Reaping) -> None:
    await reaping.hold(60)
    await reaping.expire(50)
    assert await reaping.look(1.0) == []
    beats = [
        Beat(held=Held(tenant_id=t.claim.tenant_id, key=t.claim.key, epoch=t.claim.epoch), progress=None)
        for t in reaping.tasks
    ]
    assert None not in await reaping.world.store.heartbeat(beats, host_id=reaping.world.host_id)
    assert await reaping.look(1.0) == []
    assert (reaping.holding(), reaping.reaper._policy.mode) == (0.0, Mode.FLOWING)
    assert await reaping.world.value("SELECT count(*) FROM runs WHERE state = 'RUNNING'") == 60


async def test_who_is_never_heard_of_again_is_dead_after_ten_minutes(reaping: Reaping) -> None:
    await reaping.hold(40)
    await reaping.expire(40)
    assert await reaping.look(1.0) == []
    assert await reaping.look(LONGEST_HOLD_SECONDS - 2.0) == []
    assert len(await reaping.look(3.0)) > 0
