"""What cannot be done for one execution, or for one tenant, keeps nobody else up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from cells.clock import SystemClock
from cells.observability.metrics import Metrics
from cells.store import engine as store_engine
from cells.store import slow_deciding
from cells.workflow_ports import Stepped, Taken, Turn
from cells.workflows.engine import TAKEN_ELSEWHERE_SECONDS, WorkflowEngine
from tests.component.cells.store.world import now
from tests.component.cells.workflows.harness import ALL, AheadPlanner, Flows

TEXT = """
workflow: waiter
version: 1
steps:
  - id: wait
    wait_for_signal: { name: go, timeout: 6s }
    on_timeout: continue
"""


class PoisonedPlanner(AheadPlanner):
    """Goes wrong with some workflows: while it decides, or so that it cannot be written."""

    def __init__(self, *, raises: Sequence[str] = (), unwritable: Sequence[str] = ()) -> None:
        super().__init__()
        self.raises = raises
        self.unwritable = unwritable

    def plan(self, taken: Taken) -> Turn | None:
        turn = super().plan(taken)
        if taken.row.workflow_id in self.raises:
            raise ZeroDivisionError(taken.row.workflow_id)
        if turn is not None and taken.row.workflow_id in self.unwritable:
            turn.error = "\0"
        return turn


class SlowPlanner(AheadPlanner):
    """While it decides about one workflow, PostgreSQL ends the transaction: it has been idle for too long."""

    def __init__(self, url: str, slow: str) -> None:
        super().__init__()
        self.url = url
        self.slow = slow
        self.decided = 0

    def plan(self, taken: Taken) -> Turn | None:
        if taken.row.workflow_id == self.slow:
            self.decided += 1
            with psycopg.connect(self.url, autocommit=True) as sql:
                sql.execute(
                    b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    b" WHERE datname = current_database() AND state = 'idle in transaction'"
                )
        return super().plan(taken)


async def look(flows: Flows, limit: int = 200) -> Stepped:
    flows.planner.begin()
    return await flows.store.step_workflows(
        flows.planner, shards=ALL, but_not=(), limit=limit, host_id=flows.world.host_id
    )


async def waiters(flows: Flows, count: int) -> list[str]:
    """So many that wait for a signal."""
    await flows.register(TEXT)
    names = [f"waiter-{n}" for n in range(count)]
    for name in names:
        await flows.start(name, "waiter", given=name)
    await flows.settle()
    return names


async def statuses(flows: Flows, names: Sequence[str]) -> list[str]:
    return [(await flows.row(name)).status for name in names]


async def is_put_off(flows: Flows, name: str) -> bool:
    at = (await flows.row(name)).decide_at
    return at is not None and 50 < (at - now()).total_seconds() < 70


@pytest.mark.parametrize("state", ["SUSPENDED", "SEALED"])
async def test_what_waits_of_a_tenant_that_is_not_active_is_in_nobodys_way(flows: Flows, state: str) -> None:
    names = await waiters(flows, 5)
    for name in names:
        await flows.signal(name, signal_id=f"s-{name}", name="go")
    await flows.sql(b"UPDATE workflows SET timer_at = now() - interval '1 day', decide_at = timer_at")
    await flows.world.put_tenant(flows.fence, state, version=2)
    other = Flows(world=replace(flows.world, a=flows.world.b))
    assert (await look(other)).taken == 0
    assert await flows.store.next_workflow_timer(ALL) is None
    (name,) = await waiters(other, 1)
    timer_at = (await other.row(name)).timer_at
    assert timer_at is not None
    assert await flows.store.next_workflow_timer(ALL) == timer_at
    assert await flows.store.next_workflow_timer(ALL, [other.tenant]) is None
    await other.signal(name, name="go")
    assert [t.taken.row.tenant_id for t in (await look(other, limit=1)).turns] == [other.tenant]
    assert await statuses(other, [name]) == ["COMPLETED"]
    await other.start("late", "waiter", given=1)
    await other.sql(b"UPDATE workflows SET timer_at = now() - interval '1 s' WHERE workflow_id = 'late'")
    assert (await look(other, limit=1)).taken == 1


async def test_what_others_hold_is_not_looked_for_without_a_pause(flows: Flows) -> None:
    (name,) = await waiters(flows, 1)
    await flows.sql(b"UPDATE workflows SET timer_at = now() - interval '1 s'")
    host = await flows.world.store.register_host(name="engine-1", roles=["engine"], lease_ms=60_000)
    agent: Any = SimpleNamespace(host_id=host.host_id)
    none: Any = None
    bell: Any = SimpleNamespace(ear=SimpleNamespace)  # nobody rings
    service = WorkflowEngine(flows.store, none, bell, agent, SystemClock(), Metrics())
    async with flows.world.sql.transaction():
        await flows.sql(b"SELECT FROM workflows FOR UPDATE")
        pause = await service._round()
    assert pause >= TAKEN_ELSEWHERE_SECONDS
    assert await statuses(flows, [name]) == ["RUNNING"]


@pytest.mark.parametrize("how", ["raises", "unwritable"])
async def test_one_that_goes_wrong_is_put_off_alone(flows: Flows, how: str) -> None:
    names = await waiters(flows, 7)
    bad = names[3]
    flows.planner = PoisonedPlanner(**cast(Any, {how: [bad]}))
    for name in names:
        await flows.signal(name, signal_id=f"s-{name}", name="go")
    stepped = await look(flows)
    assert len(stepped.turns) == len(names)
    assert await statuses(flows, names) == ["RUNNING" if n == bad else "COMPLETED" for n in names]
    assert await is_put_off(flows, bad)
    assert flows.planner.put_offs == 1
    assert (await look(flows)).taken == 0
    # Nothing of it is lost: who can do it does it when its time has come.
    flows.planner = AheadPlanner()
    await flows.sql(b"UPDATE workflows SET decide_at = now() WHERE decide_at IS NOT NULL")
    await flows.settle()
    assert await statuses(flows, [bad]) == ["COMPLETED"]
    assert (await flows.execution(bad)).steps["wait"].timed_out is False


@pytest.mark.parametrize("known", [False, True], ids=["halved", "known"])
async def test_one_that_takes_too_long_is_put_off_and_keeps_no_other_up(
    flows: Flows, workflow_database_url: str, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    names = await waiters(flows, 7)
    bad = names[3]
    for name in names:
        await flows.signal(name, signal_id=f"s-{name}", name="go")
    monkeypatch.setattr(slow_deciding, "TRANSACTION_SECONDS", 0.0)
    if known:
        # Its decision alone takes longer than all may take together.
        monkeypatch.setattr(slow_deciding, "PLANNING_SECONDS", 0.002)
    planner = flows.planner = SlowPlanner(workflow_database_url, bad)
    await flows.settle()
    assert await statuses(flows, names) == ["RUNNING" if n == bad else "COMPLETED" for n in names]
    assert await is_put_off(flows, bad)
    assert planner.put_offs == 1
    assert (planner.decided == 1) is known
    told = await flows.sql(b"SELECT subject, data FROM events WHERE type = 'workflow.put_off'")
    assert [subject for subject, _ in told] == [bad]
    # The next time it is put off for longer; that is told once.
    await flows.sql(b"UPDATE workflows SET decide_at = now() WHERE decide_at IS NOT NULL")
    await flows.settle()
    at = (await flows.row(bad)).decide_at
    assert at is not None
    assert (at - now()).total_seconds() > 110
    assert await flows.sql(b"SELECT count(*) FROM events WHERE type = 'workflow.put_off'") == [(1,)]
    flows.planner = AheadPlanner()
    await flows.sql(b"UPDATE workflows SET decide_at = now() WHERE decide_at IS NOT NULL")
    await flows.settle()
    assert await statuses(flows, [bad]) == ["COMPLETED"]


async def test_a_history_that_cannot_be_read_keeps_no_other_up(flows: Flows) -> None:
    names = await waiters(flows, 3)
    for name in names:
        await flows.signal(name, signal_id=f"s-{name}", name="go")
    await flows.sql(b"ALTER TABLE workflow_events DISABLE TRIGGER immutable")
    bad = (await flows.row(names[1])).run_id
    await flows.sql(b"UPDATE workflow_events SET data = 'x' WHERE run_id = %(run)s", {"run": bad})
    await flows.sql(b"ALTER TABLE workflow_events ENABLE TRIGGER immutable")
    flows.planner = AheadPlanner()
    await flows.settle()
    assert await statuses(flows, names) == ["COMPLETED", "RUNNING", "COMPLETED"]
    assert await is_put_off(flows, names[1])


async def test_words_for_what_cannot_be_read_are_not_found_again_at_once(flows: Flows) -> None:
    names = await waiters(flows, 1)
    await flows.store.put_definition(
        flows.fence, name="odd", version=1, source="[", actor="key:test", host_id=flows.world.host_id
    )
    flows.sources["odd", 1] = "["
    await flows.start("odd-1", "odd")
    for n in range(5):
        await flows.signal("odd-1", signal_id=f"s-{n}", name="go")
    await flows.sql(b"UPDATE workflows SET timer_at = now() WHERE workflow_id = 'odd-1'")
    assert (await look(flows)).taken == 1
    assert await is_put_off(flows, "odd-1")
    assert (await look(flows)).taken == 0
    await flows.signal(names[0], signal_id="s", name="go")
    assert (await look(flows, limit=1)).taken == 1
    assert await statuses(flows, names) == ["COMPLETED"]
    (left,) = await flows.sql(b"SELECT count(*) FROM workflow_inbox")
    assert left == (5,)


async def test_a_round_reads_no_more_histories_than_fit(
    flows: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = await waiters(flows, 3)
    for name in names:
        await flows.signal(name, signal_id=f"s-{name}", name="go")
    monkeypatch.setattr(store_engine, "HISTORY_BYTES", 1)
    flows.planner = AheadPlanner()
    assert [(await look(flows)).taken for _ in range(4)] == [1, 1, 1, 0]
    assert flows.planner.misses == 3
    assert await statuses(flows, names) == ["COMPLETED"] * 3


async def test_a_round_reads_no_more_words_than_fit(flows: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    names = await waiters(flows, 2)
    for name in names:
        for n in range(3):
            await flows.signal(name, signal_id=f"s-{name}-{n}", name="go" if n == 2 else "noise")
    # They wait since long before their timers, which are due by now.
    await flows.sql(b"ALTER TABLE workflow_events DISABLE TRIGGER immutable")
    await flows.sql(b"UPDATE workflow_events SET at = at - interval '1 minute'")
    await flows.sql(b"ALTER TABLE workflow_events ENABLE TRIGGER immutable")
    await flows.sql(b"UPDATE workflow_inbox SET at = at - interval '59 s'")
    await flows.sql(b"UPDATE workflows SET timer_at = timer_at - interval '1 minute'")
    flows.planner = AheadPlanner()
    monkeypatch.setattr(store_engine, "INBOX_BYTES", 1)
    first = await look(flows)
    assert [len(turn.taken.inbox) for turn in first.turns] == [1]
    await flows.settle()
    assert await statuses(flows, names) == ["COMPLETED"] * 2
    for name in names:
        assert (await flows.execution(name)).steps["wait"].timed_out is False
