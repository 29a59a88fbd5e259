"""Crashes at every boundary of a transaction: what was to be committed was not, or was and nobody
heard of it. Whatever dies, the history is one that a crash-free run could have made."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

import msgspec
import pytest

from cells.domain.run import RunState
from cells.domain.workflow.events import Event
from cells.ports import Conflict, Store
from cells.pulling import Poller, PulledTask
from tests.component.cells.workflows.crashing import (
    CrashingStore,
    drive,
    invented,
    scheduled_once,
    short,
    survives,
)
from tests.component.cells.workflows.harness import Flows
from tests.component.cells.workflows.test_chains import STEPS, changed, to_step
from tests.component.cells.workflows.test_job_runs import SHORT, Job


@pytest.mark.parametrize("sold_out", [False, True], ids=["well", "undone"])
async def test_an_order_survives_a_crash_anywhere(flows: Flows, sold_out: bool) -> None:
    await flows.register()
    queues = ["payments", "inventory", "shipping"]

    def fate(task: PulledTask) -> bool:
        activity = task.claim.definition.activity
        return not (sold_out and activity is not None and activity.type == "RESERVE")

    async def order(workflow_id: str, crashes: Callable[[int], str | None]) -> tuple[list[Event], int]:
        store = CrashingStore(flows.world.store, crashes)
        flows.behind = cast(Store, store)
        await survives(flows, lambda: flows.start(workflow_id, given={"n": 1}))
        return await drive(flows, workflow_id, queues, fate), store.calls

    undisturbed, calls = await order("order-0", lambda _: None)
    scheduled_once(undisturbed)
    for at in range(calls):
        for how in ("before", "behind"):
            name = f"order-{how}-{at}"
            events, _ = await order(name, lambda n, at=at, how=how: how if n == at else None)
            scheduled_once(events)
            told = short(events, name)
            if sold_out and how == "behind":
                # A worker that died with the task may have reserved: that is undone, too.
                told = [event for event in told if event[1] != "release_stock"]
            assert told == short(undisturbed, "order-0"), (how, at)
    assert await flows.sql(b"SELECT count(*) FROM workflow_inbox") == [(0,)]


@pytest.mark.parametrize("seed", range(8))
async def test_invented_workflows_survive_crashes_again_and_again(flows: Flows, seed: int) -> None:
    rng = random.Random(seed)
    text = invented(rng)
    await flows.register(msgspec.json.encode(text).decode())
    fates: dict[str, bool] = {}
    crashes = random.Random(seed + 1000)

    def fate(task: PulledTask) -> bool:
        activity = task.claim.definition.activity
        assert activity is not None
        undoes = bool(activity.forward_key)
        return fates.setdefault(activity.key, undoes or rng.random() < 0.85)

    store = CrashingStore(
        flows.world.store,
        lambda _: crashes.choice(["before", "behind"]) if crashes.random() < 0.25 else None,
    )
    flows.behind = cast(Store, store)
    await survives(flows, lambda: flows.start("invented-1", text["workflow"], given={"n": 1}))
    events = await drive(flows, "invented-1", ["q"], fate)
    scheduled_once(events)
    keys = {e.data["key"] for e in events if e.type == "ACTIVITY_SCHEDULED"}
    assert set(fates) <= keys
    assert (await flows.row("invented-1")).status in ("COMPLETED", "COMPENSATED")


async def test_the_run_of_a_job_survives_a_crash_anywhere(flows: Flows) -> None:
    """Begun once, ended once, whoever dies at which call."""
    await flows.register(SHORT)

    async def through(crashes: Callable[[int], str | None]) -> int:
        # One job each: the store of before is left behind, with what is done.
        flows.behind = None
        await flows.sql(b"DELETE FROM runs")
        await flows.sql(b"DELETE FROM workflows")
        job = Job(flows)
        await job.claimed()
        store = CrashingStore(flows.world.store, crashes)
        flows.behind = cast(Store, store)
        await survives(flows, flows.runs_of_jobs)
        events = await drive(flows, await job.workflow_id(), ["q"], lambda _: True)
        scheduled_once(events)
        await survives(flows, flows.runs_of_jobs)
        run = await job.run()
        assert (run.state, len(run.attempts)) == (RunState.SUCCEEDED, 1)
        assert await flows.sql(b"SELECT count(*) FROM workflows") == [(1,)]
        assert await flows.sql(b"SELECT * FROM job_workflows") == []
        return store.calls

    for at in range(await through(lambda _: None)):
        for how in ("before", "behind"):
            await through(lambda n, at=at, how=how: how if n == at else None)


async def test_a_cancel_and_a_reset_survive_a_crash_anywhere(flows: Flows) -> None:
    """What somebody asks for again, for he heard nothing, is done once."""
    await flows.register(STEPS)

    async def through(name: str, crashes: Callable[[int], str | None]) -> tuple[list[list[str]], int]:
        store = CrashingStore(flows.world.store, crashes)
        flows.behind = cast(Store, store)
        await survives(flows, lambda: flows.start(name, "steps", given=name))
        await survives(flows, flows.settle)
        for task in await flows.world.store.poll([poller(flows)], host_id=flows.world.host_id):
            for one in task:
                await survives(flows, lambda t=one: flows.finish(t))
        await survives(flows, flows.settle)
        change = to_step(flows, "steps", "a")
        row, _ = await survives(flows, lambda: changed(flows, change, name, (name, b"1")))
        await survives(flows, flows.settle)
        await survives(flows, lambda: cancelled(flows, name))
        await survives(flows, flows.settle)
        assert ((again := await flows.row(name)).run_id, again.status) == (row.run_id, "CANCELLED")
        found = await flows.sql(
            b"SELECT run_id FROM workflows WHERE workflow_id = %(id)s ORDER BY started_at", {"id": name}
        )
        told = []
        for (run_id,) in found:
            told.append([e.type for e in await flows.events(await flows.row(name, run_id))])
        return told, store.calls

    undisturbed, calls = await through("w-0", lambda _: None)
    assert [types[-1] for types in undisturbed] == ["TERMINATED", "CANCELLED"]
    for at in range(calls):
        for how in ("before", "behind"):
            told, _ = await through(f"w-{how}-{at}", lambda n, at=at, how=how: how if n == at else None)
            assert told == undisturbed, (how, at)


def poller(flows: Flows) -> Poller:
    return Poller(tenant_id=flows.tenant, task_queue="q", worker_id="w-1", count=20)


async def cancelled(flows: Flows, name: str) -> None:
    """Ask it to stop, as somebody who asks until he is answered; it may have heard before."""
    try:
        await flows.tell("CANCEL", name)
    except Conflict:
        assert (await flows.row(name)).status in ("COMPENSATING", "CANCELLED")
