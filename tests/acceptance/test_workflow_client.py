"""Workflows as a program and a terminal meet them: the whole product, and a worker that knows its types."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.client import (
    AsyncClockhouse,
    Clockhouse,
    Conflict,
    Failed,
    Invalid,
    NondeterministicChange,
    NotFound,
    Task,
    Worker,
    WorkflowIdInUse,
)
from tests.acceptance.test_command_line import Cli
from tests.stack import Stack
from tests.waiting import eventually_sync

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Clockhouse]:
    with Clockhouse(stack.info["api_url"], stack.info["api_key"]) as client:
        yield client


@pytest.fixture
def cli(stack: Stack, tmp_path: Path) -> Cli:
    return Cli(stack, tmp_path)


def order(mark: str, *, version: int = 1, wait: str = "1h", more: str = "") -> str:
    """A definition as people write it: two types of work in one queue, a wait, something to undo."""
    return f"""
workflow: order_{mark}
version: {version}
steps:
  - id: charge
    activity: {{ task_queue: till-{mark}, type: CHARGE }}
    retry: {{ max_attempts: 1 }}
    compensate_with: refund
  - id: pickup
    wait_for_signal: {{ name: picked_up, timeout: {wait} }}
    on_timeout: compensate
  - id: ship
    activity: {{ task_queue: till-{mark}, type: SHIP }}
    retry: {{ max_attempts: 1 }}
    input: {{ by: "${{signals.picked_up.payload.by}}" }}
{more}compensations:
  - id: refund
    activity: {{ task_queue: till-{mark}, type: REFUND }}
"""


def unique() -> str:
    return uuid.uuid4().hex[:8]


@contextmanager
def working(stack: Stack, mark: str, *, broken: bool = False) -> Iterator[list[tuple[str | None, Any]]]:
    """A worker with a handler for each type; what it was given."""
    done: list[tuple[str | None, Any]] = []
    worker = Worker(stack.info["api_url"], stack.info["api_key"], worker_id=f"till-{mark}", poll_seconds=5)
    queue = f"till-{mark}"

    @worker.handles(queue, kind="CHARGE")
    async def charge(task: Task[Any]) -> dict[str, Any]:
        done.append((task.type, task.payload))
        return {"receipt": task.idempotency_key}

    @worker.handles(queue, kind="SHIP")
    def ship(task: Task[Any]) -> dict[str, Any]:
        done.append((task.type, task.payload))
        if broken:
            raise Failed("no van", retryable=False)
        return {"parcel": 7}

    @worker.handles(queue, kind="REFUND")
    async def refund(task: Task[Any]) -> None:
        done.append((task.type, (task.workflow_id, task.step, task.compensates)))

    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await worker.serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield done
    finally:
        eventually_sync(lambda: loops and worker._draining is not None)
        loops[0].call_soon_threadsafe(worker.drain)
        thread.join(60)
        assert not thread.is_alive()


def at(client: Clockhouse, workflow_id: str, step: str) -> None:
    """Until a step is under way."""
    eventually_sync(lambda: step in client.workflows.get(workflow_id).current_steps, timeout=60)


# --- the client ----------------------------------------------------------------------------
def test_an_order_from_its_definition_to_its_parcel(stack: Stack, client: Clockhouse) -> None:
    mark = unique()
    name, workflow_id, text = f"order_{mark}", f"order-{mark}", order(mark)
    with pytest.raises(Invalid) as refused:
        client.definitions.put(name, 1, text.replace("1h", "soon").replace("refund\n", "refnd\n", 1))
    assert [fault.line for fault in refused.value.faults] == [5, 10, 17]
    assert str(refused.value.faults[1]).startswith("line 10: ")
    registered = client.definitions.put(name, 1, text)
    assert (registered.created, registered.steps) == (True, ("charge", "pickup", "ship"))
    assert client.definitions.put(name, 1, text).created is False
    with pytest.raises(Conflict):
        client.definitions.put(name, 1, text + "# more")
    assert client.definitions.get(name).source == text
    assert [one.version for one in client.definitions.list(name=name, limit=1)] == [1]

    with working(stack, mark) as done:
        begun = client.workflows.start(workflow_id, name, input={"order": mark})
        assert (begun.created, begun.version) == (True, 1)
        assert client.workflows.start(workflow_id, name, input={"order": mark}).created is False
        with pytest.raises(WorkflowIdInUse):
            client.workflows.start(workflow_id, name, input={"order": "another"})
        at(client, workflow_id, "pickup")
        (timer,) = client.workflows.get(workflow_id).pending_timers
        assert timer.step == "pickup"
        taken = client.workflows.signal(workflow_id, "picked_up", {"by": "Ada"}, signal_id="s-1")
        assert taken.status == "accepted"
        again = client.workflows.signal(workflow_id, "picked_up", {"by": "Ada"}, signal_id="s-1")
        assert again.status == "duplicate"
        ended = client.workflows.wait_for(workflow_id, timeout=60)
    assert (ended.status, ended.error, ended.result) == ("COMPLETED", None, {"parcel": 7})
    assert done == [("CHARGE", {"order": mark}), ("SHIP", {"by": "Ada"})]
    steps = {step.step: step for step in client.workflows.timeline(workflow_id).steps}
    assert {name: step.state for name, step in steps.items()} == dict.fromkeys(
        ("charge", "pickup", "ship"), "COMPLETED"
    )
    assert steps["charge"].idempotency_key == f"{workflow_id}:charge"
    assert steps["charge"].run is not None
    assert client.runs.get(steps["charge"].run.run_id).state == "SUCCEEDED"
    events = list(client.workflows.history(workflow_id, limit=2))
    assert [event.seq for event in events] == list(range(1, ended.events + 1))
    assert (events[0].type, events[-1].type) == ("STARTED", "COMPLETED")
    assert [one.workflow_id for one in client.workflows.list(prefix=workflow_id, status="COMPLETED")] == [
        workflow_id
    ]
    assert client.workflows.signal(workflow_id, "picked_up").status == "late"
    with pytest.raises(Conflict):
        client.workflows.cancel(workflow_id)


def test_changes_of_what_runs(stack: Stack, client: Clockhouse) -> None:
    mark = unique()
    name, workflow_id = f"order_{mark}", f"order-{mark}"
    client.definitions.put(name, 1, order(mark))
    more = f"  - id: thank\n    activity: {{ task_queue: till-{mark}, type: SHIP }}\n"
    client.definitions.put(name, 2, order(mark, version=2, more=more))
    other = order(mark, version=3).replace("id: charge", "id: pay")
    with working(stack, mark) as done:
        client.workflows.start(workflow_id, name, version=1)
        at(client, workflow_id, "pickup")
        checked = client.definitions.check(name, 3, other)
        assert not checked.compatible
        (blocked,) = checked.blocked
        assert blocked.workflow_id == workflow_id
        assert blocked.first_diverging_event is not None
        assert (blocked.first_diverging_event.step, blocked.first_diverging_event.seq) == ("charge", 2)
        assert [one.workflow_id for one in client.definitions.check(name, 2).compatible] == [workflow_id]
        client.definitions.put(name, 3, other)
        with pytest.raises(NondeterministicChange) as refused:
            client.workflows.migrate(workflow_id, 3)
        assert refused.value.first_diverging_event["step"] == "charge"
        assert client.workflows.migrate(workflow_id, 2).version == 2
        before = client.workflows.get(workflow_id).run_id
        again = client.workflows.reset(workflow_id, "charge")
        assert again.run_id != before
        assert client.workflows.get(workflow_id, run_id=before).status == "TERMINATED"
        at(client, workflow_id, "pickup")
        client.workflows.cancel(workflow_id, reason="changed his mind")
        assert client.workflows.wait_for(workflow_id, timeout=60).status == "CANCELLED"
    assert [kind for kind, _ in done] == ["CHARGE", "CHARGE", "REFUND"]
    assert done[-1][1] == (workflow_id, "refund", f"{workflow_id}:{again.run_id}:charge")
    undone = client.workflows.timeline(workflow_id).steps[-1]
    assert (undone.step, undone.compensates, undone.state) == ("refund", "charge", "COMPLETED")
    with pytest.raises(NotFound):
        client.workflows.get(f"{workflow_id}-nobody")
    with pytest.raises(Conflict):
        client.workflows.resolve(workflow_id, "close", note="nothing to resolve")


async def test_the_async_client(stack: Stack) -> None:
    name = f"nap_{unique()}"
    async with AsyncClockhouse(stack.info["api_url"], stack.info["api_key"]) as client:
        await client.definitions.put(name, 1, json.dumps({"steps": [{"id": "nap", "sleep": "1s"}]}))
        assert [one.version async for one in client.definitions.list(name=name)] == [1]
        await client.workflows.start(name, name)
        ended = await client.workflows.wait_for(name, timeout=60)
        assert ended.completed
        events = [event async for event in client.workflows.history(name, limit=1)]
        assert len(events) == ended.events
        await client.workflows.start(f"{name}-2", name)
        await client.workflows.terminate(f"{name}-2", reason="enough")
        assert (await client.workflows.wait_for(f"{name}-2", timeout=60)).status == "TERMINATED"


# --- the command line ------------------------------------------------------------------------
def test_workflows_from_the_command_line(stack: Stack, cli: Cli, tmp_path: Path) -> None:
    mark = unique()
    name, workflow_id = f"order_{mark}", f"order-{mark}"
    file = tmp_path / "order.yaml"
    file.write_text(order(mark).replace("timeout: 1h", "timeout: soon"))
    refused = cli("definitions", "put", str(file), expect=6)
    assert "line 10: 'soon' is no duration" in refused.stderr
    file.write_text(order(mark))
    assert cli.json("definitions", "put", str(file))["created"] is True
    assert "was registered before" in cli("definitions", "put", str(file)).stdout
    assert cli("definitions", "show", name, "--source").stdout == order(mark)
    assert name in cli("definitions", "list", "--name", name).stdout
    with working(stack, mark, broken=True):
        begun = cli.json("workflows", "start", name, "--id", workflow_id, "-i", '{"order": 1}')
        assert begun["workflow_id"] == workflow_id
        eventually_sync(
            lambda: cli.json("workflows", "show", workflow_id)["current_steps"] == ["pickup"], timeout=60
        )
        shown = cli("workflows", "show", workflow_id).stdout
        assert "current steps" in shown
        assert "█" in shown
        other = order(mark, version=2).replace("id: charge", "id: pay")
        blocked = cli("definitions", "check", "-", expect=1, stdin=other).stdout
        assert "0 compatible, 1 blocked" in blocked
        assert workflow_id in blocked
        refused = cli("workflows", "cancel", workflow_id, expect=2)
        assert "1 step done, of which what can be undone is; under way: pickup." in refused.stderr
        assert "is taken" in cli("workflows", "signal", workflow_id, "picked_up", "-p", '{"by": "B"}').stdout
        # No van: what was charged is given back, and the awaited outcome is a bad one.
        ended = cli.json("workflows", "wait", workflow_id, expect=1)
        assert (ended["status"], ended["timeline"][-1]["compensates"]) == ("COMPENSATED", "charge")
    assert "↶ refund (undoes charge)" in cli("workflows", "show", workflow_id).stdout
    assert "COMPENSATION_STARTED" in cli("workflows", "history", workflow_id).stdout
    assert [event["seq"] for event in cli.json("workflows", "history", workflow_id, "-n", "2")] == [1, 2]
    listed = cli.json("workflows", "list", "--status", "compensated", "--prefix", workflow_id)
    assert [one["workflow_id"] for one in listed] == [workflow_id]
    cli("workflows", "signal", workflow_id, "picked_up", expect=1)
    assert "needs" not in cli("workflows", "terminate", workflow_id, "--yes", expect=5).stderr
    cli("workflows", "show", f"{workflow_id}-nobody", expect=4)


def test_a_workflow_is_changed_from_the_command_line(cli: Cli, tmp_path: Path) -> None:
    name = f"nap_{unique()}"
    file = tmp_path / "nap.json"
    for version in (1, 2):
        steps = [{"id": "first", "sleep": "1ms"}, {"id": "nap", "sleep": f"{version}h"}]
        file.write_text(json.dumps({"workflow": name, "version": version, "steps": steps}))
        cli("definitions", "put", str(file))
    begun = cli.json("workflows", "start", name, "--version", "1")
    workflow_id = begun["workflow_id"]
    eventually_sync(
        lambda: cli.json("workflows", "show", workflow_id)["current_steps"] == ["nap"], timeout=60
    )
    assert f"under {name} 2" in cli("workflows", "migrate", workflow_id, "--to", "2").stdout
    assert "has not begun" in cli("workflows", "reset", workflow_id, "--step", "x", "-y", expect=2).stderr
    again = cli.json("workflows", "reset", workflow_id, "--step", "nap", "--yes")
    assert again["run_id"] != begun["run_id"]
    earlier = cli.json("workflows", "show", workflow_id, "--execution", begun["run_id"])
    assert earlier["status"] == "TERMINATED"
    assert cli.json("definitions", "check", "--name", name, "--version", "1")["blocked"] == []
    assert "say --retry or --close" in cli("workflows", "resolve", workflow_id, expect=2).stderr
    cli("workflows", "resolve", workflow_id, "--retry", expect=5)
    assert "Nothing is undone" in cli("workflows", "terminate", workflow_id, "--yes").stdout
    cli("workflows", "wait", workflow_id, expect=1)
