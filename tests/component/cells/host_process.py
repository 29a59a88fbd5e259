"""`python -m cells.host` as a child of the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from deploy.ports import Reservation
from tests.waiting import eventually_sync

ROOT = Path(__file__).resolve().parents[3]
#: The harness seals with this key, too.
INSTALLATION_KEY = (b"k" * 32).hex()


@dataclass
class HostProcess:
    """One running process of a cell."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    checks: dict[str, str] = field(default_factory=dict)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=5)

    def alive(self) -> bool:
        try:
            return self.get("/healthz").status_code == 200
        except httpx.TransportError:
            assert self.process.poll() is None, self.logs()
            return False

    def ready(self) -> bool:
        """Whether it says so; what it checked is kept in `checks`."""
        answer = self.get("/readyz")
        self.checks = answer.json()["checks"]
        return answer.status_code == 200

    def metric(self, name: str) -> float:
        """A metric without labels (or its sum over them)."""
        lines = self.get("/metrics").text.splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{"))
        )

    def terminate(self, timeout: float = 30.0) -> int:
        """SIGTERM, and its exit status."""
        self.process.terminate()
        return self.process.wait(timeout)

    def kill(self) -> None:
        """As a crash does it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def logs(self) -> str:
        return self.log.read_text()

    def events(self) -> list[dict[str, Any]]:
        """What it logged."""
        return [json.loads(line) for line in self.logs().splitlines()]


def environment(database_url: str, valkey_url: str, *, port: int) -> dict[str, str]:
    """The settings of a process of the cell `test`."""
    return {
        "CELL_NAME": "test",
        "CELL_REGION": "local",
        "CELL_DATABASE_URL": database_url,
        "CELL_VALKEY_URL": valkey_url,
        "CELL_BIND": f"127.0.0.1:{port}",
        "CELL_KEYS": f"test:{'ab' * 32}",
        "CELL_INSTALLATION_KEY": INSTALLATION_KEY,
        "CELL_EGRESS_ALLOW": "loopback",
        "CELL_DRAIN_SECONDS": "5",
        "PATH": os.environ["PATH"],
    }


@contextmanager
def host_process(
    folder: Path, *, database_url: str, valkey_url: str, wait: bool = True, name: str = "test", **env: str
) -> Iterator[HostProcess]:
    """A process of the cell `test` with all roles, ready (or only alive)."""
    reservation = Reservation()
    port = reservation.port
    log = folder / f"{name}-{port}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "cells.host"],
            env=environment(database_url, valkey_url, port=port) | env,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
        )
    host = HostProcess(process=process, url=f"http://127.0.0.1:{port}", log=log)
    try:
        eventually_sync(host.alive, timeout=30)
        if wait:
            eventually_sync(host.ready, timeout=30)
        yield host
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
        reservation.release()
