"""Signals between processes, and an engine that is away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import redis.asyncio as redis

from cells.clock import SystemClock
from cells.ports import Retryable
from cells.timers.queue import ValkeyQueue
from deploy.ports import Reservation
from tests.component.cells.timers.conftest import MakeMember
from tests.waiting import eventually

CLOCK = SystemClock()
ALL = range(256)


@pytest.fixture
async def listening(valkey_url: str, cell: str) -> AsyncIterator[ValkeyQueue]:
    queue = ValkeyQueue(valkey_url, cell=cell, clock=CLOCK)
    await queue.open()
    await eventually(lambda: queue._signals.subscribed)
    yield queue
    await queue.close()


@pytest.fixture
async def elsewhere(valkey_url: str, cell: str) -> AsyncIterator[ValkeyQueue]:
    """The queue of another process."""
    queue = ValkeyQueue(valkey_url, cell=cell, clock=CLOCK)
    yield queue
    await queue.close()


async def release(queue: ValkeyQueue) -> int:
    result = await queue.release(now_ms=CLOCK.now_ms(), shards=ALL, budget=100, fresh_after_ms=None)
    return result.total


async def commands(valkey: redis.Redis) -> int:
    return int((await valkey.info("commandstats"))["cmdstat_evalsha"]["calls"])


async def test_an_empty_class_is_not_asked_again_until_it_is_named(
    listening: ValkeyQueue, elsewhere: ValkeyQueue, valkey: redis.Redis, member: MakeMember
) -> None:
    assert await listening.pop(priority=2, limit=10) == []
    asked = await commands(valkey)
    for _ in range(50):
        assert list(await listening.pop(priority=2, limit=10)) == []
    assert await commands(valkey) - asked <= 1
    await listening.wait_ready(timeout=0.01)
    await elsewhere.add([member(CLOCK.now_ms() - 1)])
    assert await release(elsewhere) == 1
    await listening.wait_ready(timeout=10)
    assert len(await listening.pop(priority=2, limit=10)) == 1


async def test_a_full_answer_is_asked_again(listening: ValkeyQueue, member: MakeMember) -> None:
    await listening.add([member(CLOCK.now_ms() - 1) for _ in range(30)])
    await release(listening)
    got = [len(await listening.pop(priority=2, limit=10)) for _ in range(4)]
    assert got == [10, 10, 10, 0]


async def test_dispatchers_hear_of_nearer_heads_only(listening: ValkeyQueue, member: MakeMember) -> None:
    heard: list[int] = []
    listening.on_wake(heard.append)
    now = CLOCK.now_ms()
    first = now // 60_000 * 60_000
    dues = [first + 50_000, first + 55_000, first + 40_000, first + 41_000, now + 600_000]
    for due in dues:
        await listening.add([member(due)])
    await listening.add([member(now, shard=9)])
    await eventually(lambda: now in heard)
    assert heard == [dues[0], dues[2], now]


async def test_scripts_come_back_after_they_were_forgotten(
    elsewhere: ValkeyQueue, valkey: redis.Redis, member: MakeMember
) -> None:
    await elsewhere.add([member(CLOCK.now_ms())])
    await valkey.script_flush()
    assert await elsewhere.restore([member(CLOCK.now_ms())]) == 1
    await valkey.script_flush()
    assert (await elsewhere.release(now_ms=0, shards=ALL, budget=1, fresh_after_ms=None)).total == 0


async def test_an_engine_that_is_away_is_retryable(member: MakeMember) -> None:
    reservation = Reservation()
    queue = ValkeyQueue(f"redis://127.0.0.1:{reservation.port}/0", cell="nowhere", clock=CLOCK)
    await queue.open()
    one = [member(CLOCK.now_ms())]
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: queue.add(one),
        lambda: queue.restore(one),
        lambda: queue.remove(one),
        lambda: queue.refund(one),
        lambda: queue.pop(priority=0, limit=1),
        lambda: queue.generation(),
        lambda: queue.depths(),
        lambda: queue.release(now_ms=0, shards=ALL, budget=1, fresh_after_ms=None),
    ]
    for call in calls:
        with pytest.raises(Retryable):
            await call()
    await queue.wait_ready(timeout=0.01)
    await queue.close()
    reservation.release()


async def test_generations(queue: ValkeyQueue, listening: ValkeyQueue, valkey: redis.Redis) -> None:
    first = await queue.generation()
    assert await listening.generation() == first
    await queue.mark_loaded(first, 29_933_000 * 10, range(256))
    await queue.mark_loaded(first, 29_933_001 * 10, {0, 7, 200})
    whole, some = await queue.not_loaded(first, [29_933_000 * 10, 29_933_001 * 10])
    assert (whole, some) == (frozenset(), frozenset(range(256)) - {0, 7, 200})
    await valkey.flushdb()
    queue._generation_asked = listening._generation_asked = 0.0
    second = await listening.generation()
    assert second != first
    assert await queue.generation() == second
    assert await queue.not_loaded(second, [29_933_000 * 10]) == [frozenset(range(256))]
    # As after a restart that kept the data: another run of the server.
    await valkey.set(queue.keys.generation, f"{'0' * 40}:{second}")
    queue._generation_asked = 0.0
    assert await queue.generation() not in (first, second)
