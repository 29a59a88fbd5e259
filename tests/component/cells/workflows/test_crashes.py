"""Crashes at every boundary of a transaction: what was to be committed was not, or was and nobody
heard of it. Whatever dies, the history is one that a crash-free run could have made."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

import msgspec
import pytest

from cells.domain.workflow.events import Event
from cells.ports import Store
from cells.pulling import PulledTask
from tests.component.cells.workflows.crashing import (
    CrashingStore,
    drive,
    invented,
    scheduled_once,
    short,
    survives,
)
from tests.component.cells.workflows.harness import Flows


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
