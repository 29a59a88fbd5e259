"""A signal and a timer at one time: one of them wins, once, and the answer says which."""

from __future__ import annotations

import asyncio

import psycopg

from cells.domain.workflow.execution import StepState
from cells.workflow_ports import WorkflowRow
from tests.component.cells.store.world import now
from tests.component.cells.workflows.harness import Flows
from tests.waiting import eventually

TEXT = """
workflow: race
version: 1
steps:
  - id: wait
    wait_for_signal: { name: go, timeout: 2s }
    on_timeout: continue
"""


async def raced(flows: Flows) -> WorkflowRow:
    """One that waits for a signal, or for its timer."""
    await flows.register(TEXT)
    await flows.start("race-1", "race")
    await flows.settle()
    return await flows.row("race-1")


async def is_due(row: WorkflowRow) -> None:
    """Its timer's time has come; no engine has looked since."""
    timer_at = row.timer_at
    assert timer_at is not None

    async def over() -> bool:
        return now() > timer_at

    await eventually(over, timeout=30)


async def ended(flows: Flows, *, late: bool) -> None:
    await flows.settle()
    execution = await flows.execution("race-1")
    step = execution.steps["wait"]
    assert (step.state, step.timed_out) == (StepState.COMPLETED, late)
    assert execution.late_signals == (["s-1"] if late else [])
    told = await flows.told("race-1")
    assert (told.count("TIMER_FIRED wait"), told.count("SIGNAL_RECEIVED")) == (int(late), 1)


async def answered(flows: Flows) -> str:
    taken = await flows.signal("race-1", name="go")
    assert taken is not None
    return taken.status


async def test_a_signal_that_came_before_the_time_wins_however_late_it_is_recorded(flows: Flows) -> None:
    row = await raced(flows)
    assert await answered(flows) == "accepted"
    await is_due(row)
    await ended(flows, late=False)


async def test_a_signal_behind_the_time_is_late_though_no_engine_has_looked(flows: Flows) -> None:
    row = await raced(flows)
    await is_due(row)
    assert await answered(flows) == "late"
    await ended(flows, late=True)


async def test_a_signal_that_is_held_up_until_the_time_is_late(
    flows: Flows, workflow_database_url: str
) -> None:
    row = await raced(flows)
    async with await psycopg.AsyncConnection.connect(workflow_database_url) as engine:
        await engine.execute(b"SELECT FROM workflows FOR NO KEY UPDATE")
        answer = asyncio.create_task(answered(flows))

        async def waits() -> bool:
            return await flows.sql(
                b"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                b" AND wait_event_type = 'Lock'"
            ) == [(1,)]

        await eventually(waits, timeout=30)
        await is_due(row)
        await engine.commit()
    assert await answer == "late"
    await ended(flows, late=True)
