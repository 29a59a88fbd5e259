"""A queue on a real Valkey, a clock to be set, and members to put in."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import AsyncIterator, Callable

import pytest
import redis.asyncio as redis

from cells.clock import SystemClock
from cells.ports import Member
from cells.timers.metrics import TimerMetrics
from cells.timers.queue import ValkeyQueue
from tests.component.cells.store.conftest import store, world
from tests.component.cells.store.world import World
from tests.component.cells.timers.harness import Breakable, Timers

__all__ = ["store", "world"]

_cells = itertools.count(1)


class SetClock(SystemClock):
    """A wall clock that stands where it is put; the steady one runs."""

    def __init__(self, now_ms: int):
        self.wall_ms = now_ms

    def now_ms(self) -> int:
        return self.wall_ms


@pytest.fixture
def cell() -> str:
    """A cell of this test alone (channels are not divided by logical database)."""
    return f"timers-{os.getpid()}-{next(_cells)}"


@pytest.fixture
async def valkey(valkey_url: str) -> AsyncIterator[redis.Redis]:
    """A plain client, to look and to break things."""
    client: redis.Redis = redis.Redis.from_url(valkey_url)
    yield client
    await client.aclose()


@pytest.fixture
def clock() -> SetClock:
    """2026-09-28T12:00:30Z."""
    return SetClock(1_790_596_830_000)


@pytest.fixture
async def queue(valkey_url: str, cell: str, clock: SetClock) -> AsyncIterator[ValkeyQueue]:
    """A queue under the set clock, not listening."""
    made = ValkeyQueue(valkey_url, cell=cell, clock=clock)
    yield made
    await made.close()


@pytest.fixture
def tenants() -> list[uuid.UUID]:
    """Three tenants, in the order in which sorted sets break ties."""
    return [uuid.UUID(int=n) for n in (1, 2, 3)]


MakeMember = Callable[..., Member]


@pytest.fixture
def member(tenants: list[uuid.UUID]) -> MakeMember:
    """Makes members, each of another job unless `parent` says whose."""
    numbers = itertools.count(1)

    def make(
        due_ms: int,
        *,
        tenant: uuid.UUID | None = None,
        priority: int = 2,
        shard: int = 7,
        parent: int | None = None,
        generation: int = 1,
        is_run: bool = False,
    ) -> Member:
        number = next(numbers) if parent is None else parent
        return Member(
            tenant_id=tenant or tenants[0],
            parent_id=uuid.UUID(int=number),
            scheduled_for=due_ms // 1000,
            generation=generation,
            is_run=is_run,
            priority=priority,
            due_ms=due_ms,
            shard=shard,
        )

    return make


@pytest.fixture
async def timers(world: World, valkey_url: str, cell: str) -> AsyncIterator[Timers]:
    """Services on a store of their own, with the real clock."""
    queue = ValkeyQueue(valkey_url, cell=cell, clock=SystemClock())
    await queue.open()
    yield Timers(world, Breakable(world.store), queue, TimerMetrics())
    await queue.close()
