"""Less urgent lanes give way to urgent ones, and only to them."""

from __future__ import annotations

import asyncio
import uuid

from cells.domain.job import Priority
from cells.execution.lanes import Lane, Work
from cells.execution.targets import Target
from cells.execution.yielding import LATE_SECONDS, LEAST, QUICK_SECONDS, URGENT_SECONDS, Share, Yielding
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
    assert share.step(late=1.0, urgent=False) == 1.0, "for nobody"
    first = share.step(late=LATE_SECONDS * 2, urgent=True)
    assert first < 1.0
    assert share.step(late=(LATE_SECONDS + QUICK_SECONDS) / 2, urgent=True) == first
    for _ in range(50):
        share.step(late=LATE_SECONDS * 2, urgent=True)
    assert share.part == LEAST
    more = share.step(late=0.0, urgent=True)
    assert LEAST < more < first
    for _ in range(10):
        share.step(late=1.0, urgent=False)
    assert share.part == 1.0


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
    clock.passed += URGENT_SECONDS
    yielding.look(late=1.0)
    assert {lane.bounded for lane in lanes.values()} == {64}
    lanes[Priority.CRITICAL].put(work(lanes[Priority.CRITICAL], TARGET))
    yielding.look(late=1.0)
    yielding.look(late=1.0)
    bounds = {priority.name: lane.bounded for priority, lane in lanes.items()}
    assert bounds == {"CRITICAL": 64, "HIGH": 64, "DEFAULT": 31, "LOW": 31}
    gate.set()
    await eventually(lambda: lanes[Priority.CRITICAL].finished == 1)
    yielding.look(late=1.0)
    clock.passed += URGENT_SECONDS
    for _ in range(3):
        yielding.look(late=1.0)
    assert {lane.bounded for lane in lanes.values()} == {64}
    for lane in lanes.values():
        await lane.close()
