"""Crashes at every boundary of a transaction: what was to be committed was not, or was and nobody
heard of it. Whatever dies, the history is one that a crash-free run could have made."""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import msgspec
import pytest

from cells.api.pulled import Outcome
from cells.domain.workflow.events import Event
from cells.ports import Retryable, Store
from cells.pulling import PulledTask
from tests.component.cells.workflows.harness import AheadPlanner, Flows

T = TypeVar("T")
#: What a process does to the store; reading for the test's own sake is not among it.
_WRITES = frozenset({"start_workflow", "signal_workflow", "step_workflows", "poll", "complete"})


class CrashingStore:
    """The store, whose callers die at chosen calls: before they are made, or before they are answered."""

    def __init__(self, store: Store, crashes: Callable[[int], str | None]):
        self._store = store
        self._crashes = crashes
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in _WRITES or not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            crash = self._crashes(self.calls)
            self.calls += 1
            if crash == "before":
                raise Retryable("it died before")
            answer = await method(*args, **options)
            if crash == "behind":
                raise Retryable("it died behind it")
            return answer

        return call


async def survives(flows: Flows, act: Callable[[], Awaitable[T]]) -> T:
    """Whoever dies is followed by another one who knows nothing and does the same."""
    for _ in range(100):
        try:
            return await act()
        except Retryable:
            flows.planner = AheadPlanner()
    raise AssertionError("it dies for ever")


async def lost_tasks_come_back(flows: Flows) -> None:
    """What happens when the leases of workers who died have ended."""
    store = flows.world.store
    await flows.sql(b"UPDATE runs SET lease_expires_at = now() - interval '1 minute' WHERE state = 'RUNNING'")
    members = await store.reap_pulled(host_id=flows.world.host_id, limit=1000)
    await flows.world.claim(*members)


async def drive(
    flows: Flows, workflow_id: str, queues: list[str], fate: Callable[[PulledTask], bool]
) -> list[Event]:
    """Workers and an engine, until the workflow is closed; signals come when nothing else does."""
    signals = 0
    for _ in range(300):
        await survives(flows, flows.settle)
        row = await flows.row(workflow_id)
        if row.closed_at is not None:
            return await flows.history(workflow_id)
        tasks = [t for queue in queues for t in await survives(flows, lambda q=queue: flows.poll(q, 20))]
        for task in tasks:
            outcome = Outcome.SUCCEEDED if fate(task) else Outcome.FAILED
            more = {} if fate(task) else {"error": "declined", "retryable": False}
            await survives(flows, lambda t=task, o=outcome, m=more: flows.finish(t, o, **m))
        if not tasks:
            await lost_tasks_come_back(flows)
            signals += 1
            await survives(
                flows, lambda n=signals: flows.signal(workflow_id, signal_id=f"s-{n}", name="picked_up")
            )
    raise AssertionError("it never ends")


def short(events: list[Event], workflow_id: str) -> list[tuple[str, str, str]]:
    """What was recorded but for when, and how often somebody signalled."""
    return [
        (e.type, str(e.data.get("step", "")), str(e.data.get("key", "")).replace(workflow_id, "id"))
        for e in events
        if e.type != "SIGNAL_RECEIVED"
    ]


def scheduled_once(events: list[Event]) -> None:
    steps = [e.data["step"] for e in events if e.type == "ACTIVITY_SCHEDULED"]
    assert len(steps) == len(set(steps)), steps
    ended = [e.data["step"] for e in events if e.type in ("ACTIVITY_COMPLETED", "ACTIVITY_FAILED")]
    assert len(ended) == len(set(ended)), ended


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


def invented(rng: random.Random) -> dict[str, Any]:
    """A definition nobody thought of."""
    compensations: list[Any] = []
    number = iter(range(1000))

    def activity() -> dict[str, Any]:
        name = f"s{next(number)}"
        step: dict[str, Any] = {"id": name, "activity": {"task_queue": "q", "type": "T"}}
        if rng.random() < 0.7:
            step["compensate_with"] = f"undo_{name}"
            compensations.append({"id": f"undo_{name}", "activity": {"task_queue": "q", "type": "U"}})
        return step

    def steps(depth: int) -> list[Any]:
        made: list[Any] = []
        for _ in range(rng.randint(1, 3)):
            kind = rng.choice(["activity", "activity", "wait", "parallel", "map"][: 5 if depth else 3])
            if kind == "activity":
                made.append(activity())
            elif kind == "wait":
                made.append({"id": f"w{next(number)}", "wait_for_signal": {"name": "picked_up"}})
            elif kind == "parallel":
                branches = [steps(0), steps(0)]
                made.append({"id": f"p{next(number)}", "parallel": {"branches": branches}})
            else:
                inner = {"over": "${[1, 2, 3]}", "as": "item", "steps": [activity()], "max_concurrency": 2}
                made.append({"id": f"m{next(number)}", "map": inner})
        return made

    text: dict[str, Any] = {"workflow": f"invented_{rng.randint(0, 10**9)}", "version": 1, "steps": steps(1)}
    return {**text, "compensations": compensations} if compensations else text


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
