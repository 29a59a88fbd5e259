"""Polls and the quota of running runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cells.ports import Retryable
from cells.timers.quota import RunningQuota
from tests.component.cells.api.harness import Cell
from tests.component.cells.api.test_workers import offered, poll

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_polls_hand_out_no_more_than_the_quota_of_running_runs_leaves(running: Cell) -> None:
    """The count is the gate's: what passes it, and what others poll for, is not handed out again."""
    api = running.api
    for _ in range(5):
        await offered(running)
    await running.place(api.tenant, running_runs=3)
    quota = RunningQuota(running.store, running.queue, running.clock)

    async def look() -> None:
        quota.forget()
        await quota.look(await running.store.list_tenants(), host_id=running.host.host_id)

    await look()
    # What was asked for in vain counts for nothing.
    assert await poll(api, "nothing-here", max_tasks=10) == []
    tasks = [*await poll(api, max_tasks=2), *await poll(api, max_tasks=10)]
    assert len(tasks) == 3
    assert await poll(api, max_tasks=10) == []
    await look()
    assert await poll(api, max_tasks=10) == []
    # Several who wait share what is left, and one that waits gets what comes free.
    waiting = asyncio.create_task(poll(api, max_tasks=10, wait_seconds=30))
    ended = {"epoch": tasks[0]["epoch"], "outcome": "SUCCEEDED"}
    await api.ok("POST", f"/v1/runs/{tasks[0]['run_id']}:complete", ended)
    await look()
    assert len(await waiting) == 1
    use = await running.store.running()
    assert use[api.tenant].runs == 3


async def test_polls_go_on_while_the_count_is_away(running: Cell) -> None:
    class Away:
        async def take_places(self, wanted: Any) -> Any:
            raise Retryable("valkey is away")

        def __getattr__(self, name: str) -> Any:
            return getattr(running.queue, name)

    await offered(running)
    api = running.with_engines(queue=Away())  # type: ignore[arg-type]
    assert len(await poll(api)) == 1
