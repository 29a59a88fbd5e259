"""Several engines on one cell, the takeover of shards, and HTTP activities through the real executor."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from cells.domain import ids
from tests.component.cells.workflows.harness import ALL, AheadPlanner, Flows

NAPS = """
workflow: naps
version: 1
steps:
  - {id: a, activity: {task_queue: q, type: A}}
  - {id: b, activity: {task_queue: q, type: B}}
"""


async def test_two_engines_that_both_believe_in_all_shards_do_no_harm(flows: Flows) -> None:
    await flows.register(NAPS)
    other = replace(flows, planner=AheadPlanner())
    names = [f"n-{n}" for n in range(20)]
    await asyncio.gather(*(flows.start(name, "naps", given=name) for name in names))
    for _ in range(2):
        await asyncio.gather(flows.settle(500), other.settle(500))
        for task in await flows.poll("q", 50):
            assert await flows.finish(task)
    await asyncio.gather(flows.settle(500), other.settle(500))
    for name in names:
        told = await flows.told(name)
        assert (await flows.row(name)).status == "COMPLETED"
        assert [t for t in told if t.startswith("ACTIVITY_SCHEDULED")] == [
            "ACTIVITY_SCHEDULED a",
            "ACTIVITY_SCHEDULED b",
        ]


async def test_an_engine_takes_its_shards_alone_and_another_one_goes_on(flows: Flows) -> None:
    await flows.register(NAPS)
    names = [f"n-{n}" for n in range(12)]
    shard_of = {}
    for name in names:
        row, _ = await flows.start(name, "naps", given=name)
        shard_of[name] = ids.shard_of(row.run_id)
    even = [shard for shard in ALL if shard % 2 == 0]
    first = AheadPlanner()
    first.begin()
    stepped = await flows.store.step_workflows(
        first, shards=even, but_not=(), limit=200, host_id=flows.world.host_id
    )
    began = {turn.taken.row.workflow_id for turn in stepped.turns}
    assert began == {name for name in names if shard_of[name] % 2 == 0}
    # It is gone: who takes all shards folds what it left, and knows nothing else of it.
    await flows.settle()
    for task in await flows.poll("q", 50):
        assert await flows.finish(task)
    await flows.settle()
    for name in names:
        told = await flows.told(name)
        assert told[-1] == "ACTIVITY_SCHEDULED b"


async def test_the_epoch_of_a_new_owner_is_recorded_where_it_took_over(flows: Flows) -> None:
    await flows.register(NAPS)
    row, _ = await flows.start("n-1", "naps")
    await flows.settle()
    before = (await flows.row("n-1")).next_seq
    ((epoch,),) = await flows.sql(
        b"SELECT ownership_epoch FROM tenants WHERE tenant_id = %(tenant)s", {"tenant": flows.tenant}
    )
    (task,) = await flows.poll("q")
    await flows.sql(
        b"UPDATE tenants SET ownership_epoch = ownership_epoch + 1 WHERE tenant_id = %(tenant)s",
        {"tenant": flows.tenant},
    )
    assert await flows.finish(task), "the outcome of work that was done is a fact"
    await flows.settle()
    after = await flows.row("n-1", row.run_id)
    assert [list(pair) for pair in after.takeovers] == [[epoch, 1], [epoch + 1, before]]
    stored = await flows.store.workflow_history(flows.tenant, row.run_id, after=0, limit=100)
    assert [e.epoch for e in stored] == [epoch] * (before - 1) + [epoch + 1] * (after.next_seq - before)
