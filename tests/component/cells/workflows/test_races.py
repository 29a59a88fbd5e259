"""A signal and a timer in the same instant: one of them wins, once, and the answer says which.

Who comes first is decided by who holds what the other one waits for, in each order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from cells.domain.workflow.execution import StepState
from cells.domain.workflow.folding import fold
from cells.workflow_ports import Signalled, Taken, Turn
from tests.component.cells.store.world import now
from tests.component.cells.workflows.harness import AheadPlanner, Flows
from tests.waiting import eventually

NAME = "race-1"
HOUR_MS = 3_600_000


class TimersAhead(AheadPlanner):
    """For it timers are due an hour early; what was said was said when it was."""

    def plan(self, taken: Taken) -> Turn | None:
        return super().plan(replace(taken, now_ms=taken.now_ms + HOUR_MS))


@pytest.fixture
async def other(workflow_database_url: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A connection whose transaction others wait for."""
    async with await psycopg.AsyncConnection.connect(workflow_database_url) as connection:
        yield connection
        await connection.rollback()


async def waiting(flows: Flows, *, timeout: str) -> None:
    """An execution that waits for a signal, for so long."""
    text = f"""
workflow: race
version: 1
steps:
  - id: wait
    wait_for_signal: {{ name: go, timeout: {timeout} }}
    on_timeout: continue
"""
    await flows.register(text)
    await flows.start(NAME, "race")
    await flows.settle()


async def its_time_comes(flows: Flows) -> None:
    """Until the timer is due for everybody."""
    timer_at = (await flows.row(NAME)).timer_at
    assert timer_at is not None
    await eventually(lambda: now() > timer_at + timedelta(milliseconds=1))


def signal(flows: Flows) -> Coroutine[Any, Any, Signalled | None]:
    return flows.signal(NAME, signal_id="s", name="go")


@asynccontextmanager
async def held_up(flows: Flows, word: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """Somebody who waits for another's lock by the time the block begins, and has ended with it."""

    before = await _waiting_for_locks(flows)

    async def waits() -> bool:
        return await _waiting_for_locks(flows) > before

    task = asyncio.ensure_future(word)
    try:
        await eventually(waits)
        yield task
        await task
    finally:
        task.cancel()


async def _waiting_for_locks(flows: Flows) -> int:
    ((count,),) = await flows.sql(
        b"SELECT count(*) FROM pg_stat_activity"
        b" WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return int(count)


async def is_late(flows: Flows, said: Signalled | None) -> bool:
    """Who won, as the history and the answer say alike."""
    assert said is not None
    await flows.settle()
    execution = fold(await flows.history(NAME))
    step = execution.steps["wait"]
    assert step.state is StepState.COMPLETED
    late = execution.late_signals == ["s"]
    assert step.timed_out is late
    assert said.status == ("late" if late else "accepted")
    return late


async def test_a_signal_that_waits_for_the_row_while_the_timer_does(
    flows: Flows, other: psycopg.AsyncConnection[Any]
) -> None:
    """Both wait for the same row. It comes free before the instant, and the engine finds both."""
    await waiting(flows, timeout="1h")
    flows.planner = TimersAhead()
    # The timer is due for the engine, once it may have the row.
    await other.execute("UPDATE workflows SET timer_at = now() - interval '1 second'")
    async with held_up(flows, signal(flows)) as said:
        await flows.settle()
        assert "TIMER_FIRED wait" not in await flows.told(NAME), "it is somebody else's"
        await other.commit()
    assert not await is_late(flows, said.result())


async def test_a_signal_that_gets_the_row_only_after_the_instant(
    flows: Flows, other: psycopg.AsyncConnection[Any]
) -> None:
    """It is late, though the timer has not been recorded by then."""
    await waiting(flows, timeout="1s")
    await other.execute("SELECT FROM workflows FOR UPDATE")
    async with held_up(flows, signal(flows)) as said:
        await its_time_comes(flows)
        await flows.settle()
        assert "TIMER_FIRED wait" not in await flows.told(NAME), "it is somebody else's"
        await other.rollback()
    assert "TIMER_FIRED wait" not in await flows.told(NAME)
    assert await is_late(flows, said.result())


async def test_a_timer_that_is_being_recorded_when_the_signal_comes(
    flows: Flows, other: psycopg.AsyncConnection[Any]
) -> None:
    """The engine has the row and is held up in its transaction; the signal waits for it."""
    await waiting(flows, timeout="1s")
    await its_time_comes(flows)
    row = await flows.row(NAME)
    await other.execute(
        "INSERT INTO workflow_events (tenant_id, run_id, seq, epoch, type, at, data)"
        " VALUES (%s, %s, %s, 0, 'X', now(), '{}')",
        (flows.tenant, row.run_id, row.next_seq),
    )
    async with held_up(flows, flows.settle()), held_up(flows, signal(flows)) as said:
        await other.rollback()
    assert "TIMER_FIRED wait" in await flows.told(NAME)
    assert await is_late(flows, said.result())


async def test_a_signal_that_is_being_put_in_when_the_timer_is_due(
    flows: Flows, other: psycopg.AsyncConnection[Any]
) -> None:
    """The signal has the row and is held up in its transaction; the engine passes the execution over."""
    await waiting(flows, timeout="1h")
    await flows.sql(b"UPDATE workflows SET timer_at = now() - interval '1 second'")
    flows.planner = TimersAhead()
    row = await flows.row(NAME)
    await other.execute(
        "INSERT INTO workflow_signals (tenant_id, workflow_id, signal_id, name, payload_hash, run_id)"
        " VALUES (%s, %s, 's', 'go', '', %s)",
        (flows.tenant, NAME, row.run_id),
    )
    async with held_up(flows, signal(flows)) as said:
        await flows.settle()
        assert "TIMER_FIRED wait" not in await flows.told(NAME), "the signal is in front"
        await other.rollback()
    assert not await is_late(flows, said.result())
