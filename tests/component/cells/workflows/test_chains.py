"""What is said to a workflow is said to its chain: executions that continue as new, or were reset."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg
import pytest

from cells.domain.workflow.events import Event
from cells.domain.workflow.execution import StepState
from cells.domain.workflow.parsing import parse_definition
from cells.ports import Conflict, KeyReused
from cells.workflow_ports import Taken, Turn, WorkflowRow
from cells.workflows.changing import Change, migration, reset
from tests.component.cells.workflows.harness import Flows
from tests.component.cells.workflows.test_children import text, work
from tests.waiting import eventually

LOOP = text(
    "loop",
    [
        work("work"),
        {"id": "again", "when": "${input.n < 2}", "continue_as_new": {"input": {"n": "${input.n + 1}"}}},
        {"id": "wait", "wait_for_signal": {"name": "go"}},
    ],
)
STEPS = text("steps", [work("a"), {"id": "wait", "wait_for_signal": {"name": "go"}}, work("b")])


def to_step(flows: Flows, name: str, step: str) -> Change:
    definition = parse_definition(flows.sources[name, 1], name=name, version=1)
    return reset(definition, step, "key:test", os.urandom(10))


async def changed(
    flows: Flows, change: Change, workflow_id: str = "w-1", key: tuple[str, bytes] | None = None
) -> tuple[WorkflowRow, bool]:
    """Change it, perhaps under a key (with the fingerprint of the body)."""
    found = await flows.store.change_workflow(
        flows.fence,
        workflow_id=workflow_id,
        change=change,
        host_id=flows.world.host_id,
        idempotency=None if key is None else ("POST reset", *key),
    )
    assert found is not None
    return found


async def put(flows: Flows, row: WorkflowRow, kind: str, **data: Any) -> None:
    """A word in an execution's inbox, as somebody put it there who did not know of the next one yet."""
    await flows.sql(
        b"INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data)"
        b" VALUES (%(tenant)s, %(run)s, %(shard)s, %(kind)s, %(data)s)",
        {
            "tenant": flows.tenant, "run": row.run_id, "shard": row.shard, "kind": kind,
            "data": msgspec.json.encode(data),
        },
    )  # fmt: skip


async def looped(flows: Flows) -> tuple[WorkflowRow, WorkflowRow]:
    """One that continued as new, and the one that goes on."""
    await flows.register(LOOP)
    first, _ = await flows.start("w-1", "loop", given={"n": 1})
    await flows.settle()
    await flows.do("q")
    second = await flows.row("w-1")
    assert second.run_id != first.run_id
    return await flows.row("w-1", first.run_id), second


async def test_a_signal_before_its_wait_goes_on_with_the_workflow(flows: Flows) -> None:
    await flows.register(LOOP)
    await flows.start("w-1", "loop", given={"n": 1})
    await flows.settle()
    taken = await flows.signal("w-1", "s-1", "go", payload=7)
    assert taken is not None
    assert taken.status == "accepted"
    await flows.settle()  # recorded, and nobody waits
    await flows.do("q")
    await flows.do("q")
    assert (await flows.row("w-1")).status == "COMPLETED"
    assert (await flows.execution("w-1")).steps["wait"].result == 7
    again = await flows.signal("w-1", "s-1", "go", payload=7)
    assert again is not None
    assert again.status == "duplicate", "the chain took it"


async def test_what_came_too_late_does_not_go_on(flows: Flows) -> None:
    timed = {"id": "first", "wait_for_signal": {"name": "go", "timeout": "1h"}, "on_timeout": "continue"}
    again = {"id": "again", "when": "${input.n < 2}", "continue_as_new": {"input": {"n": 2}}}
    await flows.register(text("timed", [timed, work("work"), again]))
    await flows.start("w-1", "timed", given={"n": 1})
    await flows.settle()
    await flows.later(3_600_000)
    late = await flows.signal("w-1", "s-1", "go")
    assert late is not None
    assert late.status == "late"
    await flows.settle()
    await flows.do("q")
    await flows.sql(b"UPDATE workflows SET decide_at = now() WHERE decide_at > now()")  # it is later here
    await flows.settle()
    assert (await flows.row("w-1")).next_seq > 2
    assert (await flows.execution("w-1")).steps["first"].state is StepState.OPEN, "it waits for another one"


async def test_words_for_one_that_goes_on_in_another_reach_that_one(flows: Flows) -> None:
    before, now = await looped(flows)
    await put(flows, before, "SIGNAL", name="go", signal_id="s-1", payload=1)
    await flows.settle()
    assert (await flows.events(await flows.row("w-1", before.run_id)))[-1].type == "CONTINUED_AS_NEW"
    told = [e.type for e in await flows.events(await flows.row("w-1", now.run_id))]
    assert told.count("SIGNAL_RECEIVED") == 1
    await put(flows, before, "CANCEL", reason="no longer needed")
    await flows.settle()
    assert (await flows.execution("w-1")).cancel_requested


async def test_words_for_a_chain_that_is_over_are_not_another_workflows(flows: Flows) -> None:
    before, _ = await looped(flows)
    await flows.tell("TERMINATE", "w-1")
    await flows.settle()
    other, created = await flows.start("w-1", "loop", given={"n": 5})
    assert created
    await put(flows, before, "CANCEL", reason="no longer needed")
    await put(flows, before, "SIGNAL", name="go", signal_id="s-1", payload=1)
    await flows.settle()
    assert (await flows.row("w-1")).run_id == other.run_id
    assert not (await flows.execution("w-1")).cancel_requested
    assert await flows.sql(b"SELECT count(*) FROM workflow_inbox") == [(0,)]


async def test_a_word_goes_after_one_that_continues_at_that_moment(
    flows: Flows, workflow_database_url: str
) -> None:
    _, now = await looped(flows)
    async with await psycopg.AsyncConnection.connect(workflow_database_url) as engine:
        # What the engine writes where it continues as new, but for the history.
        next_run = now.run_id.hex[:-4] + "0000"
        await engine.execute(
            b"UPDATE workflows SET status = 'CONTINUED_AS_NEW', holds_id = false,"
            b" closed_at = clock_timestamp() WHERE run_id = %(run)s",
            {"run": now.run_id},
        )
        await engine.execute(
            b"INSERT INTO workflows (tenant_id, run_id, workflow_id, shard, status, holds_id, definition,"
            b" version, input_hash, region_policy, next_seq, epoch, history_bytes, started_at, chain)"
            b" SELECT tenant_id, %(next)s::uuid, workflow_id, shard, 'RUNNING', true, definition, version,"
            b" input_hash, region_policy, 2, epoch, 0, clock_timestamp(), chain FROM workflows"
            b" WHERE run_id = %(run)s",
            {"run": now.run_id, "next": next_run},
        )
        signal = asyncio.create_task(flows.signal("w-1", "s-9", "go"))
        cancel = asyncio.create_task(flows.tell("CANCEL", "w-1"))

        async def both_wait() -> bool:
            return await flows.sql(
                b"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                b" AND wait_event_type = 'Lock'"
            ) == [(2,)]

        await eventually(both_wait, timeout=30)
        await engine.commit()
    taken, told = await signal, await cancel
    assert taken is not None
    assert told is not None
    assert (taken.run_id.hex, taken.status, told.run_id.hex) == (next_run, "accepted", next_run)
    words = await flows.sql(b"SELECT run_id, kind FROM workflow_inbox ORDER BY kind")
    assert [(run.hex, kind) for run, kind in words] == [(next_run, "CANCEL"), (next_run, "SIGNAL")]


async def test_a_signal_that_waits_survives_a_reset(flows: Flows) -> None:
    await flows.register(STEPS)
    await flows.start("w-1", "steps")
    await flows.settle()
    await flows.do("q")
    await flows.signal("w-1", "s-1", "go", payload=7)  # the engine has not looked yet
    await changed(flows, to_step(flows, "steps", "a"))
    await flows.settle()
    await flows.do("q")
    assert (await flows.execution("w-1")).steps["wait"].result == 7


async def test_the_same_signal_id_is_another_signal_for_another_workflow_of_that_id(flows: Flows) -> None:
    await flows.register(STEPS)
    for n in (1, 2):
        await flows.start("w-1", "steps", given=n)
        await flows.settle()
        taken, again = await flows.signal("w-1", "s-1", "go", n), await flows.signal("w-1", "s-1", "go", n)
        assert taken is not None
        assert again is not None
        assert (taken.status, again.status) == ("accepted", "duplicate")
        await flows.settle()
        await flows.do("q")
        await flows.do("q")
        assert (await flows.row("w-1")).status == "COMPLETED"
        assert (await flows.execution("w-1")).steps["wait"].result == n


async def test_a_reset_under_a_key_is_done_once(flows: Flows) -> None:
    await flows.register(STEPS)
    await flows.start("w-1", "steps")
    await flows.settle()
    await flows.do("q")
    first, replayed = await changed(flows, to_step(flows, "steps", "a"), key=("k", b"1"))
    assert not replayed
    await flows.settle()
    again, replayed = await changed(flows, to_step(flows, "steps", "a"), key=("k", b"1"))
    assert (again.run_id, replayed) == (first.run_id, True)
    with pytest.raises(KeyReused):
        await changed(flows, to_step(flows, "steps", "a"), key=("k", b"2"))
    at_once = await asyncio.gather(
        *(changed(flows, to_step(flows, "steps", "a"), key=("k-2", b"1")) for _ in range(2))
    )
    assert len({row.run_id for row, _ in at_once}) == 1
    assert sorted(replayed for _, replayed in at_once) == [False, True]
    assert await flows.sql(b"SELECT count(*) FROM workflows") == [(3,)]


async def test_a_reset_does_not_go_on_behind_what_was_undone(flows: Flows) -> None:
    undo = [{"id": f"undo_{s}", "activity": {"task_queue": "q", "type": "U"}} for s in "ab"]
    await flows.register(
        text(
            "saga",
            [work("a", compensate_with="undo_a"), work("b", compensate_with="undo_b"), work("c")],
            compensations=undo,
        )
    )
    await flows.start("w-1", "saga")
    await flows.settle()
    await flows.do("q")
    await flows.do("q")
    await flows.tell("CANCEL", "w-1")
    await flows.settle()
    await flows.do("q")
    await flows.do("q")
    assert (await flows.row("w-1")).status == "CANCELLED"
    with pytest.raises(Conflict, match="a came before c and was undone since; choose a or an earlier step"):
        await changed(flows, to_step(flows, "saga", "c"))
    row, _ = await changed(flows, to_step(flows, "saga", "a"))
    assert row.status == "RUNNING"


async def test_one_that_no_longer_holds_its_id_is_told_by_its_run(flows: Flows) -> None:
    await flows.register(STEPS)
    first, _ = await flows.start("w-1", "steps", given=1)
    await flows.settle()
    # As one that is opened again by a late success, when another one has begun.
    await flows.sql(b"UPDATE workflows SET holds_id = false, status = 'COMPENSATED', closed_at = now()")
    second, created = await flows.start("w-1", "steps", given=2)
    assert created
    await flows.sql(
        b"UPDATE workflows SET status = 'RUNNING', closed_at = NULL WHERE run_id = %(run)s",
        {"run": first.run_id},
    )
    told = await flows.store.tell_workflow(
        flows.fence,
        workflow_id="w-1",
        kind="TERMINATE",
        data=b"{}",
        actor="key:test",
        host_id=flows.world.host_id,
        run_id=first.run_id,
    )
    assert told is not None
    await flows.settle()
    rows = [await flows.row("w-1", run) for run in (first.run_id, second.run_id)]
    assert [row.status for row in rows] == ["TERMINATED", "RUNNING"]


async def test_a_change_that_looked_at_another_execution_is_refused(flows: Flows) -> None:
    before, _ = await looped(flows)
    newer = parse_definition(LOOP.replace('"version":1', '"version":2'))

    def change(taken: Taken, events: Sequence[Event]) -> Turn:
        return migration(newer, "key:test", checked=3, run_id=before.run_id)(taken, events)

    with pytest.raises(Conflict, match="another execution goes on in its place"):
        await changed(flows, change)
