"""A lane by itself: slots, room, who is parked."""

from __future__ import annotations

import asyncio
import uuid
from typing import cast

from cells.domain.job import Priority
from cells.execution.lanes import PARKED_PER_TENANT, Lane, Work, shares_of
from cells.execution.targets import Target
from tests.unit.cells.execution.test_recording import claim
from tests.waiting import eventually


def work(lane: Lane, target: Target) -> Work:
    return Work(claim(), host_id=1, claimed_at=100.0, target=target, lane=lane)


def test_every_class_has_slots() -> None:
    assert shares_of(1024) == {
        Priority.CRITICAL: 256,
        Priority.HIGH: 256,
        Priority.DEFAULT: 384,
        Priority.LOW: 128,
    }
    assert set(shares_of(4).values()) == {1}


def test_a_call_must_fit_into_its_lease() -> None:
    lane = Lane(Priority.DEFAULT, 1, cast("object", None))  # type: ignore[arg-type]
    made = work(lane, Target((uuid.UUID(int=1), "tgt_a")))
    # Leased for 90 s at 100: the call may take 30, its record 5.
    assert made.lease_until == 190.0
    assert made.last_start == 155.0


async def test_no_more_than_its_slots_at_once() -> None:
    opened = asyncio.Event()
    running = highest = 0

    async def call(_: Work) -> None:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        await opened.wait()
        running -= 1

    lane = Lane(Priority.DEFAULT, 3, call)
    target = Target((uuid.UUID(int=1), "tgt_a"))
    for _ in range(10):
        lane.put(work(lane, target))
    await eventually(lambda: lane.running == 3)
    assert (lane.room(), len(lane.ready)) == (-7, 7)
    assert not lane.worthwhile()
    opened.set()
    await eventually(lambda: lane.finished == 10)
    assert highest == 3
    assert lane.room() == 3
    await lane.close()


async def test_what_waited_for_a_narrow_bound_begins_as_soon_as_it_is_wide() -> None:
    opened = asyncio.Event()

    async def call(_: Work) -> None:
        await opened.wait()

    lane = Lane(Priority.DEFAULT, 8, call)
    target = Target((uuid.UUID(int=1), "tgt_a"))
    lane.bound(1)
    for n in range(5):
        lane.put(work(lane, target))
        if n == 0:
            await eventually(lambda: lane.running == 1)
    assert (lane.running, len(lane.ready)) == (1, 4)
    lane.bound(4)
    await eventually(lambda: lane.running == 4)
    assert len(lane.ready) == 1
    lane.bound(8)
    await eventually(lambda: lane.running == 5)
    opened.set()
    await eventually(lambda: lane.finished == 5)
    await lane.close()


async def test_fast_calls_make_room_ahead_and_slow_ones_none() -> None:
    async def call(_: Work) -> None:
        return None

    lane = Lane(Priority.DEFAULT, 100, call)
    lane.finished = 1000
    lane.measure(1.0)
    assert lane.room() == 130  # 30 ms of work beyond the slots
    lane.finished = 1
    lane.measure(1.0)
    assert lane.room() == 100
    await lane.close()


async def test_a_tenant_with_too_much_parked_is_passed_over_until_half_is_gone() -> None:
    async def call(_: Work) -> None:
        return None

    lane = Lane(Priority.DEFAULT, 1, call)
    target = Target((uuid.UUID(int=1), "tgt_a"))
    for _ in range(PARKED_PER_TENANT):
        assert lane.full_tenants == set()
        lane.park(work(lane, target), first=False, now=0.0)
    assert lane.full_tenants == {uuid.UUID(int=1)}
    lane.wake.clear()
    while len(target.waiting) >= PARKED_PER_TENANT // 2:
        assert lane.full_tenants
        assert not lane.wake.is_set()
        lane.unpark(target.waiting.popleft())
    assert lane.full_tenants == set()
    assert lane.wake.is_set()
    while target.waiting:
        lane.unpark(target.waiting.popleft())
    assert lane.parked == {}
    await lane.close()


def test_who_was_first_stays_first() -> None:
    lane = Lane(Priority.DEFAULT, 1, cast("object", None))  # type: ignore[arg-type]
    target = Target((uuid.UUID(int=1), "tgt_a"))
    first, second = work(lane, target), work(lane, target)
    lane.park(first, first=first.parked, now=0.0)
    lane.park(second, first=second.parked, now=0.0)
    handed = target.waiting.popleft()
    lane.unpark(handed)
    lane.park(handed, first=handed.parked, now=0.0)
    assert list(target.waiting) == [first, second]
