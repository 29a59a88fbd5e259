"""signal-race: a signal against the timer of its wait, in the same instant, 1,000 times: one of them
wins, once; whoever signalled is told which; each history could have been made without a race."""

from __future__ import annotations

import asyncio
from typing import Any

from cells.domain.workflow.folding import fold
from tests.component.cells.store.world import now
from tests.component.cells.workflows.harness import Flows
from tests.proofs.engines_only import flows_on_fresh_engines

RACES = 1_000
#: Signals come from so long before their timer's time until so long behind it (milliseconds).
EARLY_MS, LATE_MS = 150, 50
TEXT = """
workflow: race
version: 1
steps:
  - id: wait
    wait_for_signal: { name: go, timeout: 30s }
    on_timeout: continue
"""


async def races(flows: Flows, count: int) -> dict[str, Any]:
    """So many races, one after the other and beside each other."""
    await flows.register(TEXT)
    names = [f"race-{n}" for n in range(count)]
    for at in range(0, count, 8):
        # Decided one after the other, so that not all timers have one time.
        await asyncio.gather(*(flows.start(name, "race", given=name) for name in names[at : at + 8]))
        await flows.settle()
    timers = {name: (await flows.row(name)).timer_at for name in names}
    answers: dict[str, str] = {}
    door = asyncio.Semaphore(8)

    async def signal(name: str, n: int) -> None:
        timer_at = timers[name]
        assert timer_at is not None
        jitter_ms = n * 7 % (EARLY_MS + LATE_MS) - EARLY_MS
        await asyncio.sleep(max(0.0, (timer_at - now()).total_seconds() + jitter_ms / 1000))
        async with door:
            taken = await flows.signal(name, signal_id="s", name="go")
        assert taken is not None
        answers[name] = taken.status

    async def engine() -> None:
        while len(answers) < count:
            await flows.settle(rounds=10_000)
            await asyncio.sleep(0.001)

    await asyncio.gather(engine(), *(signal(name, n) for n, name in enumerate(names)))
    await flows.settle(rounds=10_000)
    won_by_signal = won_by_timer = 0
    wrong: list[str] = []
    for name in names:
        execution = fold(await flows.history(name))  # one that a race-free run could have made
        late = execution.late_signals == ["s"]
        fits = execution.steps["wait"].timed_out is late and execution.status == "COMPLETED"
        if not fits or answers[name] != ("late" if late else "accepted"):
            wrong.append(name)
        won_by_timer += late
        won_by_signal += not late
    return {
        "holds": not wrong and won_by_signal > 0 and won_by_timer > 0,
        "races": count,
        "won_by_signal": won_by_signal,
        "won_by_timer": won_by_timer,
        "wrong": wrong[:10],
    }


def main(count: int = RACES) -> dict[str, Any]:
    return flows_on_fresh_engines(lambda flows: races(flows, count))
