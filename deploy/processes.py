"""The processes of an installation on one machine: commands, readiness, order of stopping."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from deploy import children
from deploy.engines import Engine
from deploy.home import ROOT, Home
from deploy.ports import LOOPBACK
from deploy.settings import CellHost, Environments, Ports
from deploy.supervisor import Process

#: Order of stopping: first what brings work in, then what does it, then what it reports to,
#: then what it calls, and the engines last.
_ENTRY, _WORK, _REPORTS, _TARGETS, _ENGINES = range(5)
#: Threads for each of the control plane's queues (see controlplane/celery.py).
_QUEUES = {"driving": 6, "sending": 3, "long": 3}


def engine_process(engine: Engine) -> Process:
    """An engine as a child."""
    return Process(
        name=engine.name,
        prepare=engine.prepare,
        spawn=engine.spawn,
        ready=engine.ready,
        stop_signal=engine.stop_signal,
        stage=_ENGINES,
    )


class Processes:
    """The Python processes."""

    def __init__(self, home: Home, environments: Environments, ports: Ports) -> None:
        self._home = home
        self._environments = environments
        self._ports = ports

    def cell(self, host: CellHost) -> Process:
        """A process of a cell."""
        return self._http(host.name, ["-m", "cells.host"], self._environments.cell(host), _WORK)

    def router(self) -> Process:
        """The router in front of the API."""
        (self._home.folder / "router").mkdir(mode=0o700, exist_ok=True)
        return self._http("router", ["-m", "controlplane.routing"], self._environments.router(), _ENTRY)

    def django(self) -> Process:
        """Console and management API."""
        command = [
            *("-m", "granian", "--interface", "wsgi", "--host", LOOPBACK),
            *("--port", str(self._ports.of("django")), "--workers", "1", "--blocking-threads", "4"),
            *("--workers-kill-timeout", "20", "--respawn-failed-workers", "--no-ws"),
            "controlplane.wsgi:application",
        ]
        return self._http("django", command, self._environments.control(), _REPORTS)

    def echo(self) -> Process:
        """The target of the demo jobs."""
        return self._http("echo", ["-m", "deploy.echo"], self._environments.echo(), _TARGETS)

    def celery_workers(self, *, one: bool) -> list[Process]:
        """The control plane's background work: a worker for each of its queues, or the first for all."""
        if one:
            return [self._celery_worker(tuple(_QUEUES), sum(_QUEUES.values()))]
        return [self._celery_worker((queue,), threads) for queue, threads in _QUEUES.items()]

    def _celery_worker(self, queues: Sequence[str], threads: int) -> Process:
        name, served = queues[0], ",".join(queues)
        command = [
            *("-m", "celery", "-A", "controlplane", "worker", "-Q", served, "--concurrency", str(threads)),
            *("--hostname", f"{name}@%h", "--without-gossip", "--without-mingle", "--loglevel", "INFO"),
        ]
        return self._quiet(f"celery-{name}", command, _WORK, says=" ready.")

    def celery_beat(self) -> Process:
        """What starts it regularly."""
        schedule = self._home.folder / "beat"
        schedule.mkdir(mode=0o700, exist_ok=True)
        command = [
            *("-m", "celery", "-A", "controlplane", "beat", "--pidfile", ""),
            *("--schedule", str(schedule / "schedule"), "--loglevel", "INFO"),
        ]
        return self._quiet("celery-beat", command, _ENTRY, says="beat: Starting...")

    def _http(self, name: str, command: Sequence[str], env: Mapping[str, str], stage: int) -> Process:
        port = self._ports.of(name)
        return Process(name=name, spawn=_python(command, env), ready=lambda: is_ready(port), stage=stage)

    def _quiet(self, name: str, command: Sequence[str], stage: int, *, says: str) -> Process:
        """A process without a port: it is ready when its log says so."""
        spawn = _python(command, self._environments.control())
        log_file = self._home.logs / f"{name}.log"
        began = 0

        def note_and_spawn(log: IO[bytes]) -> subprocess.Popen[bytes]:
            nonlocal began
            began = os.fstat(log.fileno()).st_size
            return spawn(log)

        def ready() -> bool:
            with log_file.open("rb") as file:
                file.seek(began)
                return says.encode() in file.read()

        return Process(name=name, spawn=note_and_spawn, ready=ready, stage=stage)


def http_process(
    name: str,
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    port: int,
    ready: Callable[[int], bool] | None = None,
    entry: bool = False,
    keeps_engines: bool = False,
) -> Process:
    """A Python process that answers on a port. `ready` (`is_ready`) tells that it is there. `entry`: it
    brings work in; `keeps_engines`: others need it until the engines stop."""
    answers = ready or is_ready
    return Process(
        name=name,
        spawn=_python(command, env),
        ready=lambda: answers(port),
        stage=_ENTRY if entry else _TARGETS if keeps_engines else _WORK,
    )


def _python(command: Sequence[str], env: Mapping[str, str]) -> Callable[[IO[bytes]], subprocess.Popen[bytes]]:
    def spawn(log: IO[bytes]) -> subprocess.Popen[bytes]:
        return children.spawn([sys.executable, *command], log=log, cwd=ROOT, env=env)

    return spawn


def is_ready(port: int) -> bool:
    """Whether `/readyz` on a loopback port answers 200."""
    return _get(port, "/readyz")[0] == 200


def is_healthy(port: int) -> bool:
    """Whether `/healthz` does: it lives, and may have nothing to do."""
    return _get(port, "/healthz")[0] == 200


def read_status(port: int) -> dict[str, Any]:
    """The JSON object at `/status`; empty while there is none."""
    status, body = _get(port, "/status")
    try:
        told = json.loads(body) if status == 200 else {}
    except json.JSONDecodeError:
        return {}
    return told if isinstance(told, dict) else {}


def _get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=3)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()
