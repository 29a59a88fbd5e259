"""Children, successors, branches and maps, over the real store."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cells.api.pulled import Outcome
from cells.domain import ids
from cells.domain.workflow.execution import StepState
from tests.component.cells.workflows.harness import Flows


def text(name: str, steps: list[Any], **more: Any) -> str:
    return msgspec.json.encode({"workflow": name, "version": 1, "steps": steps, **more}).decode()


def work(name: str, queue: str = "q", **more: Any) -> dict[str, Any]:
    return {"id": name, "activity": {"task_queue": queue, "type": name.upper()}, **more}


CHILD = text(
    "child",
    [work("inner", "inner", compensate_with="undo_inner")],
    compensations=[{"id": "undo_inner", "activity": {"task_queue": "inner", "type": "UNDO"}}],
)


def parent(*, wait: bool = True) -> str:
    start = {"definition": "child", "input": {"n": "${input.n}"}, "wait": wait}
    return text(
        "parent",
        [
            work("first", compensate_with="undo_first"),
            {"id": "sub", "start_workflow": start},
            work("last", input="${steps.sub.result}"),
        ],
        compensations=[{"id": "undo_first", "activity": {"task_queue": "q", "type": "UNDO"}}],
    )


async def begun(flows: Flows, *, wait: bool = True) -> str:
    """A parent whose child has begun; the child's workflow id."""
    await flows.register(CHILD)
    await flows.register(parent(wait=wait))
    await flows.start("p-1", "parent", given={"n": 7})
    await flows.settle()
    await flows.do("q")
    execution = await flows.execution("p-1")
    child = execution.steps["sub"].child
    assert child is not None
    return child


async def test_a_parent_waits_for_its_child_and_sees_its_result(flows: Flows) -> None:
    child = await begun(flows)
    row = await flows.row(child)
    assert row.parent is not None
    assert (row.status, row.parent["workflow_id"], row.parent["step"]) == ("RUNNING", "p-1", "sub")
    assert await flows.poll("q") == [], "the parent waits"
    task = await flows.do("inner", result={"made": 3})
    assert task.claim.payload == b'{"n":7}'
    last = await flows.do("q")
    assert last.claim.payload == b'{"made":3}'
    assert (await flows.row("p-1")).status == "COMPLETED"


async def test_a_parent_may_go_on_beside_its_child(flows: Flows) -> None:
    child = await begun(flows, wait=False)
    last = await flows.do("q")
    assert msgspec.json.decode(last.claim.payload or b"") == {"workflow_id": child}
    assert (await flows.row("p-1")).status == "COMPLETED"
    assert (await flows.row(child)).status == "RUNNING"
    await flows.do("inner")
    assert (await flows.row(child)).status == "COMPLETED"


async def test_a_child_that_fails_fails_its_parent_which_undoes(flows: Flows) -> None:
    child = await begun(flows)
    await flows.do("inner", Outcome.FAILED, error="broken", retryable=False)
    assert (await flows.row(child)).status == "COMPENSATED"
    assert (await flows.row("p-1")).status == "COMPENSATING"
    undo = await flows.do("q")
    assert undo.claim.idempotency_key == "p-1:undo_first"
    row = await flows.row("p-1")
    assert (row.status, row.error) == ("COMPENSATED", "broken")


async def test_a_cancel_reaches_a_child_that_nobody_works_for(flows: Flows) -> None:
    child = await begun(flows)
    await flows.tell("CANCEL", "p-1", actor="key:test")
    await flows.settle()
    assert (await flows.row(child)).status == "CANCELLED"
    assert await flows.poll("inner") == []
    undo = await flows.do("q")
    assert undo.claim.idempotency_key == "p-1:undo_first"
    assert (await flows.row("p-1")).status == "CANCELLED"


async def test_a_cancelled_child_undoes_before_its_parent_does(flows: Flows) -> None:
    child = await begun(flows)
    (task,) = await flows.poll("inner")
    await flows.tell("CANCEL", "p-1", actor="key:test")
    await flows.settle()
    assert (await flows.row(child)).status == "COMPENSATING"
    assert await flows.poll("q") == [], "the parent waits until its child has undone"
    assert await flows.finish(task)
    await flows.settle()
    assert await flows.poll("q") == []
    await flows.do("inner")
    assert (await flows.row(child)).status == "CANCELLED"
    await flows.do("q")
    assert (await flows.row("p-1")).status == "CANCELLED"


async def test_a_terminated_parent_terminates_its_child(flows: Flows) -> None:
    child = await begun(flows)
    await flows.tell("TERMINATE", "p-1", actor="key:test")
    await flows.settle()
    assert (await flows.row("p-1")).status == "TERMINATED"
    assert (await flows.row(child)).status == "TERMINATED"


async def test_without_its_definition_a_child_fails_the_step(flows: Flows) -> None:
    await flows.register(parent())
    await flows.start("p-1", "parent", given={"n": 1})
    await flows.settle()
    await flows.do("q")
    await flows.do("q")
    row = await flows.row("p-1")
    assert (row.status, row.error) == ("COMPENSATED", "there is no definition child")


COUNTER = text(
    "counter",
    [
        work("step", input="${input}"),
        {
            "id": "again",
            "when": "${input.n < 3}",
            "continue_as_new": {"input": {"n": "${input.n + 1}"}},
        },
    ],
)


async def test_it_goes_on_as_new_with_an_empty_history_and_keys_of_its_own(flows: Flows) -> None:
    await flows.register(COUNTER)
    first, _ = await flows.start("c-1", "counter", given={"n": 1})
    await flows.settle()
    keys = []
    for n in (1, 2, 3):
        task = await flows.do("q")
        assert task.claim.payload == msgspec.json.encode({"n": n})
        keys.append(task.claim.idempotency_key)
    assert keys[0] == "c-1:step"
    assert len(set(keys)) == 3
    last = await flows.row("c-1")
    assert (last.status, last.next_seq < 8) == ("COMPLETED", True)
    before = await flows.row("c-1", first.run_id)
    assert before.status == "CONTINUED_AS_NEW"
    assert await flows.sql(b"SELECT count(*) FROM workflows WHERE holds_id") == [(0,)]
    again, created = await flows.start("c-1", "counter", given={"n": 1})
    assert (created, again.run_id) == (False, last.run_id), "the same start means the same workflow"


async def test_a_signal_behind_continue_as_new_is_the_successors(flows: Flows) -> None:
    loop = text(
        "loop",
        [
            {"id": "wait", "wait_for_signal": {"name": "go"}},
            {"id": "again", "when": "${input.n < 2}", "continue_as_new": {"input": {"n": 2}}},
        ],
    )
    await flows.register(loop)
    await flows.start("l-1", "loop", given={"n": 1})
    await flows.settle()
    await flows.signal("l-1", "s-1", "go")
    await flows.settle()
    assert (await flows.row("l-1")).status == "RUNNING"
    await flows.signal("l-1", "s-2", "go")
    await flows.settle()
    assert (await flows.row("l-1")).status == "COMPLETED"


async def test_the_first_failure_of_a_branch_stops_and_undoes_the_others(flows: Flows) -> None:
    await flows.register(
        text(
            "both",
            [
                {
                    "id": "both",
                    "parallel": {
                        "branches": [
                            [work("a", "a", compensate_with="undo_a"), work("c", "c")],
                            [work("b", "b")],
                        ]
                    },
                }
            ],
            compensations=[{"id": "undo_a", "activity": {"task_queue": "a", "type": "UNDO"}}],
        )
    )
    await flows.start("b-1", "both")
    await flows.settle()
    await flows.do("a")
    (held,) = await flows.poll("c")
    await flows.do("b", Outcome.FAILED, error="no", retryable=False)
    assert (await flows.row("b-1")).status == "COMPENSATING"
    assert await flows.poll("a") == [], "what is under way is waited for"
    assert await flows.finish(held, Outcome.CANCELLED)
    await flows.settle()
    await flows.do("a")
    assert (await flows.row("b-1")).status == "COMPENSATED"


@pytest.mark.parametrize("at_once", [1, 3])
async def test_a_map_has_so_many_under_way_and_no_more(flows: Flows, at_once: int) -> None:
    each = {
        "over": "${input.items}",
        "as": "item",
        "steps": [work("ship", input="${item}")],
        "max_concurrency": at_once,
    }
    await flows.register(text("many", [{"id": "all", "map": each}], output="${steps.all.result}"))
    await flows.start("m-1", "many", given={"items": list(range(7))})
    await flows.settle()
    done = 0
    keys = set()
    while done < 7:
        tasks = await flows.poll("q", 20)
        assert len(tasks) == min(at_once, 7 - done)
        for task in tasks:
            keys.add(task.claim.idempotency_key)
            assert await flows.finish(task, result=msgspec.json.decode(task.claim.payload or b"") * 10)
        await flows.settle()
        done += len(tasks)
    row = await flows.row("m-1")
    assert row.status == "COMPLETED"
    assert len(keys) == 7
    assert (await flows.execution("m-1")).result == [n * 10 for n in range(7)]


async def test_a_child_that_cannot_begin_fails_its_step_even_where_nobody_waits_for_it(flows: Flows) -> None:
    await flows.register(CHILD)
    await flows.register(parent(wait=False))
    row, _ = await flows.start("p-1", "parent", given={"n": 7})
    await flows.start(f"p-1-{ids.encode(ids.WORKFLOW_RUN, row.run_id)}-sub", "child", given="another")
    await flows.settle()
    await flows.do("q")
    execution = await flows.execution("p-1")
    record = execution.steps["sub"]
    assert (record.state, record.error) == (StepState.FAILED, "its workflow id is in use")
    assert not record.may_have_happened
    undo = await flows.do("q")  # what began behind it was cancelled; what came before is undone
    assert undo.claim.definition.activity is not None
    assert undo.claim.definition.activity.type == "UNDO"
    assert (await flows.row("p-1")).status == "COMPENSATED"
