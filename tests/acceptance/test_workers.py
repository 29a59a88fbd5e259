"""A real worker against the whole product: it is killed, the cell is killed, and no task is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.api import Api
from tests.stack import Stack
from tests.waiting import eventually_sync

pytestmark = pytest.mark.stack

_WORKER = """
import asyncio, os, sys
from pathlib import Path
from controlplane.client import Worker

worker = Worker(os.environ["API_URL"], os.environ["API_KEY"], concurrency=4, worker_id=sys.argv[2])
folder = Path(sys.argv[3])

@worker.handles(sys.argv[1])
async def work(task):
    task.progress({"begun": True})
    if task.payload.get("hang") and not (folder / "released").exists():
        (folder / f"hanging-{sys.argv[2]}").touch()
        await asyncio.sleep(3600)
    return {"by": sys.argv[2]}

worker.run()
"""


@contextmanager
def worker(stack: Stack, queue: str, name: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, "API_URL": stack.info["api_url"], "API_KEY": stack.info["api_key"]}
    with subprocess.Popen([sys.executable, "-c", _WORKER, queue, name, str(folder)], env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def tasks(api: Api, queue: str, count: int, **payload: Any) -> list[str]:
    target = {"type": "TASK_QUEUE", "task_queue": queue, "lease_seconds": 5}
    body = {"schedule": {"type": "NOW"}, "target": target, "payload": payload}
    return [api.create_job(body)["job_id"] for _ in range(count)]


def run_of(api: Api, job_id: str) -> dict[str, Any]:
    runs = api.get("/v1/runs", job_id=job_id)["items"]
    return dict(api.get(f"/v1/runs/{runs[0]['run_id']}")) if runs else {}


def all_succeeded(api: Api, jobs: list[str]) -> bool:
    return all(run_of(api, job).get("state") == "SUCCEEDED" for job in jobs)


def test_tasks_are_worked_off_and_survive_worker_and_cell(stack: Stack, tmp_path: Path) -> None:
    api = Api(stack.info["api_url"], stack.info["api_key"])
    queue = f"ledger-{uuid.uuid4().hex[:8]}"
    with worker(stack, queue, "first", tmp_path) as first:
        done = tasks(api, queue, 5)
        eventually_sync(lambda: all_succeeded(api, done), timeout=60)
        (hung,) = tasks(api, queue, 1, hang=True)
        eventually_sync((tmp_path / "hanging-first").exists, timeout=60)
        # Longer than its lease: heartbeats keep it, though the cell dies in between.
        stack.kill("cell-local-shared-1")
        eventually_sync(lambda: run_of(api, hung).get("heartbeat_at"), timeout=60)
        held = run_of(api, hung)
        assert (held["state"], held["worker_id"]) == ("RUNNING", "first")
        first.send_signal(signal.SIGKILL)
        (tmp_path / "released").touch()
        with worker(stack, queue, "second", tmp_path):
            eventually_sync(lambda: all_succeeded(api, [hung]), timeout=90)
    after = run_of(api, hung)
    assert after["epoch"] > held["epoch"]
    assert [attempt["outcome"] for attempt in after["attempts"]][-1] == "SUCCEEDED"
    assert after["attempts"][-1]["host"] == "second"
