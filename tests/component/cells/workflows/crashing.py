"""Callers of the store that die at chosen calls, and what carries a workflow through that."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg

from cells.api.pulled import Outcome
from cells.domain.workflow.events import Event
from cells.ports import Retryable, Store
from cells.pulling import PulledTask
from tests.component.cells.workflows.harness import AheadPlanner, Flows

T = TypeVar("T")
#: What a process does to the store; reading for the test's own sake is not among it.
_WRITES = frozenset(
    {
        "start_workflow", "signal_workflow", "step_workflows", "poll", "complete", "start_job_workflows",
        "end_job_workflows", "tell_workflow", "change_workflow",
    }
)  # fmt: skip


class CrashingStore:
    """The store, whose callers die at chosen calls: before they are made, or before they are answered; or
    the database dies while it works on them, where `kill` can do that."""

    def __init__(
        self,
        store: Store,
        crashes: Callable[[int], str | None],
        kill: Callable[[], Awaitable[None]] | None = None,
    ):
        self._store = store
        self._crashes = crashes
        self._kill = kill
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
            if crash == "database" and self._kill is not None:
                answer, _ = await asyncio.gather(
                    method(*args, **options), self._kill(), return_exceptions=True
                )
                if isinstance(answer, BaseException):
                    raise answer
                return answer
            answer = await method(*args, **options)
            if crash == "behind":
                raise Retryable("it died behind it")
            return answer

        return call


async def survives(flows: Flows, act: Callable[[], Awaitable[T]]) -> T:
    """Whoever dies is followed by another one who knows nothing and does the same."""
    for _ in range(1_000):
        try:
            return await act()
        except Retryable:
            flows.planner = AheadPlanner()
            await flows.until_it_answers()
    raise AssertionError("it dies for ever")


async def lost_tasks_come_back(flows: Flows) -> None:
    """What happens when the leases of workers who died have ended."""
    store = flows.world.store
    await flows.sql(
        b"UPDATE runs SET lease_expires_at = now() - interval '1 minute' WHERE state = 'RUNNING' AND kind = 1"
    )
    members = await store.reap_pulled(host_id=flows.world.host_id, limit=1000)
    await flows.world.claim(*members)


async def drive(
    flows: Flows, workflow_id: str, queues: list[str], fate: Callable[[PulledTask], bool]
) -> list[Event]:
    """Workers and an engine, until the workflow is closed; signals come when nothing else does."""
    signals = 0
    for _ in range(300):
        try:
            if (events := await _history_if_closed(flows, workflow_id)) is not None:
                return events
            tasks = [t for queue in queues for t in await survives(flows, lambda q=queue: flows.poll(q, 20))]
            for task in tasks:
                good = fate(task)
                outcome = Outcome.SUCCEEDED if good else Outcome.FAILED
                more = {} if good else {"error": "declined", "retryable": False}
                await survives(flows, lambda t=task, o=outcome, m=more: flows.finish(t, o, **m))
            if not tasks:
                await lost_tasks_come_back(flows)
                signals += 1
                await survives(
                    flows, lambda n=signals: flows.signal(workflow_id, signal_id=f"s-{n}", name="picked_up")
                )
        except (Retryable, psycopg.OperationalError):
            flows.planner = AheadPlanner()
            await flows.until_it_answers()
    raise AssertionError("it never ends")


async def _history_if_closed(flows: Flows, workflow_id: str) -> list[Event] | None:
    await survives(flows, flows.settle)
    row = await flows.row(workflow_id)
    return None if row.closed_at is None else await flows.history(workflow_id)


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
