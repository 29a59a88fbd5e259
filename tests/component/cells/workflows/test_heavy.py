"""Heavy values are made by processes that are killed when they take too long; their steps go on, or fail."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cells.domain.workflow.expressions import Expression
from cells.domain.workflow.heavy import Work, work_of
from cells.observability.metrics import Metrics
from cells.workflows import calculators as pool
from cells.workflows.calculators import Calculators
from cells.workflows.planner import CachedPlanner
from tests.component.cells.workflows.harness import ALL, Flows
from tests.unit.cells.domain.workflow.test_heavy import ITEMS, TEXT
from tests.waiting import eventually

TENANT, OTHER = uuid.uuid4(), uuid.uuid4()


def value(n: int, length: int = 700) -> Work:
    """A tenth of a second of work for 700 of them, many seconds for 2,500."""
    items = [{"n": n, "pad": "x" * (40 if length <= 700 else 2_000)} for _ in range(length)]
    return work_of(Expression(f"size(input.map(i, i)) + {n}"), {"input": items})


@pytest.fixture
async def calculators() -> AsyncIterator[Calculators]:
    made = Calculators(Metrics(), processes=1)
    yield made
    await made.close()


async def children() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children()
        if "cells.workflows.calculating" in " ".join(child.cmdline())
    ]


async def test_an_execution_goes_on_once_its_value_is_there(flows: Flows) -> None:
    told = asyncio.Event()
    askers: list[Any] = []

    def made(some: Any) -> None:
        askers.extend(some)
        told.set()

    calculators = Calculators(Metrics(), made=made)
    planner = CachedPlanner(calculators)

    async def look(also: Any = ()) -> None:
        planner.begin()
        await flows.store.step_workflows(
            planner, shards=ALL, but_not=(), limit=10, host_id=flows.world.host_id, also=also
        )

    await flows.register(TEXT)
    await flows.start("w-1", "heavy", given={"items": ITEMS, "n": 1})
    await look()
    row = await flows.row("w-1")
    assert row.decide_at is not None, "whoever makes it may die"
    assert [e.data.get("step") for e in await flows.events(row)][1:] == ["both", "other"]
    async with asyncio.timeout(30):
        await told.wait()
    assert askers == [(flows.tenant, row.run_id)]
    await look(also=askers)
    events = await flows.history("w-1")
    assert events[-1].data["step"] == "picked"
    assert len(events[-1].data["input"]["picked"]) == 300
    assert (await flows.row("w-1")).decide_at is None
    await calculators.close()
    assert await children() == []


async def test_what_takes_too_long_is_killed_and_told_so_once(
    calculators: Calculators, monkeypatch: pytest.MonkeyPatch
) -> None:
    calculators._seconds = 0.05
    for patience in (1, 1_000):  # by the clock; by processor time, of which the least is a second
        monkeypatch.setattr(pool, "_PATIENCE", patience)
        outcome = await calculators.wait_for(TENANT, value(patience, 2_500))
        assert outcome is not None
        assert outcome.fault == "takes more than 0.05 seconds to make"
        assert calculators.outcome(TENANT, value(patience, 2_500), "again") is outcome
    monkeypatch.setattr(pool, "_PATIENCE", 1_000)
    calculators._seconds = 20
    after = await calculators.wait_for(TENANT, value(3))
    assert after is not None
    assert after.value == 703


async def test_one_that_somebody_killed_is_made_again(calculators: Calculators) -> None:
    waiting = asyncio.create_task(calculators.wait_for(TENANT, value(4, 1_000)))
    (child,) = await eventually(children)
    await eventually(lambda: busy(child))
    os.kill(child.pid, signal.SIGKILL)
    outcome = await waiting
    assert outcome is not None
    assert outcome.fault is None


async def busy(child: psutil.Process) -> bool:
    return child.cpu_times().user > 0.3


async def test_what_comes_while_the_last_process_leaves_is_made(
    calculators: Calculators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_IDLE_SECONDS", 0.0)
    for n in range(3):
        outcome = await calculators.wait_for(TENANT, work_of(Expression("input.n"), {"input": {"n": n}}))
        assert outcome is not None
        assert outcome.value == n


async def test_tenants_take_turns_and_nobody_fills_the_room(calculators: Calculators) -> None:
    done: list[Any] = []
    calculators._told = done.extend
    for n in range(3):
        calculators.outcome(TENANT, value(n + 10), ("mine", n))
    calculators.outcome(OTHER, value(99), ("theirs", 0))
    for n in range(100):
        calculators.outcome(TENANT, work_of(Expression("input.n"), {"input": {"n": n}}), ("more", n))
    assert len(calculators._waiting[TENANT]) == pool._WAITING_EACH
    await eventually(lambda: there(done, ("mine", 1)))
    assert done.index(("theirs", 0)) < done.index(("mine", 1))


async def test_a_tenant_has_one_process_and_what_nobody_else_wants(calculators: Calculators) -> None:
    calculators._processes = 2
    for outcome in await asyncio.gather(*(calculators.wait_for(TENANT, value(n + 20)) for n in range(3))):
        assert outcome is not None
        assert outcome.fault is None
    (child,) = await children()
    assert child.nice() == 19
    assert first_to_go(child)
    await asyncio.gather(*(calculators.wait_for(whose, value(n)) for n, whose in ((40, TENANT), (41, OTHER))))
    assert len(await children()) == 2


def first_to_go(child: psutil.Process) -> bool:
    return Path(f"/proc/{child.pid}/oom_score_adj").read_text().strip() == "1000"


async def there(done: list[Any], asker: Any) -> bool:
    return asker in done
