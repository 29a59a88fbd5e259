"""Dear answers: one at a time for a tenant, a few in a process, kept for a while."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from cells.api import sparing
from cells.api.problems import Problem
from cells.api.sparing import AT_ONCE, KEPT_SECONDS, Sparing
from cells.clock import SystemClock

TENANTS = [uuid.UUID(int=n) for n in range(AT_ONCE + 2)]


class SetClock(SystemClock):
    steady = 0.0

    def monotonic(self) -> float:
        return self.steady


class Kitchen:
    """Makes answers when it is told to."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.begun = self.under_way = self.most = 0

    async def make(self) -> int:
        self.begun += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.open.wait()
        self.under_way -= 1
        return self.begun


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_for_a_tenant_and_a_few_in_all() -> None:
    clock, kitchen = SetClock(), Kitchen()
    spared: Sparing[int] = Sparing(clock)
    first = [asyncio.create_task(spared.get(TENANTS[0], question, kitchen.make)) for question in "aabb"]
    await turns()
    assert kitchen.begun == 1
    others = [asyncio.create_task(spared.get(tenant, "a", kitchen.make)) for tenant in TENANTS[1:]]
    await turns()
    assert kitchen.begun == AT_ONCE
    kitchen.open.set()
    answers = await asyncio.gather(*first)
    assert answers[0] == answers[1] != answers[2] == answers[3]
    await asyncio.gather(*others)
    assert kitchen.begun == 2 + len(others)
    assert kitchen.most == AT_ONCE
    assert spared._turns == {}

    assert await spared.get(TENANTS[0], "a", kitchen.make) == answers[0]
    clock.steady = KEPT_SECONDS
    assert await spared.get(TENANTS[0], "a", kitchen.make) != answers[0]


async def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparing, "PATIENCE_SECONDS", 0.01)
    kitchen = Kitchen()
    spared: Sparing[int] = Sparing(SetClock())
    slow = asyncio.create_task(spared.get(TENANTS[0], "a", kitchen.make))
    await turns()
    with pytest.raises(Problem) as refused:
        await spared.get(TENANTS[0], "b", kitchen.make)
    assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
    kitchen.open.set()
    assert await slow == 1
