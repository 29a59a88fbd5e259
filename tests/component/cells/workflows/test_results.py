"""What steps answer reaches their workflow whole, up to a bound; what is longer fails the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from cells.domain.outcome import RESULT_TOO_LONG, CallError
from cells.domain.run import BODY_LIMIT, RESULT_LIMIT
from cells.execution.recording import Answer, completion_of
from cells.ports import Claim, Member
from tests.component.cells.store.world import ms, now
from tests.component.cells.workflows.harness import Flows

ONCE = {"retry": {"max_attempts": 1}}
FETCH = {"task_queue": "q", "type": "FETCH"}
#: Two bytes a letter: bounds count bytes.
WIDE = "\N{LATIN SMALL LETTER U WITH DIAERESIS}"


def text(more: Mapping[str, Any], **activity: Any) -> str:
    """A step, and one that reads what it answered."""
    steps = [
        {"id": "fetch", "activity": activity or FETCH, "compensate_with": "drop", **more},
        {
            "id": "store",
            "activity": {"task_queue": "next", "type": "STORE"},
            "input": "${steps.fetch.result.rows}",
        },
    ]
    undo = [{"id": "drop", "activity": {"task_queue": "undo", "type": "DROP"}}]
    return msgspec.json.encode(
        {"workflow": "report", "version": 1, "steps": steps, "compensations": undo}
    ).decode()


def rows(size: int) -> dict[str, str]:
    """A result of so many bytes of JSON."""
    empty = len(msgspec.json.encode({"rows": ""}))
    wide, rest = divmod(size - empty, 2)
    result = {"rows": WIDE * wide + "x" * rest}
    assert len(msgspec.json.encode(result)) == size
    return result


async def begun(flows: Flows, more: Mapping[str, Any] | None = None, **activity: Any) -> None:
    await flows.register(text(more or {}, **activity))
    await flows.start("report-1", "report")
    await flows.settle()


async def kept(flows: Flows) -> list[int]:
    """How many bytes attempts of runs keep of what was answered."""
    found = await flows.sql(
        b"SELECT octet_length(a ->> 'body') FROM runs, jsonb_array_elements(attempts) AS a"
    )
    return [size for (size,) in found if size is not None]


@pytest.mark.parametrize("size", [BODY_LIMIT, BODY_LIMIT + 1, 20_001, RESULT_LIMIT])
async def test_a_task_answers_its_workflow(flows: Flows, size: int) -> None:
    await begun(flows)
    result = rows(size)
    await flows.do("q", result=result)
    assert (await flows.execution("report-1")).steps["fetch"].result == result
    assert all(BODY_LIMIT - 1 <= n <= BODY_LIMIT for n in await kept(flows))
    (task,) = await flows.poll("next")
    assert task.claim.payload == msgspec.json.encode(result["rows"])


async def test_each_of_several_gets_its_own(flows: Flows) -> None:
    """Ended in one transaction, beside another one whose answer is short and a signal that waits."""
    branches = [[{"id": f"s{n}", "activity": FETCH}] for n in range(3)]
    steps = [{"id": "all", "parallel": {"branches": branches}}]
    await flows.register(msgspec.json.encode({"workflow": "wide", "version": 1, "steps": steps}).decode())
    await flows.start("wide-1", "wide")
    await flows.settle()
    await flows.signal("wide-1", name="anything", payload={"nul": "\0"})
    tasks = await flows.poll("q", count=3)
    results = {}
    for task, size in zip(tasks, (9_000, 100, 30_000), strict=True):
        activity = task.claim.definition.activity
        assert activity is not None
        results[activity.step] = rows(size)
    await flows.finish_all(
        [(task, rows(size)) for task, size in zip(tasks, (9_000, 100, 30_000), strict=True)]
    )
    await flows.settle()
    execution = await flows.execution("wide-1")
    assert {step: execution.steps[step].result for step in results} == results


async def test_a_task_that_answers_too_much_has_failed_and_is_undone(flows: Flows) -> None:
    await begun(flows)
    await flows.do("q", result=rows(RESULT_LIMIT + 1))
    failed = next(e for e in await flows.history("report-1") if e.type == "ACTIVITY_FAILED")
    assert failed.data == {"step": "fetch", "error": RESULT_TOO_LONG, "known": False}
    assert "65536 bytes" in RESULT_TOO_LONG
    ((state, count, reason),) = await flows.sql(
        b"SELECT state, jsonb_array_length(attempts), reason FROM runs WHERE attempts <> '[]'"
    )
    assert (state, count, reason) == ("FAILED", 1, RESULT_TOO_LONG), "not tried again"
    # It was done, so it is undone; and what undoes it may answer what it likes.
    await flows.do("undo", result=rows(RESULT_LIMIT + 1))
    assert (await flows.row("report-1")).status == "COMPENSATED"


async def called(flows: Flows, answer: Answer) -> None:
    """The step's call has been answered like that."""
    ((parent, at, ordinal, priority, shard, series, attempt),) = await flows.sql(
        b"SELECT parent_id, scheduled_for, ordinal, priority, shard, series, attempt FROM runs"
        b" WHERE state = 'DUE'"
    )
    member = Member(
        tenant_id=flows.tenant,
        parent_id=parent,
        scheduled_for=int(at.timestamp()),
        ordinal=ordinal,
        is_run=True,
        generation=series * 65536 + attempt,
        priority=priority,
        due_ms=0,
        shard=shard,
    )
    claim: Claim
    (claim,) = (await flows.world.claim(member)).claims
    at_ms = ms(now())
    completion = completion_of(claim, answer, started_ms=at_ms, finished_ms=at_ms, host="h", rand=0.0)
    applied = await flows.store.complete([completion], host_id=flows.world.host_id)
    assert applied.applied == [True]
    await flows.settle()


async def test_a_call_answers_its_workflow(flows: Flows) -> None:
    await begun(flows, target_id="tgt_report", path="/fetch")
    result = rows(RESULT_LIMIT)
    await called(flows, Answer(status=200, body=msgspec.json.encode(result).decode()))
    assert (await flows.execution("report-1")).steps["fetch"].result == result
    assert all(n <= BODY_LIMIT for n in await kept(flows))


async def test_a_call_that_answers_too_much_has_failed_and_is_undone(flows: Flows) -> None:
    await begun(flows, target_id="tgt_report", path="/fetch")
    body = msgspec.json.encode(rows(RESULT_LIMIT)).decode()
    await called(flows, Answer(status=200, body=body, cut=True))
    failed = next(e for e in await flows.history("report-1") if e.type == "ACTIVITY_FAILED")
    assert failed.data == {"step": "fetch", "error": RESULT_TOO_LONG, "known": False}
    await flows.do("undo")
    assert (await flows.row("report-1")).status == "COMPENSATED"


async def test_what_undoes_waits_until_nobody_can_be_at_it_any_more(flows: Flows) -> None:
    await begun(flows, {"timeout": "30s", **ONCE}, target_id="tgt_report", path="/fetch")
    before = ms(now())
    await called(flows, Answer(error=CallError.TIMEOUT))
    failed = next(e for e in await flows.history("report-1") if e.type == "ACTIVITY_FAILED")
    # The lease of a call is its timeout and a minute; behind it comes a margin.
    assert 30_000 + 60_000 < failed.data["not_before"] - before < 30_000 + 60_000 + 60_000
    ((state, due, timer),) = await flows.sql(
        b"SELECT state, due_at, timer_at FROM runs WHERE task_queue = 'undo'"
    )
    assert (state, ms(due), ms(timer)) == ("DUE", failed.data["not_before"], failed.data["not_before"])
    assert await flows.poll("undo") == []


@pytest.mark.parametrize("answer", [Answer(status=500), Answer(status=429)])
async def test_what_was_answered_is_over(flows: Flows, answer: Answer) -> None:
    await begun(flows, ONCE, target_id="tgt_report", path="/fetch")
    await called(flows, answer)
    failed = next(e for e in await flows.history("report-1") if e.type == "ACTIVITY_FAILED")
    assert "not_before" not in failed.data
    assert failed.data.get("known", True) is (answer.status == 429)
    if answer.status == 500:
        await flows.do("undo")
    assert (await flows.row("report-1")).status == "COMPENSATED"


@pytest.mark.parametrize("error", [CallError.CONNECTION, CallError.NAME])
async def test_what_was_never_sent_has_not_happened(flows: Flows, error: CallError) -> None:
    await begun(flows, ONCE, target_id="tgt_report", path="/fetch")
    await called(flows, Answer(error=error, reached=False))
    failed = next(e for e in await flows.history("report-1") if e.type == "ACTIVITY_FAILED")
    assert "known" not in failed.data
    row = await flows.row("report-1")
    assert row.status == "COMPENSATED"
    assert await flows.sql(b"SELECT unsure FROM workflows") == [(False,)]
