"""A signal and a timer in the same instant: one of them wins, once, and the answer says which."""

from __future__ import annotations

import asyncio

from cells.domain.workflow.execution import StepState
from cells.domain.workflow.folding import fold
from tests.component.cells.store.world import now
from tests.component.cells.workflows.harness import Flows

RACES = 150
TEXT = """
workflow: race
version: 1
steps:
  - id: wait
    wait_for_signal: { name: go, timeout: 6s }
    on_timeout: continue
"""


async def test_whichever_is_recorded_first_wins_once(flows: Flows) -> None:
    await flows.register(TEXT)
    for n in range(RACES):
        await flows.start(f"race-{n}", "race", given=n)
    await flows.settle()
    rows = {f"race-{n}": await flows.row(f"race-{n}") for n in range(RACES)}
    answers: dict[str, str] = {}

    async def signal(workflow_id: str, jitter_ms: int) -> None:
        timer_at = rows[workflow_id].timer_at
        assert timer_at is not None
        await asyncio.sleep(max(0.0, (timer_at - now()).total_seconds() + jitter_ms / 1000))
        taken = await flows.signal(workflow_id, signal_id="s", name="go")
        assert taken is not None
        answers[workflow_id] = taken.status

    async def engine() -> None:
        while len(answers) < RACES:
            await flows.settle()
            await asyncio.sleep(0.001)

    await asyncio.gather(engine(), *(signal(f"race-{n}", 2 * (n % 101) - 150) for n in range(RACES)))
    await flows.settle()
    outcomes = set()
    for n in range(RACES):
        execution = fold(await flows.history(f"race-{n}"))
        step = execution.steps["wait"]
        assert step.state is StepState.COMPLETED
        late = execution.late_signals == ["s"]
        assert step.timed_out is late
        assert answers[f"race-{n}"] == ("late" if late else "accepted"), n
        outcomes.add(late)
    assert outcomes == {True, False}
