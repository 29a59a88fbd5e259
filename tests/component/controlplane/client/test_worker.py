"""Pull workers against a server that keeps the contract of task queues."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controlplane.client import ConfigurationError, Failed, Task, Unauthenticated, Worker
from controlplane.client.tasks import Reason
from tests.component.controlplane.client.conftest import Server
from tests.component.controlplane.client.queue_server import QueueServer, serving
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
async def queues() -> AsyncIterator[QueueServer]:
    async with serving(QueueServer()) as server:
        yield server


def worker_of(queues: QueueServer, **options: Any) -> Worker:
    return Worker(queues.url, "ch_live_w", **{"drain_seconds": 2.0, "poll_seconds": 5, **options})


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[None]:
    """The worker at work; drained at the end."""
    serving_ = asyncio.create_task(worker.serve())
    try:
        yield
    finally:
        await eventually(lambda: worker._draining is not None or serving_.done())
        worker.drain()
        await asyncio.wait_for(serving_, 20)


@dataclass(frozen=True)
class Digest:
    user: int


async def test_tasks_are_worked_on_and_completed(queues: QueueServer) -> None:
    worker = worker_of(queues, worker_id="w-1")

    @worker.handles("digests", reads=Digest)
    async def send(task: Task[Digest]) -> dict[str, Any]:
        return {"sent_to": task.payload.user, "key": task.idempotency_key, "epoch": task.epoch}

    async with working(worker):
        entry = await queues.put("job_1:a", {"user": 7})
        await eventually(lambda: entry.state == "SUCCEEDED")
        again = await queues.put("job_1:b", {"user": 8})
        await eventually(lambda: again.state == "SUCCEEDED")
    assert entry.result == {"sent_to": 7, "key": "job_1:a", "epoch": 1}
    assert queues.polls[0] == {"worker_id": "w-1", "wait_seconds": 5, "max_tasks": 8}


@pytest.mark.parametrize(
    ("payload", "error", "retryable"),
    [
        ({"do": "raise"}, "ValueError: no", True),
        ({"do": "fail"}, "again later", True),
        ({"do": "fail for good"}, "never", False),
        ({"do": "return a set"}, "the result is no JSON: ", False),
        ({"do": "return NaN"}, "the result is no JSON: ", False),
    ],
)
async def test_failures_say_whether_to_retry(
    queues: QueueServer, payload: dict[str, str], error: str, retryable: bool
) -> None:
    worker = worker_of(queues)

    @worker.handles("q")
    def handle(task: Task[dict[str, str]]) -> Any:
        match task.payload["do"]:
            case "raise":
                raise ValueError("no")
            case "fail":
                raise Failed("again later")
            case "fail for good":
                raise Failed("never", retryable=False)
            case "return a set":
                return {1}
        return float("nan")

    async with working(worker):
        entry = await queues.put("r", payload)
        await eventually(lambda: entry.state == "FAILED")
    assert (entry.error or "").startswith(error)
    assert entry.retryable is retryable


async def test_payloads_that_nobody_reads_fail_for_good_and_unknown_types_may_be_known_elsewhere(
    queues: QueueServer,
) -> None:
    worker = worker_of(queues)

    @worker.handles("q", kind="known", reads=Digest)
    async def handle(task: Task[Digest]) -> None:
        raise AssertionError("it must not come here")

    async with working(worker):
        entries = [
            await queues.put("a", {"nobody": 1}, type="known"),
            await queues.put("b", [1], type="known"),
            await queues.put("c", {"user": 1}, type="unknown"),
        ]
        await eventually(lambda: all(entry.state == "FAILED" for entry in entries))
    assert [entry.retryable for entry in entries] == [False, False, True]
    assert "unexpected keyword argument 'nobody'" in (entries[0].error or "")
    assert "no handler for tasks of type unknown" in (entries[2].error or "")


async def test_heartbeats_carry_progress_and_keep_the_lease(queues: QueueServer) -> None:
    worker, go_on = worker_of(queues), asyncio.Event()

    @worker.handles("q")
    async def handle(task: Task[Any]) -> None:
        task.progress({"rows": 1})
        await go_on.wait()

    async with working(worker):
        entry = await queues.put("r")
        await eventually(lambda: entry.heartbeats >= 3)
        assert entry.progress[-1] == {"rows": 1}
        go_on.set()
        await eventually(lambda: entry.state == "SUCCEEDED")
    assert entry.epoch == 1


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_cancelled_run_stops_its_handler(queues: QueueServer, in_thread: bool) -> None:
    worker = worker_of(queues)
    if in_thread:

        @worker.handles("q")
        def blocking(task: Task[Any]) -> None:
            while True:
                task.wait(60)
    else:

        @worker.handles("q")
        async def waiting(task: Task[Any]) -> None:
            await asyncio.Event().wait()

    async with working(worker):
        entry = await queues.put("r")
        await eventually(lambda: entry.heartbeats >= 1)
        entry.cancel_requested = True
        await eventually(lambda: entry.state == "CANCELLED")


async def test_a_cancelled_run_that_succeeds_anyway_says_so(queues: QueueServer) -> None:
    worker = worker_of(queues)

    @worker.handles("q")
    def stubborn(task: Task[Any]) -> str:
        task._stopping.wait(10)
        return "done all the same"

    async with working(worker):
        entry = await queues.put("r")
        await eventually(lambda: entry.heartbeats >= 1)
        entry.cancel_requested = True
        await eventually(lambda: entry.state == "SUCCEEDED")
    assert entry.result == "done all the same"


async def test_a_stale_epoch_stops_the_handler_and_nothing_is_completed(queues: QueueServer) -> None:
    worker, reasons = worker_of(queues), []

    @worker.handles("q")
    async def handle(task: Task[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(task.stopping)

    async with working(worker):
        entry = await queues.put("r")
        await eventually(lambda: entry.heartbeats >= 1)
        await queues.reclaim(entry)
        await eventually(lambda: reasons)
    assert reasons == [Reason.SUPERSEDED]
    assert (entry.state, entry.epoch) == ("RUNNING", 2)  # the other worker's
    assert queues.refusals == [("r", "heartbeat")]


async def test_a_lease_that_cannot_be_renewed_stops_the_handler_before_its_end(queues: QueueServer) -> None:
    worker, stopped = worker_of(queues), []

    @worker.handles("q")
    async def handle(task: Task[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append((task.stopping, asyncio.get_running_loop().time()))

    async with working(worker):
        entry = await queues.put("r")
        await eventually(lambda: entry.heartbeats >= 1)
        queues.away = True
        await eventually(lambda: stopped)
        ((reason, at),) = stopped
        assert reason is Reason.LEASE_ENDED
        assert at < entry.lease_until  # nobody else could have had it yet
    assert entry.state == "RUNNING"


async def test_a_completion_is_repeated_until_it_is_heard(queues: QueueServer) -> None:
    worker = worker_of(queues)
    queues.failing_completions = 2

    @worker.handles("q")
    async def handle(task: Task[Any]) -> str:
        return "x"

    async with working(worker):
        entry = await queues.put("r")
        await eventually(lambda: entry.state == "SUCCEEDED")
    assert queues.failing_completions == 0


async def test_no_more_than_the_concurrency_at_once(queues: QueueServer) -> None:
    worker, go_on, running = worker_of(queues, concurrency=2), asyncio.Event(), []

    @worker.handles("q")
    async def handle(task: Task[Any]) -> None:
        running.append(task.run_id)
        await go_on.wait()

    for n in range(5):
        await queues.put(f"r{n}")
    async with working(worker):
        await eventually(lambda: len(running) == 2)
        await eventually(lambda: queues.entries["r0"].heartbeats >= 2)
        assert (len(running), [poll["max_tasks"] for poll in queues.polls]) == (2, [2])
        go_on.set()
        await eventually(lambda: all(entry.state == "SUCCEEDED" for entry in queues.entries.values()))


async def test_draining_finishes_what_it_can_and_gives_the_rest_back(queues: QueueServer) -> None:
    worker, finish, ended = worker_of(queues, drain_seconds=0.3), asyncio.Event(), []

    @worker.handles("q")
    async def handle(task: Task[dict[str, bool]]) -> None:
        if task.payload["quick"]:
            await finish.wait()
            return
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(task.stopping)

    quick, slow = await queues.put("quick", {"quick": True}), await queues.put("slow", {"quick": False})
    async with working(worker):
        await eventually(lambda: quick.heartbeats and slow.heartbeats)
        worker.drain()
        finish.set()
    assert (quick.state, slow.state, ended) == ("SUCCEEDED", "READY", [Reason.DRAINING])
    assert queues.left == [("q", worker.worker_id)]
    polls = len(queues.polls)
    late = await queues.put("late", {"quick": True})
    assert (late.state, len(queues.polls)) == ("READY", polls)


async def test_a_thread_that_does_not_listen_is_given_back_as_well(queues: QueueServer) -> None:
    worker, hold = worker_of(queues, drain_seconds=0.1), threading.Event()

    @worker.handles("q")
    def deaf(task: Task[Any]) -> None:
        hold.wait(30)

    entry = await queues.put("r")
    async with working(worker):
        await eventually(lambda: entry.heartbeats)
    assert entry.state == "READY"
    hold.set()


async def test_a_server_that_is_away_is_asked_again(server: Server) -> None:
    worker = Worker(server.url, "k", poll_seconds=1)
    worker.handles("q")(lambda task: None)
    server.script = [(503, {"code": "UNAVAILABLE"}), ConnectionResetError(), (204, "")]
    server.handler = lambda request: (200, {"tasks": []}) if len(server.received) < 6 else (401, {})
    with pytest.raises(Unauthenticated):
        await asyncio.wait_for(worker.serve(), 20)
    assert len(server.received) == 6


async def test_a_worker_without_handlers_or_with_two_for_one_queue(queues: QueueServer) -> None:
    worker = worker_of(queues)
    with pytest.raises(ConfigurationError, match="no handlers"):
        await worker.serve()
    worker.handles("q")(lambda task: None)
    with pytest.raises(ConfigurationError, match="already"):
        worker.handles("q")(lambda task: None)


_MODULE = """
import asyncio, time

async def handle(task):
    task.progress("begun")
    await asyncio.sleep(task.payload["seconds"])
    return "finished"
"""


async def test_sigterm_drains_a_worker_process(queues: QueueServer, tmp_path: Path) -> None:
    (tmp_path / "my_tasks.py").write_text(_MODULE)
    environment = {
        **os.environ, "CLOCKHOUSE_API_URL": queues.url, "CLOCKHOUSE_API_KEY": "k", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "controlplane.client", "worker", "run", "my_tasks:handle", "--queue", "q",
        "--drain", "3", cwd=tmp_path, env=environment, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        short = await queues.put("short", {"seconds": 1.0})
        long = await queues.put("long", {"seconds": 600})
        await eventually(lambda: short.heartbeats and long.heartbeats, timeout=30)
        process.send_signal(signal.SIGTERM)
        _, said = await asyncio.wait_for(process.communicate(), 20)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, said.decode()
    assert (short.state, short.result, short.progress[-1]) == ("SUCCEEDED", "finished", "begun")
    assert long.state == "READY"
    assert "Traceback" not in said.decode()
    assert {verb for _, verb in queues.refusals} <= {"heartbeat"}
