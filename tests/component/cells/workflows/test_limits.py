"""Limits: quotas, floods of signals, long histories, exact meters, what people are to compare."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cells.api.pulled import Outcome
from cells.domain.workflow.events import EVENT_LIMIT, FULL_BYTES
from cells.ports import Conflict, QuotaExceeded
from cells.store.workflow_words import WAITING_LIMIT
from cells.workflow_ports import SignalsWait, WorkflowFilter
from tests.component.cells.store.world import now
from tests.component.cells.workflows.harness import ALL, Flows

WAITS = """
workflow: waits
version: 1
steps:
  - id: wait
    wait_for_signal: { name: go, timeout: 30d }
    on_timeout: continue
"""


async def test_past_pending_timers_no_workflow_starts(flows: Flows) -> None:
    await flows.register(WAITS)
    await flows.world.put_tenant(flows.fence, version=2, pending_timers=2)
    for n in (1, 2):
        await flows.start(f"w-{n}", "waits")
        await flows.settle()
    with pytest.raises(QuotaExceeded, match="pending_timers"):
        await flows.start("w-3", "waits")
    again, created = await flows.start("w-1", "waits")
    assert (again.workflow_id, created) == ("w-1", False), "what is there is answered all the same"
    await flows.signal("w-1", "s", "go")
    await flows.settle()
    _, created = await flows.start("w-3", "waits")
    assert created


async def test_a_flooded_execution_takes_so_many_signals_at_once(flows: Flows) -> None:
    await flows.register(WAITS)
    await flows.start("flooded", "waits")
    await flows.start("quiet", "waits")
    await flows.settle()
    for n in range(WAITING_LIMIT):
        await flows.signal("flooded", f"s-{n}", "noise")
    with pytest.raises(SignalsWait):
        await flows.signal("flooded", "one-more", "noise")
    await flows.signal("quiet", "s", "go")
    # One round is enough for the quiet one, whatever waits before it.
    flows.planner.begin()
    await flows.store.step_workflows(
        flows.planner, shards=ALL, but_not=(), limit=200, host_id=flows.world.host_id
    )
    assert (await flows.row("quiet")).status == "COMPLETED"
    await flows.settle()
    assert (await flows.signal("flooded", "one-more", "noise")) is not None
    await flows.settle()
    assert (await flows.told("flooded")).count("SIGNAL_RECEIVED") == WAITING_LIMIT + 1


async def test_a_history_is_warned_of_and_ends_at_its_limit(flows: Flows) -> None:
    await flows.register(WAITS)
    await flows.start("long", "waits")
    await flows.settle()
    row = await flows.row("long")
    signal = msgspec.json.encode({"name": "noise", "signal_id": "s", "payload": None})
    await flows.sql(
        b"INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data)"
        b" SELECT %(tenant)s, %(run)s, %(shard)s, 'SIGNAL', %(data)s FROM generate_series(1, %(n)s)",
        {
            "tenant": flows.tenant, "run": row.run_id, "shard": row.shard, "data": signal,
            "n": EVENT_LIMIT - 1_000,
        },
    )  # fmt: skip
    await flows.settle(rounds=100)
    events = {t for (t,) in await flows.sql(b"SELECT type FROM events")}
    assert "workflow.history_near_limit" in events
    row = await flows.row("long")
    assert (row.status, row.error) == ("COMPENSATED", "the history reached its limit")
    assert row.next_seq < EVENT_LIMIT


async def test_meters_are_what_was_recorded(flows: Flows) -> None:
    await flows.register()
    await flows.start("m-1", given={"order_id": 1})
    await flows.settle()
    await flows.do("payments")
    await flows.do("inventory", Outcome.FAILED, error="sold out", retryable=False)
    await flows.do("payments")
    counts: dict[str, int] = {}
    for (body,) in await flows.sql(b"SELECT body FROM journal"):
        for _, metric, _, quantity in json.loads(bytes(body)).get("counts", []):
            counts[metric] = counts.get(metric, 0) + quantity
    ((size, recorded),) = await flows.sql(
        b"SELECT (SELECT sum(history_bytes) FROM workflows)::bigint,"
        b" (SELECT sum(octet_length(data)) FROM workflow_events)::bigint"
    )
    assert counts["history_bytes"] == size == recorded
    assert counts["workflow_steps"] == 3  # charged, not reserved, refunded
    assert "job_runs" not in counts


async def test_what_may_have_happened_is_there_to_be_compared(flows: Flows) -> None:
    await flows.register()
    await flows.start("lost", given={"order_id": 1})
    await flows.start("well", given={"order_id": 2})
    await flows.settle()
    tasks = {t.claim.definition.activity.workflow_id: t for t in await flows.poll("payments", 2)}  # type: ignore[union-attr]
    assert await flows.finish(tasks["well"])
    # The worker of the other one dies with it until its attempts are over.
    ((parent, at, ordinal),) = await flows.sql(
        b"SELECT parent_id, scheduled_for, ordinal FROM runs WHERE state = 'RUNNING'"
    )
    attempts: list[dict[str, Any]] = [{"number": 1, "epoch": 1, "outcome": "LOST"}]
    await flows.sql(
        b"UPDATE runs SET state = 'FAILED', finished_at = now(), lease_expires_at = NULL, reason = 'poison',"
        b" attempts = %(attempts)s::text::jsonb"
        b" WHERE parent_id = %(parent)s AND scheduled_for = %(at)s AND ordinal = %(ordinal)s",
        {"attempts": json.dumps(attempts), "parent": parent, "at": at, "ordinal": ordinal},
    )
    await flows.settle()
    undo = await flows.do("payments")
    assert undo.claim.idempotency_key == "lost:refund_card"
    page = await flows.store.list_workflows(
        flows.tenant, WorkflowFilter(to_reconcile=True), after=None, limit=10
    )
    assert [row.workflow_id for row in page.rows] == ["lost"]


async def test_many_starts_at_once_are_judged_each_on_its_own(flows: Flows) -> None:
    await flows.register(WAITS)
    await flows.world.put_tenant(flows.fence, version=2, pending_timers=1_000)
    await flows.start("there", "waits", given=1)
    asked = [
        flows.new("there", "waits", given=1),  # the same again
        flows.new("there", "waits", given=2),  # another one under an id in use
        flows.new("fresh", "waits", given=3),
        flows.new("fresh", "waits", given=3),  # said twice at once
        flows.new("fresh", "waits", given=4),
    ]
    stale = replace(flows.fence, epoch=flows.fence.epoch - 1)
    fences = [*([flows.fence] * len(asked)), stale]
    results = await flows.store.start_workflows(
        list(zip(fences, [*asked, flows.new("late", "waits")], strict=True)), host_id=flows.world.host_id
    )
    told = [type(r).__name__ if isinstance(r, Exception) else (r[0].workflow_id, r[1]) for r in results]
    assert told == [
        ("there", False),
        "WorkflowIdInUse",
        ("fresh", True),
        ("fresh", False),
        "WorkflowIdInUse",
        "NotOwner",
    ]
    begun = results[2]
    assert not isinstance(begun, Exception)
    assert begun[0] == await flows.row("fresh"), "what is answered is what was written"


async def test_signals_do_not_fill_a_history_past_its_bytes(flows: Flows) -> None:
    await flows.register(WAITS)
    await flows.start("full", "waits")
    await flows.settle()
    text = "x" * 250_000
    for n in range(37):
        taken = await flows.signal("full", f"s-{n}", "noise", text)
        assert taken is not None
        if n % 10 == 9:
            await flows.settle()
    with pytest.raises(Conflict, match="the history is full"):
        await flows.signal("full", "one-more", "noise", text)
    await flows.settle()
    row = await flows.row("full")
    assert (row.status, row.history_bytes < FULL_BYTES) == ("RUNNING", True)


async def test_whatever_texts_hold_a_workflow_goes_on(flows: Flows) -> None:
    await flows.register(WAITS)
    await flows.start("odd", "waits")
    await flows.settle()
    await flows.signal("odd", "s-1", "noise", payload="a\0b")
    await flows.settle()
    taken = await flows.signal("odd", "s-2", "go")
    assert taken is not None
    assert taken.status == "accepted"
    await flows.start("odder", "waits")
    await flows.settle()
    await flows.tell("TERMINATE", "odder", reason="a\0b")
    await flows.settle()
    assert (await flows.row("odder")).error == "a\ufffdb"


async def test_an_execution_begins_by_the_clock_of_the_database(flows: Flows) -> None:
    await flows.register(WAITS)
    new = flows.new("ahead", "waits")
    ((type_, at_ms, data),) = new.events
    ahead = replace(new, events=[(type_, at_ms + 90_000, data)])
    row, _ = await flows.store.start_workflow(flows.fence, ahead, host_id=flows.world.host_id)
    assert abs((row.started_at - now()).total_seconds()) < 30
    await flows.settle()
    assert (await flows.told("ahead"))[-1] == "WAIT_STARTED wait"


async def test_over_its_quota_a_tenant_can_still_stop(flows: Flows) -> None:
    await flows.register(WAITS)
    for name in ("one", "two"):
        await flows.start(name, "waits", given=name)
    await flows.settle()
    await flows.tell("TERMINATE", "one", reason="it runs away")
    await flows.signal("two", "s", "go")
    stepped = await flows.store.step_workflows(
        flows.planner, shards=ALL, but_not=[flows.tenant], limit=200, host_id=flows.world.host_id
    )
    assert [turn.taken.row.workflow_id for turn in stepped.turns] == ["one"]
    assert (await flows.row("one")).status == "TERMINATED"


async def test_the_quota_of_tenants_that_wait_is_looked_up(flows: Flows) -> None:
    await flows.world.put_tenant(flows.fence, version=2, workflow_steps_per_second=7)
    assert await flows.store.workflow_step_rates([flows.tenant, uuid.uuid4()]) == {flows.tenant: 7}


async def test_words_for_nobody_go(flows: Flows) -> None:
    await flows.register(WAITS)
    await flows.start("gone", "waits")
    await flows.settle()
    await flows.signal("gone", "s", "go")
    await flows.sql(b"DELETE FROM workflows")
    await flows.settle()
    assert await flows.sql(b"SELECT count(*) FROM workflow_inbox") == [(0,)]
