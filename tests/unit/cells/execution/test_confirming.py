"""Claims that wait for another region: what they cost others meanwhile, and where they go."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, cast

from cells.domain.job import Priority
from cells.execution.confirming import Confirming
from cells.execution.lanes import PARKED_PER_TENANT, Lane, Work
from cells.execution.targets import Target
from cells.records import Unconfirmed
from tests.unit.cells.execution.test_lanes import work
from tests.waiting import eventually

TARGET = Target((uuid.UUID(int=1), "tgt_a"))


class _Region:
    """Answers when it is told to, and how it is told to."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[bool] = asyncio.Queue()

    async def confirm(self) -> None:
        if not await self.answers.get():
            raise Unconfirmed("nobody")


class _Host:
    def holds(self, host_id: int) -> bool:
        return host_id == 1


class _Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


class Surroundings:
    def __init__(self) -> None:
        self.called: list[Work] = []
        self.region, self.clock = _Region(), _Clock()
        self.lane = Lane(Priority.DEFAULT, 8, self._call)
        self.confirming = Confirming(cast(Any, self.region), cast(Any, _Host()), self.clock)  # type: ignore[arg-type]

    async def _call(self, made: Work) -> None:
        self.called.append(made)

    def works(self, count: int) -> list[Work]:
        return [work(self.lane, TARGET) for _ in range(count)]


async def test_they_keep_their_places_and_are_called_once_confirmed() -> None:
    here = Surroundings()
    works = here.works(5)
    here.confirming.put(works)
    assert (here.lane.room(), here.lane.parked) == (3, {})
    here.region.answers.put_nowait(True)
    await eventually(lambda: here.called == works)
    assert (here.lane.room(), here.lane.expected) == (8, 0)
    assert await here.confirming.give_up() == []
    await here.lane.close()


async def test_while_nobody_answers_they_stand_aside_and_their_tenant_is_passed_over() -> None:
    here = Surroundings()
    works = here.works(PARKED_PER_TENANT)
    here.confirming.put(works[:8])
    assert here.lane.room() == 0
    waits = asyncio.create_task(here.lane.wait_room())
    await eventually(lambda: here.lane._hungry)
    here.region.answers.put_nowait(False)
    await asyncio.wait_for(waits, 10)  # the slots are others' now
    assert (here.lane.room(), here.lane.full_tenants) == (8, set())
    here.confirming.put(works[8:])
    assert here.lane.room() == 8
    (tenant,) = here.lane.full_tenants
    assert here.lane.parked == {tenant: PARKED_PER_TENANT}
    for _ in range(2):
        here.region.answers.put_nowait(True)
    await eventually(lambda: len(here.called) == len(works))
    assert (here.lane.full_tenants, here.lane.parked) == (set(), {})
    here.confirming.put(here.works(3))
    assert here.lane.room() == 5  # as before
    assert len(await here.confirming.give_up()) == 3
    await here.lane.close()


async def test_what_waits_for_too_long_goes_on_to_be_given_back() -> None:
    here = Surroundings()
    works = here.works(2)
    here.clock.now = works[0].last_start + 1
    here.confirming.put(works)
    here.region.answers.put_nowait(False)
    await eventually(lambda: here.called == works)
    assert (here.lane.expected, here.lane.parked) == (0, {})
    await here.lane.close()


async def test_a_host_that_stops_gets_all_of_them_back() -> None:
    here = Surroundings()
    works = here.works(6)
    here.confirming.put(works[:3])
    here.region.answers.put_nowait(False)
    await eventually(lambda: here.lane.parked)
    here.confirming.put(works[3:])
    assert await here.confirming.give_up() == works
    assert (here.lane.room(), here.lane.parked, here.called) == (8, {}, [])
    await here.lane.close()
