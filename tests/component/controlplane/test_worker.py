"""A worker outlives its broker, and what takes long is none of its work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from controlplane.celery import app
from deploy.engines import Valkey, new_password, running
from deploy.ports import Reservation
from tests.waiting import eventually_sync

pytestmark = pytest.mark.slow
MOVES, EXPORTS = "controlplane.moves.tasks.drive_moves", "controlplane.custody.tasks.run_exports"
OPTIONS = (
    "-Q",
    "driving",
    "--concurrency",
    "2",
    "--without-gossip",
    "--without-mingle",
    "--loglevel",
    "INFO",
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Valkey]:
    """A Valkey of this test's own, not started."""
    port = Reservation()
    yield Valkey(tmp_path / "valkey", port=port.port, password=new_password(), durable=False)
    port.release()


@pytest.fixture
def worker(broker: Valkey, root: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of that broker. Its database does not exist: here only the messages count."""
    with (tmp_path / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "controlplane", "worker", *OPTIONS],
            cwd=root,
            env={**os.environ, "CONTROL_VALKEY_URL": broker.url},
            stdout=log,
            stderr=log,
        )
        yield process
        if process.poll() is None:
            process.kill()
            process.wait()


def _send(broker: Valkey, count: int, task: str = MOVES) -> None:
    with app.connection_for_write(broker.url) as connection:
        for _ in range(count):
            app.send_task(task, connection=connection)


def _left(broker: Valkey, queue: str = "driving") -> int:
    with redis.Redis.from_url(broker.url) as client:
        return int(client.llen(f"celery:{queue}"))


def test_a_broker_that_dies_under_load_and_returns(
    broker: Valkey, worker: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    for _ in range(3):
        with running(broker, tmp_path / "valkey.log"):
            _send(broker, 50)
            # It works again; killed in the middle of it, with messages in the worker's hands.
            eventually_sync(lambda: _left(broker) < 45, timeout=40)
        assert worker.poll() is None
    with running(broker, tmp_path / "valkey.log"):
        _send(broker, 5, EXPORTS)
        _send(broker, 5)
        # What drives moves is done though exports wait before it: they are for another worker.
        eventually_sync(lambda: _left(broker) == 0, timeout=40)
        assert _left(broker, "long") == 5
        assert worker.poll() is None
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
