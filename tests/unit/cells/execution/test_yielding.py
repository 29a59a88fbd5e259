"""Less urgent lanes give way to urgent ones, and only to them."""

from __future__ import annotations

import asyncio
import uuid

from cells.domain.job import Priority
from cells.execution.lanes import Lane, Work
from cells.execution.targets import Target
from cells.execution.yielding import (
    LATE_SECONDS,
    LEAST,
    OTHERS_SECONDS,
    QUICK_SECONDS,
    START,
    STEP_SECONDS,
    VERY_LATE_SECONDS,
    Share,
    Yielding,
)
from tests.unit.cells.execution.test_lanes import work
from tests.waiting import eventually


class Stepped:
    """A clock that stands where it is put."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 100.0 + self.passed


TARGET = Target((uuid.UUID(int=1), "tgt_a"))


def test_a_loop_that_is_late_cuts_and_a_quick_one_gives_back() -> None:
    share = Share()
    assert share.step(late=1.0, beside=False, used=True) == 1.0, "for nobody"
    first = share.step(late=LATE_SECONDS * 2, beside=True, used=True)
    assert first < 1.0
    assert share.step(late=(LATE_SECONDS + QUICK_SECONDS) / 2, beside=True, used=True) == first
    assert share.step(late=VERY_LATE_SECONDS * 2, beside=True, used=True) == LEAST
    more = share.step(late=0.0, beside=True, used=True)
    assert LEAST < more < first
    for _ in range(50):
        share.step(late=LATE_SECONDS * 2, beside=True, used=True)
    assert share.part == LEAST
    for _ in range(10):
        share.step(late=1.0, beside=False, used=True)
    assert share.part == 1.0


def test_a_flood_that_begins_beside_others_begins_with_few() -> None:
    share = Share()
    parts = [share.step(late=0.0, beside=True, used=False) for _ in range(40)]
    assert parts == sorted(parts, reverse=True), "step by step: whoever needs some of it keeps that"
    assert parts[-1] == START
    share.step(late=VERY_LATE_SECONDS * 2, beside=True, used=True)
    for _ in range(4):
        share.step(late=0.0, beside=True, used=False)
    assert share.part == START


async def test_a_bounded_lane_uses_so_many_slots_and_goes_on_when_it_may() -> None:
    running = highest = 0
    gate = asyncio.Event()

    async def call(_: Work) -> None:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        await gate.wait()
        running -= 1

    lane = Lane(Priority.LOW, 8, call)
    lane.bound(2)
    for _ in range(20):
        lane.put(work(lane, TARGET))
    await eventually(lambda: lane.running == 2)
    assert (lane.room(), len(lane.ready)) == (2 - 2 - 18, 18)
    lane.bound(5)
    await eventually(lambda: lane.running == 5)
    lane.bound(1)
    assert lane.running == 5, "what is being called goes on"
    lane.bound(0)
    gate.set()
    await eventually(lambda: lane.finished == 20)
    assert (highest, lane.begun, lane.bounded) == (5, 20, 1)
    await lane.close()


async def test_only_while_urgent_work_comes() -> None:
    gate = asyncio.Event()

    async def call(_: Work) -> None:
        await gate.wait()

    lanes = {priority: Lane(priority, 64, call) for priority in Priority}
    clock = Stepped()
    yielding = Yielding(lanes, clock)
    yielding.look(late=0.0)
    clock.passed += OTHERS_SECONDS
    yielding.look(late=1.0)
    assert _bounds(lanes) == {"CRITICAL": 64, "HIGH": 64, "DEFAULT": 64, "LOW": 64}
    lanes[Priority.CRITICAL].put(work(lanes[Priority.CRITICAL], TARGET))
    yielding.look(late=2 * LATE_SECONDS)
    yielding.look(late=2 * LATE_SECONDS)
    assert _bounds(lanes) == {"CRITICAL": 64, "HIGH": 64, "DEFAULT": 31, "LOW": 31}
    gate.set()
    await eventually(lambda: lanes[Priority.CRITICAL].finished == 1)
    yielding.look(late=2 * LATE_SECONDS)
    clock.passed += OTHERS_SECONDS
    for _ in range(3):
        yielding.look(late=1.0)
    assert _bounds(lanes) == {"CRITICAL": 64, "HIGH": 64, "DEFAULT": 64, "LOW": 64}
    for lane in lanes.values():
        await lane.close()


async def test_a_class_that_several_tenants_share_gives_way_to_itself() -> None:
    async def call(_: Work) -> None:
        return None

    lanes = {priority: Lane(priority, 64, call) for priority in Priority}
    clock = Stepped()
    yielding = Yielding(lanes, clock)
    one, other = uuid.UUID(int=1), uuid.UUID(int=2)
    for _ in range(3):
        lanes[Priority.HIGH].came({one}, clock.monotonic())
    lanes[Priority.HIGH].came((), clock.monotonic())
    yielding.look(late=VERY_LATE_SECONDS * 2)
    assert _bounds(lanes) == {"CRITICAL": 64, "HIGH": 64, "DEFAULT": 64, "LOW": 64}
    lanes[Priority.HIGH].came({other}, clock.monotonic())
    lanes[Priority.LOW].came({one, other}, clock.monotonic())
    yielding.look(late=VERY_LATE_SECONDS * 2)
    assert _bounds(lanes) == {"CRITICAL": 64, "HIGH": 4, "DEFAULT": 64, "LOW": 4}
    clock.passed += OTHERS_SECONDS
    yielding.look(late=VERY_LATE_SECONDS * 2)
    assert _bounds(lanes) == {"CRITICAL": 64, "HIGH": 64, "DEFAULT": 64, "LOW": 64}


async def test_calls_that_wait_for_slow_targets_keep_their_slots() -> None:
    gate = asyncio.Event()

    async def slow(_: Work) -> None:
        await gate.wait()

    lanes = {priority: Lane(priority, 64, slow) for priority in Priority}
    clock = Stepped()
    yielding = Yielding(lanes, clock)
    for priority in (Priority.CRITICAL, Priority.LOW):
        for _ in range(4):
            lanes[priority].put(work(lanes[priority], TARGET))
    await eventually(lambda: lanes[Priority.LOW].running == 4)
    for _ in range(30):
        clock.passed += STEP_SECONDS
        yielding.look(late=2 * LATE_SECONDS)
    assert _bounds(lanes) == {"CRITICAL": 64, "HIGH": 64, "DEFAULT": 4, "LOW": 64}
    gate.set()
    await eventually(lambda: lanes[Priority.LOW].finished == 4)
    clock.passed += STEP_SECONDS
    lanes[Priority.LOW].begun += 100
    lanes[Priority.LOW].running = 30
    yielding.look(late=2 * LATE_SECONDS)
    assert _bounds(lanes)["LOW"] == 4
    for lane in lanes.values():
        await lane.close()


def _bounds(lanes: dict[Priority, Lane]) -> dict[str, int]:
    return {priority.name: lane.bounded for priority, lane in lanes.items()}
