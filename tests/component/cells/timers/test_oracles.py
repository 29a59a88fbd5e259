"""The scripts against the pure models: fair queue and quota, step by step."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import redis.asyncio as redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cells.contract import SHARDS
from cells.domain.fairness import FairQueue
from cells.domain.rates import burst_of, gcra
from cells.ports import Member
from cells.timers.queue import ValkeyQueue
from tests.component.cells.timers.conftest import SetClock

TENANTS = [uuid.UUID(int=n << 64) for n in range(1, 5)]
several = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def make(tenant: int, number: int, due_ms: int) -> Member:
    return Member(
        tenant_id=TENANTS[tenant],
        parent_id=uuid.UUID(int=number),
        scheduled_for=0,
        priority=2,
        due_ms=due_ms,
        shard=number % SHARDS,
    )


tenant_numbers = st.integers(0, len(TENANTS) - 1)
adds = st.tuples(
    st.just("add"), st.lists(st.tuples(tenant_numbers, st.integers(1, 40)), min_size=1, max_size=12)
)
pops = st.tuples(st.just("pop"), st.tuples(st.integers(1, 9), st.sets(tenant_numbers, max_size=2)))
refunds = st.tuples(st.just("refund"), st.tuples(tenant_numbers, st.integers(1, 9)))
removes = st.tuples(st.just("remove"), st.tuples(tenant_numbers, st.integers(1, 40)))
Step = tuple[str, object]


@several
@given(st.lists(adds | pops | refunds | removes, min_size=1, max_size=25))
async def test_the_fair_queue_serves_as_its_model(
    queue: ValkeyQueue, clock: SetClock, valkey: redis.Redis, steps: Sequence[Step]
) -> None:
    await valkey.flushdb()
    await queue.put_rates(dict.fromkeys(TENANTS, 1_000_000))
    now = clock.now_ms()
    model: FairQueue[tuple[int, int]] = FairQueue()

    def member(tenant: int, number: int) -> Member:
        return make(tenant, number, now - number // 4)

    for step, what in steps:
        match step, what:
            case "add", list(pairs):
                await queue.add([member(*pair) for pair in pairs])
                await queue.release(now_ms=now, shards=range(SHARDS), budget=1000, fresh_after_ms=None)
                for tenant, number in pairs:
                    model.add(str(tenant), (tenant, number), now - number // 4)
            case "pop", (limit, passed):
                served = await queue.pop(priority=2, limit=limit, but_not=[TENANTS[t] for t in passed])
                wanted = model.pop(limit, but_not=[str(t) for t in passed])
                assert [(m.tenant_id, m.parent_id.int) for m in served] == [
                    (TENANTS[tenant], number) for _, (tenant, number) in wanted
                ]
            case "refund", (tenant, count):
                await queue.refund([member(tenant, 1)] * count)
                model.refund(str(tenant), count)
            case "remove", (tenant, number):
                await queue.remove([member(tenant, number)])
                model.remove(str(tenant), (tenant, number))
    rest = await queue.pop(priority=2, limit=1000)
    assert [m.parent_id.int for m in rest] == [number for _, (_, number) in model.pop(1000)]


@several
@given(
    rate=st.integers(1, 40) | st.integers(1, 2500),
    bursts=st.lists(st.tuples(st.integers(0, 700), st.integers(1, 120)), min_size=1, max_size=12),
)
async def test_the_gate_grants_what_gcra_allows(
    queue: ValkeyQueue, clock: SetClock, valkey: redis.Redis, rate: int, bursts: Sequence[tuple[int, int]]
) -> None:
    """Each burst is given to an empty held set, so that it is the arithmetic that is compared."""
    await valkey.flushdb()
    await queue.put_rates({TENANTS[0]: rate})
    now, number, tat = clock.now_ms(), 0, 0.0
    for pause, count in bursts:
        now += pause
        await queue.add([make(0, number + n + 1, now) for n in range(count)])
        number += count
        released = await queue.release(now_ms=now, shards=range(SHARDS), budget=1000, fresh_after_ms=None)
        allowed = 0
        for _ in range(count):
            verdict = gcra(tat, now, rate, burst_of(rate, 2))
            tat = verdict.tat_ms
            allowed += verdict.allowed
        assert (released.total, released.held) == (allowed, count - allowed)
        await valkey.delete(queue.keys.held(2, TENANTS[0].bytes), queue.keys.held_at)


@several
@given(
    rate=st.integers(1, 400),
    arrivals=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 60)), min_size=1, max_size=10),
)
async def test_never_more_than_the_quota_never_out_of_order_never_lost(
    queue: ValkeyQueue, clock: SetClock, valkey: redis.Redis, rate: int, arrivals: Sequence[tuple[int, int]]
) -> None:
    await valkey.flushdb()
    await queue.put_rates({TENANTS[0]: rate})
    start = now = clock.now_ms()
    dues: list[int] = []
    out: list[tuple[int, int]] = []  # due, released

    async def wake(until: int) -> int:
        """Wake as a dispatcher does, up to that time."""
        at = now
        while True:
            result = await queue.release(now_ms=at, shards=range(SHARDS), budget=1000, fresh_after_ms=None)
            out.extend((m.due_ms, m.released_ms) for m in await queue.pop(priority=2, limit=1000))
            if result.next_due_ms is None or result.next_due_ms > until:
                return until
            assert result.next_due_ms > at
            at = result.next_due_ms

    for pause, count in arrivals:
        now = await wake(now + pause)
        await queue.add([make(0, len(dues) + n + 1, now) for n in range(count)])
        dues += [now] * count
    # The last token comes when the backlog is worked off; a step of the grid later at most.
    await wake(now + 1000 * len(dues) // rate + 1100)
    assert [due for due, _ in out] == sorted(dues)
    times = [released for _, released in out]
    assert times == sorted(times)
    for n, released in enumerate(times):
        assert released >= start + max(0, (n + 1 - rate)) * 1000 / rate - 1


async def test_one_who_was_passed_over_is_not_ahead_by_that(queue: ValkeyQueue, clock: SetClock) -> None:
    """Tenant 3 was passed over; then it and tenant 1 are level, and ties go to the smaller name."""
    now = clock.now_ms()
    await queue.add([make(tenant, number, now) for tenant in (1, 3) for number in range(1, 6)])
    await queue.release(now_ms=now, shards=range(SHARDS), budget=100, fresh_after_ms=None)
    served = await queue.pop(priority=2, limit=3, but_not=[TENANTS[3]])
    assert [m.tenant_id for m in served] == [TENANTS[1]] * 3
    await queue.refund(served)
    order = [(await queue.pop(priority=2, limit=1))[0].tenant_id for _ in range(4)]
    assert order == [TENANTS[n] for n in (1, 3, 1, 3)]
