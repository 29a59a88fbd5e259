"""Activities from the dead letters: what is done again is undone again, or is not done."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest

from cells.api.pulled import Outcome
from cells.bulk import LetterFilter
from cells.domain.ids import RunKey
from cells.ports import BulkAction, Conflict
from cells.store.letters import CLOSED
from tests.component.cells.store.world import now
from tests.component.cells.workflows.harness import Flows
from tests.component.cells.workflows.test_children import text, work

SAGA = text(
    "saga",
    [work("a", compensate_with="undo_a"), work("b", compensate_with="undo_b")],
    compensations=[
        {"id": f"undo_{s}", "activity": {"task_queue": "undo", "type": "U"}, "retry": {"max_attempts": 1}}
        for s in "ab"
    ],
)


async def letter(flows: Flows) -> RunKey:
    ((parent, at, ordinal),) = await flows.sql(
        b"SELECT parent_id, scheduled_for, ordinal FROM dlq"
        b" WHERE state = 'OPEN' AND reason <> 'COMPENSATION_STUCK'"
    )
    return RunKey(parent_id=parent, scheduled_for=at, ordinal=ordinal)


async def redrive(flows: Flows, key: RunKey) -> None:
    await flows.store.redrive_letter(flows.fence, key=key, actor="key:test", host_id=flows.world.host_id)


async def offered(flows: Flows) -> None:
    """What was redriven is a task of its queue."""
    await flows.sql(b"UPDATE runs SET state = 'READY', timer_at = NULL WHERE state = 'DUE'")


async def undone(flows: Flows) -> None:
    """An order whose second step failed, and whose first one was undone."""
    await flows.register(SAGA)
    await flows.start("w-1", "saga")
    await flows.settle()
    await flows.do("q")
    await flows.do("q", Outcome.FAILED, error="declined", retryable=False)
    await flows.do("undo")
    assert (await flows.row("w-1")).status == "COMPENSATED"


async def test_an_activity_of_a_closed_workflow_is_not_done_again(flows: Flows) -> None:
    await undone(flows)
    key = await letter(flows)
    with pytest.raises(Conflict, match="nobody would undo"):
        await redrive(flows, key)
    assert await letter(flows) == key
    assert await flows.sql(b"SELECT state FROM runs WHERE ordinal = %(n)s", {"n": key.ordinal}) == [
        ("FAILED",)
    ]


async def test_many_at_once_neither_and_each_says_why(flows: Flows) -> None:
    await undone(flows)
    selection = await flows.world.store.select_letters(
        flows.fence,
        selection_id=uuid.uuid4(),
        action=BulkAction.REDRIVE,
        where=LetterFilter(),
        described=b"{}",
        expires_at=now() + timedelta(hours=1),
        actor="key:test",
        host_id=flows.world.host_id,
    )
    operation, _ = await flows.world.store.start_operation(
        flows.fence,
        selection_id=selection.selection_id,
        operation_id=uuid.uuid4(),
        max_per_second=100,
        actor="key:test",
        host_id=flows.world.host_id,
    )
    step = await flows.world.store.step_operation(host_id=flows.world.host_id, now=now())
    assert step is not None
    done = step.operation
    assert (done.operation_id, done.state, done.done, done.failed) == (operation.operation_id, "DONE", 0, 1)
    assert [reason for _, reason in done.failures] == [CLOSED]


async def test_while_it_is_open_what_is_done_again_is_undone_again(flows: Flows) -> None:
    await flows.register(SAGA)
    await flows.start("w-1", "saga")
    await flows.settle()
    await flows.do("q")
    await flows.do("q", Outcome.FAILED, error="declined", retryable=False)
    assert (await flows.row("w-1")).status == "COMPENSATING"
    await redrive(flows, await letter(flows))
    await offered(flows)
    (task,) = await flows.poll("q")
    await flows.do("undo")
    assert (await flows.row("w-1")).status == "COMPENSATED"
    assert await flows.finish(task)  # it succeeds when all is over
    await flows.settle()
    assert (await flows.row("w-1")).status == "COMPENSATING"
    undo = await flows.do("undo")
    assert undo.claim.definition.activity is not None
    assert undo.claim.definition.activity.step == "undo_b"
    assert (await flows.row("w-1")).status == "COMPENSATED"


async def test_a_compensation_may_be_done_again_when_all_is_over(flows: Flows) -> None:
    await flows.register(SAGA)
    await flows.start("w-1", "saga")
    await flows.settle()
    await flows.do("q")
    await flows.do("q", Outcome.FAILED, error="declined", retryable=False)
    await flows.do("undo", Outcome.FAILED, error="down", retryable=False)
    assert (await flows.row("w-1")).status == "COMPENSATION_STUCK"
    await flows.tell("RESOLVE", "w-1", action="close", note="by hand")
    await flows.settle()
    assert (await flows.row("w-1")).status == "FAILED"
    keys = [
        RunKey(parent_id=parent, scheduled_for=at, ordinal=ordinal)
        for parent, at, ordinal in await flows.sql(
            b"SELECT d.parent_id, d.scheduled_for, d.ordinal FROM dlq d"
            b" JOIN runs r USING (tenant_id, parent_id, scheduled_for, ordinal)"
            b" WHERE d.state = 'OPEN' ORDER BY d.ordinal"
        )
    ]
    assert len(keys) == 2
    with pytest.raises(Conflict):
        await redrive(flows, keys[0])
    await redrive(flows, keys[1])
    await offered(flows)
    await flows.do("undo")
    assert (await flows.execution("w-1")).steps["a"].undone
