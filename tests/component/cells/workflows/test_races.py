"""A signal and a timer in the same instant: one of them wins, once, and the answer says which."""

from __future__ import annotations

import asyncio

from cells.domain.workflow.execution import StepState
from cells.domain.workflow.folding import fold
from tests.component.cells.store.world import now
from tests.component.cells.workflows.harness import Flows

RACES = 40
#: Where both outcomes must be seen: a machine that is busy only needs more of them.
ROUNDS = 12
TEXT = """
workflow: race
version: 1
steps:
  - id: wait
    wait_for_signal: { name: go, timeout: 2s }
    on_timeout: continue
"""


async def test_whichever_is_recorded_first_wins_once(flows: Flows) -> None:
    await flows.register(TEXT)
    outcomes: set[bool] = set()
    for n in range(ROUNDS):
        outcomes |= await _raced(flows, [f"race-{n}-{k}" for k in range(RACES)])
        if outcomes == {True, False}:
            return
    raise AssertionError(f"every race ended alike: {outcomes}")


async def _raced(flows: Flows, names: list[str]) -> set[bool]:
    """Race a signal against each one's timer, around its instant; whether signals were late."""
    for name in names:
        await flows.start(name, "race", given=name)
    await flows.settle()
    rows = {name: await flows.row(name) for name in names}
    answers: dict[str, str] = {}

    async def signal(workflow_id: str, jitter_ms: int) -> None:
        timer_at = rows[workflow_id].timer_at
        assert timer_at is not None
        await asyncio.sleep(max(0.0, (timer_at - now()).total_seconds() + jitter_ms / 1000))
        taken = await flows.signal(workflow_id, signal_id="s", name="go")
        assert taken is not None
        answers[workflow_id] = taken.status

    async def engine() -> None:
        while len(answers) < len(names):
            await flows.settle()
            await asyncio.sleep(0.001)

    await asyncio.gather(engine(), *(signal(name, 5 * k - 150) for k, name in enumerate(names)))
    await flows.settle()
    outcomes = set()
    for name in names:
        execution = fold(await flows.history(name))
        step = execution.steps["wait"]
        assert step.state is StepState.COMPLETED
        late = execution.late_signals == ["s"]
        assert step.timed_out is late
        assert answers[name] == ("late" if late else "accepted"), name
        outcomes.add(late)
    return outcomes
