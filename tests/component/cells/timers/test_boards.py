"""Limits shared over Valkey: against the pure model, between executors, and what is parked."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest
import redis.asyncio as redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cells.contract import SHARDS
from cells.domain.aimd import Limit, Seen
from cells.domain.breaker import BreakerState
from cells.domain.capacity import Capacity, Observed, Told, after, usable
from cells.limits import TargetKey, TargetReport, TargetShare
from cells.timers.queue import ValkeyQueue
from tests.component.cells.timers.conftest import MakeMember, SetClock

KEY: TargetKey = (uuid.UUID(int=1), "tgt_a")
LEASE = 2000
ROOM = (100, 100, 100, 100)
several = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def report(key: TargetKey = KEY, observed: Observed | None = None, **what: object) -> TargetReport:
    given_: dict[str, object] = {"initial": 10, "most": 20} | what
    return TargetReport(key=key, observed=observed or Observed(), **given_)  # type: ignore[arg-type]


async def tell(queue: ValkeyQueue, executor: str, *args: object, **what: object) -> TargetShare:
    answer = await queue.exchange(executor, [report(*args, **what)], lease_ms=LEASE)  # type: ignore[arg-type]
    return answer.shares[0]


# --- the model ---------------------------------------------------------------------------
observations = st.builds(
    Observed,
    seen=st.builds(Seen, good=st.integers(0, 60), overloaded=st.integers(0, 12), bottleneck=st.booleans()),
    calls=st.integers(0, 40),
    failures=st.integers(0, 30),
    probes=st.integers(0, 2),
    failed_probes=st.integers(0, 1),
    pause_until_ms=st.just(0) | st.integers(0, 8000),
    told=st.none() | st.builds(Told, remaining=st.integers(0, 30), renews_ms=st.integers(0, 8000)),
)


@several
@given(steps=st.lists(st.tuples(st.integers(0, 4000), observations), min_size=1, max_size=25))
async def test_the_board_does_what_the_model_does(
    queue: ValkeyQueue, clock: SetClock, valkey: redis.Redis, steps: Sequence[tuple[int, Observed]]
) -> None:
    await valkey.flushdb()
    start = clock.now_ms()
    model = Capacity(limit=Limit(allowed=10))
    try:
        for pause, drawn in steps:
            clock.wall_ms += pause
            now = clock.now_ms()
            told = drawn.told and Told(remaining=drawn.told.remaining, renews_ms=now + drawn.told.renews_ms)
            what = Observed(
                seen=drawn.seen,
                calls=drawn.calls,
                failures=min(drawn.failures, drawn.calls),
                probes=drawn.probes,
                failed_probes=min(drawn.failed_probes, drawn.probes),
                pause_until_ms=drawn.pause_until_ms and now + drawn.pause_until_ms,
                told=told,
            )
            share = await tell(queue, "a", KEY, what, wanted=1000)
            before = model.breaker.state
            model = after(model, what, initial=10, most=20, now_ms=now)
            assert share.limit == pytest.approx(model.limit.allowed)
            assert share.breaker is model.breaker.state
            assert share.until_ms == model.breaker.until_ms
            assert share.calls == usable(model, now_ms=now)
            assert share.broke == (before is BreakerState.CLOSED and share.breaker is BreakerState.OPEN)
            board = await queue.target_board(KEY)
            assert board is not None
            assert board.usable == share.calls
    finally:
        clock.wall_ms = start


# --- between executors -------------------------------------------------------------------
async def test_shares_never_exceed_the_limit_and_follow_demand(queue: ValkeyQueue) -> None:
    assert (await tell(queue, "a", wanted=50)).calls == 10
    assert (await tell(queue, "b", wanted=50)).calls == 0  # not before the other has given back
    assert (await tell(queue, "a", wanted=50)).calls == 5
    assert (await tell(queue, "b", wanted=50)).calls == 5
    assert (await tell(queue, "b", wanted=1)).calls == 1
    assert (await tell(queue, "a", wanted=50)).calls == 9


async def test_calls_under_way_are_not_given_away(queue: ValkeyQueue) -> None:
    await tell(queue, "a", wanted=50)
    await tell(queue, "b", wanted=50)
    await tell(queue, "a", wanted=0, running=10)  # gave its share back, and is still calling
    assert (await tell(queue, "b", wanted=50)).calls == 0
    await tell(queue, "a", wanted=0, running=2)
    assert (await tell(queue, "b", wanted=50)).calls == 8


async def test_the_slots_of_a_dead_executor_come_back(queue: ValkeyQueue, clock: SetClock) -> None:
    await tell(queue, "a", wanted=50, running=10)
    assert (await tell(queue, "b", wanted=50)).calls == 0
    clock.wall_ms += LEASE
    answer = await queue.exchange("b", [report(wanted=50)], lease_ms=LEASE)
    assert (answer.shares[0].calls, answer.executors) == (10, 1)


async def test_a_halved_limit_reaches_everybody(queue: ValkeyQueue) -> None:
    await tell(queue, "a", wanted=5)
    await tell(queue, "b", wanted=5)
    await tell(queue, "a", KEY, Observed(seen=Seen(overloaded=3)), wanted=5)
    shares = [await tell(queue, name, wanted=5) for name in ("a", "b", "a", "b")]
    assert shares[-1].limit == 5
    assert sum(share.calls for share in shares[2:]) == 5


async def test_a_board_that_forgot_is_told_what_an_executor_knows(
    queue: ValkeyQueue, valkey: redis.Redis
) -> None:
    await tell(queue, "a", KEY, Observed(seen=Seen(overloaded=3)), wanted=9)
    await valkey.flushdb()
    assert (await tell(queue, "a", wanted=9, known_limit=5.0)).calls == 5


# --- parking -----------------------------------------------------------------------------
async def test_parked_members_come_back_by_class_and_due_time(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember
) -> None:
    now = clock.now_ms()
    late, early, urgent = member(now - 10), member(now - 20), member(now, priority=0)
    await queue.park([(late, "tgt_a"), (early, "tgt_a"), (urgent, "tgt_a"), (member(now), "tgt_b")])
    assert await queue.parked_for([late, urgent, member(now)]) == ["tgt_a", "tgt_a", None]
    board_before = await queue.target_board(KEY)
    assert board_before is None
    share = await tell(queue, "a", held=8, members=ROOM)
    assert [m.parent_id for m in share.members] == [urgent.parent_id, early.parent_id]
    assert share.parked == 1
    board = await queue.target_board(KEY)
    assert board is not None
    assert board.parked == (0, 0, 1, 0)
    assert [m.parked for m in board.minutes] == [1]
    share = await tell(queue, "a", members=ROOM)
    assert [m.parent_id for m in share.members] == [late.parent_id]
    assert (share.members[0].due_ms, share.members[0].released_ms) == (now - 10, now - 10)
    assert share.parked == 0
    assert await queue.parked_for([late, urgent]) == [None, None]


async def test_nothing_comes_back_while_the_target_is_broken(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember
) -> None:
    broke = await tell(queue, "a", KEY, Observed(calls=20, failures=20))
    assert (broke.broke, broke.calls, broke.breaker) == (True, 0, BreakerState.OPEN)
    await queue.park([(member(clock.now_ms() - n), "tgt_a") for n in range(5)])
    assert (await tell(queue, "a", members=ROOM, ahead=50)).members == ()
    clock.wall_ms = broke.until_ms
    probing = await tell(queue, "a", members=ROOM, ahead=50)
    assert (probing.breaker, len(probing.members)) == (BreakerState.HALF_OPEN, 1)
    assert (await tell(queue, "a", held=1, members=ROOM, ahead=50)).members == ()
    well = await tell(queue, "a", KEY, Observed(seen=Seen(good=1), calls=1, probes=1), members=ROOM, ahead=50)
    assert (well.recovered, len(well.members), well.parked) == (True, 4, 0)


async def test_what_comes_back_takes_of_the_room_for_running_runs(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID]
) -> None:
    now = clock.now_ms()
    await queue.park([(member(now - n), "tgt_a") for n in range(5)])
    await queue.put_room({tenants[0]: 3})
    assert await queue.take_places({tenants[0]: 1, tenants[1]: 9}) == {tenants[0]: 1}
    share = await tell(queue, "a", members=ROOM)
    assert (len(share.members), share.parked) == (2, 3)
    assert (await tell(queue, "a", members=ROOM)).members == ()
    assert (await queue.passage(tenants[:1]))[tenants[0]].passed == 3
    # Whoever took places for nothing gives them back.
    assert await queue.take_places({tenants[0]: 4}) == {tenants[0]: 0}
    await queue.give_places({tenants[0]: 1})
    assert len((await tell(queue, "a", members=ROOM)).members) == 1
    await queue.put_room({}, gone=tenants[:1])
    assert len((await tell(queue, "a", members=ROOM)).members) == 2


async def test_what_is_low_stays_parked_while_its_tenants_budget_is_spent(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID]
) -> None:
    now = clock.now_ms()
    low, default = member(now - 9, priority=3), member(now)
    await queue.put_delayed(tenants[:1])
    await queue.park([(low, "tgt_a"), (default, "tgt_a")])
    share = await tell(queue, "a", members=ROOM)
    assert ([m.parent_id for m in share.members], share.parked) == ([default.parent_id], 1)
    await queue.put_delayed((), gone=tenants[:1])
    assert [m.parent_id for m in (await tell(queue, "a", members=ROOM)).members] == [low.parent_id]


async def test_work_of_a_target_that_is_no_more_need_not_wait(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember
) -> None:
    await tell(queue, "a", KEY, Observed(calls=20, failures=20))
    await queue.park([(member(clock.now_ms()), "tgt_a")])
    assert len((await tell(queue, "a", free=True, members=ROOM)).members) == 1


async def test_work_that_nobody_looks_after_is_told_of(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember
) -> None:
    await queue.park([(member(clock.now_ms()), "tgt_a")])
    assert (await queue.exchange("b", [], lease_ms=LEASE)).forsaken == []
    clock.wall_ms += 1000
    assert (await queue.exchange("b", [], lease_ms=LEASE)).forsaken == [KEY]
    assert (await queue.exchange("c", [], lease_ms=LEASE)).forsaken == []


async def test_sweeps_leave_what_is_parked_and_cancels_take_it_out(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember
) -> None:
    parked = member(clock.now_ms() - 30_000)
    await queue.park([(parked, "tgt_a")])
    assert await queue.restore([parked]) == 0
    await queue.remove([parked])
    assert await queue.parked_for([parked]) == [None]
    assert (await tell(queue, "a", members=ROOM)).parked == 0
    assert await queue.restore([parked]) == 1


async def test_parking_costs_its_tenant_no_turn(
    queue: ValkeyQueue, clock: SetClock, member: MakeMember, tenants: list[uuid.UUID]
) -> None:
    """Tenant 1 was served and parked; it and tenant 2 are level."""
    now = clock.now_ms()
    await queue.put_rates(dict.fromkeys(tenants, 1000))
    await queue.add(
        [member(now, tenant=t, parent=100 * n + i) for n, t in enumerate(tenants[:2]) for i in range(4)]
    )
    await queue.release(now_ms=now, shards=range(SHARDS), budget=100, fresh_after_ms=None)
    (first,) = await queue.pop(priority=2, limit=1)
    await queue.park([(first, "tgt_a")])
    served = [m.tenant_id for m in await queue.pop(priority=2, limit=4)]
    assert served == [tenants[0], tenants[1], tenants[0], tenants[1]]
