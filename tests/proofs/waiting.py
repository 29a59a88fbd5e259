"""waiting: 10,000 workflows that wait for a signal cost nothing while they wait: no row is written, the
engine's look takes as long as with none, whatever statistics PostgreSQL has of them; and each goes on when
its signal comes."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from tests.component.cells.workflows.harness import ALL, Flows
from tests.proofs.engines_only import flows_on_fresh_engines

WAITING = 10_000
LOOKS = 200
#: Milliseconds that a look may take longer than with nobody waiting.
ALLOWED_MS = 2.0
TEXT = """
workflow: waiter
version: 1
steps:
  - id: wait
    wait_for_signal: { name: go, timeout: 30d }
"""


async def _look_ms(flows: Flows) -> float:
    """What one look of an idle engine takes, in the middle."""
    took = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        stepped = await flows.store.step_workflows(
            flows.planner, shards=ALL, but_not=(), limit=200, host_id=flows.world.host_id
        )
        await flows.store.next_workflow_timer(ALL, within_ms=1000)
        took.append((time.perf_counter() - began) * 1000)
        assert stepped.taken == 0
    return statistics.median(took)


async def _state(flows: Flows) -> list[Any]:
    """Where every row of an execution is, and in which version: any write would show."""
    tables = (b"workflows", b"workflow_events", b"workflow_inbox", b"journal")
    return [
        await flows.sql(
            b"SELECT count(*), coalesce(max(xmin::text::bigint), 0), sum(hashtext(ctid::text)) FROM " + table
        )
        for table in tables
    ]


async def wait(flows: Flows, count: int) -> dict[str, Any]:
    """So many workflows, waiting."""
    await flows.register(TEXT)
    alone = await _look_ms(flows)
    for at in range(0, count, 10):
        names = [f"waiter-{n}" for n in range(at, min(at + 10, count))]
        await asyncio.gather(*(flows.start(name, "waiter", given=name) for name in names))
    await flows.settle(rounds=10_000)
    before = await _state(flows)
    beside = await _look_ms(flows)
    after = await _state(flows)
    await flows.sql(b"ANALYZE workflows, workflow_inbox")
    analysed = await _look_ms(flows)
    for n in range(0, count, count // 10):
        await flows.signal(f"waiter-{n}", signal_id="s", name="go")
    await flows.settle(rounds=10_000)
    went_on = [(await flows.row(f"waiter-{n}")).status for n in range(0, count, count // 10)]
    return {
        "holds": before == after
        and max(beside, analysed) < alone + ALLOWED_MS
        and set(went_on) == {"COMPLETED"},
        "waiting": count,
        "look_ms_with_none": round(alone, 3),
        "look_ms_beside_them": round(beside, 3),
        "look_ms_with_statistics": round(analysed, 3),
        "rows_written_while_waiting": before != after,
        "went_on": len(went_on),
    }


def main(count: int = WAITING) -> dict[str, Any]:
    return flows_on_fresh_engines(lambda flows: wait(flows, count))
