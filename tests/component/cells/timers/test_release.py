"""Buckets and the release gate, with a clock that is set."""

from __future__ import annotations

import random
import uuid
from collections import Counter

import pytest
import redis.asyncio as redis

from cells.contract import SHARDS
from cells.domain.rates import burst_of
from cells.ports import Member
from cells.timers.members import pack
from cells.timers.queue import ADDED_MINUTES, DEFAULT_RATE, Released, ValkeyQueue
from tests.component.cells.timers.conftest import MakeMember, SetClock

ALL = range(SHARDS)


async def wake(
    queue: ValkeyQueue,
    now_ms: int,
    *,
    shards: range | set[int] = ALL,
    budget: int = 10_000,
    fresh_after_ms: int | None = None,
) -> Released:
    return await queue.release(now_ms=now_ms, shards=shards, budget=budget, fresh_after_ms=fresh_after_ms)


async def popped(queue: ValkeyQueue, priority: int = 2, limit: int = 100_000) -> list[Member]:
    return list(await queue.pop(priority=priority, limit=limit))


def ids(members: list[Member]) -> list[int]:
    return [m.parent_id.int for m in members]


async def test_released_when_due_and_not_before(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember
) -> None:
    due = clock.now_ms() + 300
    await queue.add([member(due)])
    early = await wake(queue, due - 1)
    assert (early.total, early.next_due_ms, early.oldest_due_ms) == (0, due, None)
    assert await popped(queue) == []
    on_time = await wake(queue, due)
    assert (on_time.by_class, on_time.next_due_ms, on_time.oldest_due_ms) == ((0, 0, 1, 0), None, due)
    (got,) = await popped(queue)
    assert (got.due_ms, got.released_ms) == (due, due)


async def test_a_second_add_neither_moves_nor_doubles(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember
) -> None:
    now = clock.now_ms()
    one = member(now + 100)
    await queue.add([one, one])
    await queue.add([one])
    assert (await wake(queue, now + 100)).total == 1
    # Once more while it waits in the queue: released again, but there only once, as it was.
    await queue.add([one])
    await wake(queue, now + 200)
    (got,) = await popped(queue)
    assert got.released_ms == now + 100


async def test_what_is_overdue_comes_at_once_and_first(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember
) -> None:
    now = clock.now_ms()
    late = [member(now - days * 86_400_000, shard=days) for days in (40, 1, 3)]
    await queue.add([member(now), *late])
    released = await wake(queue, now)
    assert (released.total, released.left, released.oldest_due_ms) == (4, False, late[0].due_ms)
    assert [m.due_ms for m in await popped(queue)] == [*sorted(m.due_ms for m in late), now]


async def test_the_horizon(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, valkey: redis.Redis
) -> None:
    horizon = clock.now_ms() + ADDED_MINUTES * 60_000
    await queue.add([member(horizon)])
    assert await valkey.keys("*") == []
    await queue.add([member(horizon - 1)])
    minute = (horizon - 1) // 60_000
    assert await valkey.zrange(queue.keys.minutes, 0, -1, withscores=True) == [
        (queue.keys.bucket(2, 7, minute).rpartition(b":")[2], float(minute))
    ]


async def test_only_held_shards(queue: ValkeyQueue, clock: SetClock, member: MakeMember) -> None:
    now = clock.now_ms()
    members = [member(now + shard, shard=shard) for shard in range(200)]
    await queue.add(members)
    mine = {3, 150}
    first = await wake(queue, now + 10, shards=mine)
    assert (first.total, first.next_due_ms) == (1, now + 150)
    second = await wake(queue, now + 1000, shards=mine)
    assert (second.total, second.next_due_ms) == (1, None)
    assert [m.shard for m in await popped(queue)] == [3, 150]


async def test_a_minute_boundary(queue: ValkeyQueue, clock: SetClock, member: MakeMember) -> None:
    boundary = (clock.now_ms() // 60_000 + 1) * 60_000
    await queue.add([member(boundary + ms) for ms in (-1, 0, 1)])
    before = await wake(queue, boundary - 1)
    assert (before.total, before.next_due_ms) == (1, boundary)
    at = await wake(queue, boundary)
    assert (at.total, at.next_due_ms) == (1, boundary + 1)
    assert (await wake(queue, boundary + 1)).total == 1


async def test_a_minute_that_was_left_behind(queue: ValkeyQueue, clock: SetClock, member: MakeMember) -> None:
    """Nobody dispatched for an hour."""
    now = clock.now_ms()
    await queue.add([member(now + minutes * 60_000, shard=minutes) for minutes in range(60)])
    assert (await wake(queue, now + 3_600_000)).total == 60


async def test_an_instant_of_ten_thousand_comes_out_completely_and_once(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID]
) -> None:
    due = clock.now_ms() + 1000
    await queue.put_rates({tenants[0]: 1_000_000})
    members = [member(due, shard=n % SHARDS) for n in range(10_000)]
    await queue.add(members)
    released, calls, left = 0, 0, True
    while left:
        result = await wake(queue, due, budget=1000)
        assert result.total <= 1000
        released, calls, left = released + result.total, calls + 1, result.left
    # A budget that was used up just so looks as if something were left: one more call.
    assert (released, calls) == (10_000, 11)
    got = [await popped(queue, limit=700) for _ in range(16)]
    everything = sorted(pack(m) for page in got for m in page)
    assert everything == sorted(pack(m) for m in members)
    assert (await queue.depths()) == ([0, 0, 0, 0], 0)


async def test_a_backlog_comes_out_oldest_first(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID]
) -> None:
    now = clock.now_ms()
    await queue.put_rates({tenants[0]: 1_000_000})
    rng = random.Random(1)
    members = [member(now - rng.randrange(300_000), shard=rng.randrange(SHARDS)) for _ in range(5_000)]
    await queue.add(members)
    dues: list[int] = []
    left = True
    while left:
        left = (await wake(queue, now, budget=500)).left
        dues += [m.due_ms for m in await popped(queue)]
    assert dues == sorted(m.due_ms for m in members)


async def test_classes_come_out_in_order_of_priority(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember
) -> None:
    now = clock.now_ms()
    members = [member(now - 1000 * p, priority=p, shard=n) for p in range(4) for n in range(10)]
    await queue.add(members)
    taken = [(await wake(queue, now, budget=8)).by_class for _ in range(5)]
    assert taken == [(8, 0, 0, 0), (2, 6, 0, 0), (0, 4, 4, 0), (0, 0, 6, 2), (0, 0, 0, 8)]


async def test_a_flood_does_not_delay_what_becomes_due_meanwhile(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID]
) -> None:
    now = clock.now_ms()
    flood, quiet, _ = tenants
    await queue.put_rates({flood: 1_000_000, quiet: 100})
    await queue.add([member(now, tenant=flood, shard=n % SHARDS) for n in range(5_000)])
    assert (await wake(queue, now, budget=500)).left
    one = member(now + 3, tenant=quiet, shard=5)
    await queue.add([one])
    second = await wake(queue, now + 4, budget=500, fresh_after_ms=now)
    assert (second.total, second.left) == (501, True)
    assert [m.parent_id for m in await popped(queue, limit=2) if m.tenant_id == quiet] == [one.parent_id]


@pytest.mark.parametrize("order", [1, -1])
async def test_a_flood_does_not_delay_what_is_due_with_it(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID], order: int
) -> None:
    """Most jobs are due at whole minutes: whoever has many of them takes turns with the others."""
    now = clock.now_ms()
    flood, *quiet = sorted(tenants)[::order]
    await queue.put_rates(dict.fromkeys(tenants, 1_000_000))
    await queue.add([member(now, tenant=flood, shard=n % SHARDS) for n in range(20_000)])
    await queue.add(
        [member(now, tenant=tenant, shard=shard) for tenant in quiet for shard in range(0, 250, 10)]
    )
    got: list[Member] = []
    for wakes in range(5):
        assert (await wake(queue, now + wakes, budget=500)).left
        got += await popped(queue)
        assert len(got) <= 500 * (wakes + 1), "others' turns are of the same budget"
    assert sum(m.tenant_id in quiet for m in got) == 50, "in the first wakes of forty"
    left = True
    while left:
        left = (await wake(queue, now + 10, budget=500)).left
        got += await popped(queue)
    assert len({pack(m) for m in got}) == len(got) == 20_050


async def test_one_between_two_floods_has_its_turn(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID]
) -> None:
    """Members of an instant lie by tenant: the small one's are in the middle, in one shard or in all."""
    now = clock.now_ms()
    first, small, last = sorted(tenants)
    await queue.put_rates(dict.fromkeys(tenants, 1_000_000))
    await queue.add([member(now, tenant=flood, shard=n % 8) for flood in (first, last) for n in range(4_000)])
    await queue.add([member(now, tenant=small, shard=n % 8) for n in range(40)])
    got: list[Member] = []
    for _ in range(4):
        assert (await wake(queue, now, budget=500)).total == 500
        got += await popped(queue)
    by_tenant = Counter(m.tenant_id for m in got)
    assert by_tenant[small] == 40
    assert abs(by_tenant[first] - by_tenant[last]) < 200, "nor is one flood before the other"
    while (await wake(queue, now, budget=1_000)).left:
        got += await popped(queue)
    got += await popped(queue)
    assert len({pack(m) for m in got}) == len(got) == 8_040


async def test_shards_that_have_no_more_are_not_asked_again(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID], valkey: redis.Redis
) -> None:
    """Most of an instant may be one shard's: the others must not cost a look for each few of it."""
    due = clock.now_ms() + 1000
    await queue.put_rates({tenants[0]: 1_000_000})
    await queue.add([member(due, shard=0) for _ in range(1_500)])
    await queue.add([member(due + 1, shard=shard) for shard in range(1, SHARDS)])

    async def looks() -> int:
        return int((await valkey.info("commandstats"))["cmdstat_zrangebyscore"]["calls"])

    before = await looks()
    first = await wake(queue, due + 1, budget=1_000)
    assert (first.total, first.left) == (1_000, True)
    assert await looks() - before < 2 * SHARDS
    assert (await wake(queue, due + 1, budget=1_000)).total == 500 + SHARDS - 1
    assert {m.due_ms for m in await popped(queue, limit=1_000)} == {due}


async def test_quota_delays_in_order_and_drops_nothing(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID]
) -> None:
    now = clock.now_ms()
    await queue.put_rates({tenants[0]: 10})
    old = [member(now - 500 + n, shard=n) for n in range(25)]
    random.Random(2).shuffle(old)
    await queue.add(old)
    first = await wake(queue, now)
    # The class's part of a second's worth of burst, then a token each 100 ms.
    assert (first.total, first.held, first.next_due_ms) == (8, 17, now + 100)
    # Newer work of the same tenant and class joins the held ones.
    newer = member(now + 50)
    await queue.add([newer])
    assert (await wake(queue, now + 60)).total == 0
    released = [n for t in range(100, 1900, 100) if (n := (await wake(queue, now + t)).total)]
    assert released == [1] * 18
    dues = [m.due_ms for m in await popped(queue)]
    assert dues == [*range(now - 500, now - 475), now + 50]
    assert await queue.depths() == ([0, 0, 0, 0], 0)


async def test_an_older_straggler_goes_before_newer_held_work(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID]
) -> None:
    now = clock.now_ms()
    await queue.put_rates({tenants[0]: 1})
    await queue.add([member(now, parent=n) for n in (1, 2)])
    await wake(queue, now)
    await queue.add([member(now - 60_000, parent=3)])
    await wake(queue, now + 10)
    assert ids(await popped(queue)) == [1]
    await wake(queue, now + 1000)
    assert ids(await popped(queue)) == [3]
    await wake(queue, now + 2000)
    assert ids(await popped(queue)) == [2]


async def test_all_classes_share_the_quota_and_the_urgent_ones_keep_their_part(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID]
) -> None:
    now = clock.now_ms()
    await queue.put_rates({tenants[0]: 20})
    await queue.add([member(now, priority=3) for _ in range(200)])
    assert (await wake(queue, now)).by_class == (0, 0, 0, 14), "the rest of the burst is not for LOW"
    await queue.add([member(now + 1, priority=p) for p in (2, 1, 0) for _ in range(60)])
    assert (await wake(queue, now + 1)).by_class == (6, 0, 0, 0)
    total, by_class = 20, [6, 0, 0, 14]
    for at in range(now + 50, now + 5_001, 50):
        released = (await wake(queue, at)).by_class
        total += sum(released)
        by_class = [n + m for n, m in zip(by_class, released, strict=True)]
        assert total <= 20 * (1 + (at - now) / 1000), "never more than the quota, whatever it is of"
    # 100 tokens came in five seconds: the CRITICAL ones went first, then the HIGH ones.
    assert by_class[0] == 60
    assert by_class[1] > 40
    assert (by_class[2], by_class[3]) == (0, 14)
    left = 200 + 180 - total
    for at in range(now + 5_050, now + 25_000, 50):
        left -= (await wake(queue, at)).total
    assert left == 0


async def test_a_raised_quota_counts_at_once_and_none_holds_everything(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID]
) -> None:
    now = clock.now_ms()
    await queue.put_rates({tenants[0]: 0})
    await queue.add([member(now) for _ in range(30)])
    assert (await wake(queue, now)).held == 30
    await queue.put_rates({tenants[0]: 20})
    assert (await wake(queue, now + 1000)).total == 16
    assert (await wake(queue, now + 1500)).total == 10


async def test_a_tenant_nobody_told_about_has_the_default_quota(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID]
) -> None:
    now = clock.now_ms()
    await queue.put_rates({tenants[0]: 1})
    await queue.put_rates({}, gone=[tenants[0]])
    await queue.add([member(now) for _ in range(DEFAULT_RATE + 7)])
    released = await wake(queue, now)
    burst = round(burst_of(DEFAULT_RATE, 2))
    assert (released.total, released.held) == (burst, DEFAULT_RATE + 7 - burst)


async def test_stale_members_cost_no_tokens(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID]
) -> None:
    """A flood that was cancelled goes through as fast as it is found stale."""
    now = clock.now_ms()
    await queue.put_rates({tenants[0]: 10})
    await queue.add([member(now - 1000) for _ in range(96)])
    await queue.add([member(now, parent=999)])
    last: list[Member] = []
    for step in range(13):
        clock.wall_ms = now + step * 10
        await wake(queue, clock.wall_ms)
        last = await popped(queue)
        await queue.refund(last)
    assert ids(last) == [999]


@pytest.mark.parametrize("where", ["bucket", "held", "queue"])
async def test_removed_wherever_it_waits(
    queue: ValkeyQueue,
    clock: SetClock,
    member: MakeMember,
    tenants: list[uuid.UUID],
    where: str,
    valkey: redis.Redis,
) -> None:
    now = clock.now_ms()
    await queue.put_rates({tenants[0]: 0 if where == "held" else 10})
    gone = member(now)
    await queue.add([gone])
    if where != "bucket":
        await wake(queue, now)
    await queue.remove([gone])
    await queue.remove([gone])
    await queue.put_rates({tenants[0]: 10})
    assert (await wake(queue, now + 2000)).total == 0
    assert await popped(queue) == []
    left = {key async for key in valkey.scan_iter() if b":b:" in key or b"heads" in key or b":t:" in key}
    assert left == set()
    assert await queue.depths() == ([0, 0, 0, 0], 0)


async def test_restore_leaves_alone_what_waits_anywhere(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID]
) -> None:
    now = clock.now_ms()
    queued, held, in_bucket, lost = members = [member(now + n, parent=n + 1) for n in range(4)]
    await queue.put_rates({tenants[0]: 1})
    await queue.add([queued, held])
    assert (await wake(queue, now + 1)).held == 1
    await queue.add([in_bucket])
    assert await queue.restore(members) == 1
    assert await queue.restore(members) == 0
    assert (await wake(queue, now + 5)).total == 0
    order: list[int] = []
    for second in range(4):
        await wake(queue, now + 5 + second * 1000)
        order += ids(await popped(queue))
    assert order == [1, 2, 3, 4] == [m.parent_id.int for m in (queued, held, in_bucket, lost)]
