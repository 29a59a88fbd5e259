"""Timer services on a real store and a real Valkey, and a worker that claims what comes out."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cells.clock import SystemClock
from cells.domain.job import Priority
from cells.ports import Claim, Fence, Member, NewJob, Retryable, Store
from cells.timers.dispatcher import Dispatcher
from cells.timers.loader import Loader
from cells.timers.metrics import TimerMetrics
from cells.timers.queue import ValkeyQueue
from cells.timers.sweeper import Sweeper
from tests.component.cells.store.world import World, definition, new_job
from tests.component.cells.store.world import member_of as member_of_job

CLOCK = SystemClock()


class Breakable:
    """A store whose engine is away while `down` is set."""

    def __init__(self, store: Store):
        self._store = store
        self.down = False

    def __getattr__(self, name: str) -> Any:
        if self.down:
            raise Retryable("the store is away")
        return getattr(self._store, name)


class AllShards(Breakable):
    """A store that lets everybody hold every shard."""

    async def share_shards(self, *, host_id: int) -> frozenset[int]:
        return frozenset(range(256))


@dataclass(frozen=True)
class Lease:
    """A host that never loses its lease."""

    host_id: int
    ahead_ms: int = 0


@dataclass(frozen=True)
class Ahead(SystemClock):
    """A clock that is wrong."""

    ahead_ms: int

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@dataclass
class Timers:
    """A queue with its services."""

    world: World
    store: Any
    queue: ValkeyQueue
    metrics: TimerMetrics
    claims: list[Claim] = field(default_factory=list)
    stale: list[Member] = field(default_factory=list)

    def loader(self) -> Loader:
        return Loader(store=self.store, queue=self.queue, clock=CLOCK, metrics=self.metrics)

    def dispatcher(self, queue: ValkeyQueue | None = None, *, ahead_ms: int = 0) -> Dispatcher:
        """`ahead_ms`: so far its clock is ahead, as its host has measured."""
        return Dispatcher(
            store=self.store,
            queue=queue or self.queue,
            clock=Ahead(ahead_ms),
            host=Lease(self.world.host_id, ahead_ms),
            metrics=self.metrics,
        )

    def sweeper(self, **times: float) -> Sweeper:
        return Sweeper(store=self.store, queue=self.queue, clock=CLOCK, metrics=self.metrics, **times)  # type: ignore[arg-type]

    @asynccontextmanager
    async def running(self, *services: Any, worker: bool = True) -> AsyncIterator[None]:
        """Services (and the worker) until the block ends; a service that died fails the test."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for service in services:
                tasks.create_task(service.run(stop))
            if worker:
                tasks.create_task(self._work(stop))
            try:
                yield
            finally:
                stop.set()

    async def _work(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self.queue.wait_ready(timeout=0.1)
                for priority in Priority:
                    while members := await self.queue.pop(priority=priority, limit=200):
                        await self.claim(members)
            except Retryable:
                await asyncio.sleep(0.02)

    async def claim(self, members: Sequence[Member]) -> None:
        result = await self.world.claim(*members)
        self.claims += result.claims
        self.stale += result.stale
        await self.queue.add([*result.too_early])
        await self.queue.refund(result.stale)

    async def jobs(self, *dues: datetime, fence: Fence | None = None, **changes: Any) -> list[NewJob]:
        """Committed jobs that nobody has told the queue about."""
        made = []
        for due in dues:
            whole = due.replace(microsecond=0)
            offset = (due - whole) // timedelta(milliseconds=1)
            made.append(new_job(whole, definition(**changes), offset_ms=offset, window_ms=300_000))
        for start in range(0, len(made), 500):
            await self.world.create(*made[start : start + 500], fence=fence)
        return made

    def members(self, jobs: Sequence[NewJob], fence: Fence | None = None) -> list[Member]:
        return [member_of_job(job, (fence or self.world.a).tenant_id) for job in jobs]

    def claimed_ids(self) -> list[uuid.UUID]:
        return sorted(claim.key.parent_id for claim in self.claims)


def soon(ms: float) -> datetime:
    """That many milliseconds from now, in whole ones."""
    return datetime.fromtimestamp((CLOCK.now_ms() + round(ms)) / 1000, UTC)


def ids(jobs: Sequence[NewJob]) -> list[uuid.UUID]:
    return sorted(job.job_id for job in jobs)
