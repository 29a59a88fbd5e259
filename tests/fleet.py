"""One cell with several hosts, each of which can be killed, stopped, or given a wrong clock.

with fleet(target_url) as cell:
    for name in "abc": cell.start(name)
    cell.kill("a"); cell.step("b", 2000); cell.restart_valkey()
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import redis

from cells.contract import Caller, Scope, sign_request
from cells.domain import ids
from deploy import children
from deploy.engines import Engine, Postgres, Valkey, new_password, temporary_folder, wait_until_ready
from deploy.home import ROOT
from deploy.ports import Reservation
from tests.bench.cell import CELL, TARGET, BenchCell
from tests.stepped_host import step
from tests.waiting import eventually_sync

READY_SECONDS = 60.0


class RunningEngine:
    """An engine that can be ended in any way and started again on its data."""

    def __init__(self, engine: Engine, log: Path) -> None:
        self._engine = engine
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        self._engine.prepare()
        with self._log.open("ab") as log:
            child = self._child = self._engine.spawn(log)
        wait_until_ready(self._engine, child, self._log)

    def stop(self, how: signal.Signals | None = None) -> None:
        """End it: gently, or by that signal."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(how or self._engine.stop_signal)
            try:
                self._child.wait(30)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()


@dataclass
class Host:
    """A process of the cell."""

    name: str
    url: str
    clock: Path
    log: Path
    process: subprocess.Popen[bytes]

    def answers(self) -> bool:
        """Whether it is ready."""
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def metric(self, name: str) -> float:
        """A metric, all labels added up."""
        lines = httpx.get(f"{self.url}/metrics", timeout=10).text.splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{"))
        )


@dataclass
class Fleet:
    """The cell."""

    cell: BenchCell
    postgres: RunningEngine
    valkey: RunningEngine
    hosts: dict[str, Host] = field(default_factory=dict)
    _ports: dict[str, Reservation] = field(default_factory=dict)

    # --- hosts -----------------------------------------------------------------------
    def launch(self, name: str, roles: str | None = None) -> Host:
        """Start a process under this name (again) without waiting for it."""
        reservation = self._ports.setdefault(name, Reservation())
        folder = self.cell.folder
        clock, log = folder / f"{name}.clock", folder / f"{name}.log"
        step(clock, 0)
        environment = {
            **os.environ,
            "CELL_NAME": CELL,
            "CELL_REGION": "local",
            "CELL_DATABASE_URL": self.cell.database_url,
            "CELL_VALKEY_URL": self.cell.valkey_url,
            "CELL_BIND": f"127.0.0.1:{reservation.port}",
            "CELL_KEYS": f"{CELL}:{self.cell.key_hex}",
            "CELL_INSTALLATION_KEY": self.cell.installation_key,
            "CELL_CONTROL_URL": "",
            "CELL_EGRESS_ALLOW": "loopback",
            "CELL_EXECUTOR_SLOTS": "128",
            "STEPPED_CLOCK": str(clock),
        }
        command = [sys.executable, "-m", "tests.stepped_host", *(["--roles", roles] if roles else [])]
        with log.open("ab") as output:
            process = children.spawn(command, log=output, cwd=ROOT, env=environment)
        url = f"http://127.0.0.1:{reservation.port}"
        self.hosts[name] = Host(name=name, url=url, clock=clock, log=log, process=process)
        return self.hosts[name]

    def start(self, name: str, roles: str | None = None) -> Host:
        """The same; returns when it is ready."""
        host = self.launch(name, roles)
        eventually_sync(host.answers, timeout=READY_SECONDS)
        return host

    def start_all(self, names: Iterable[str], roles: str | None = None) -> None:
        """Several at once."""
        for host in [self.launch(name, roles) for name in names]:
            eventually_sync(host.answers, timeout=READY_SECONDS)

    def kill(self, name: str) -> None:
        """As a crash does it."""
        process = self.hosts[name].process
        process.kill()
        process.wait()

    def suspend(self, name: str) -> None:
        """SIGSTOP: it neither works nor dies."""
        self.hosts[name].process.send_signal(signal.SIGSTOP)

    def wake(self, name: str) -> None:
        """SIGCONT: it goes on as if nothing had happened."""
        self.hosts[name].process.send_signal(signal.SIGCONT)

    def step(self, name: str, ahead_ms: int) -> None:
        """Put its wall clock ahead (or back) of the machine's."""
        step(self.hosts[name].clock, ahead_ms)

    def close(self) -> None:
        """Drain all hosts."""
        for host in self.hosts.values():
            with contextlib.suppress(ProcessLookupError):
                host.process.send_signal(signal.SIGCONT)
            host.process.terminate()
        for host in self.hosts.values():
            try:
                host.process.wait(30)
            except subprocess.TimeoutExpired:
                host.process.kill()
                host.process.wait()
        for reservation in self._ports.values():
            reservation.release()

    # --- engines ---------------------------------------------------------------------
    def restart_postgres(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it (SIGINT: fast, SIGQUIT: at once) and start it on its data."""
        self.postgres.stop(how)
        self.postgres.start()

    def restart_valkey(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it and start it on its data."""
        self.valkey.stop(how)
        self.valkey.start()

    def flush_valkey(self) -> None:
        """Everything in it is gone."""
        with redis.Redis.from_url(self.cell.valkey_url) as client:
            client.flushall()

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Rows of a question to the cell's database."""
        with psycopg.connect(self.cell.database_url, autocommit=True) as connection:
            return connection.execute(sql.encode(), parameters or None).fetchall()

    # --- the API ---------------------------------------------------------------------
    def create_job(self, http: httpx.Client, host: Host, body: dict[str, Any], key: str) -> httpx.Response:
        """POST /v1/jobs at one host, signed as the router does it."""
        headers = sign_request(
            kid=CELL,
            secret=bytes.fromhex(self.cell.key_hex),
            now_ms=time.time_ns() // 1_000_000,
            method="POST",
            target="/v1/jobs",
            caller=Caller(
                tenant_id=ids.encode(ids.TENANT, self.cell.tenant_id),
                actor="key:fleet",
                scopes=(Scope.ADMIN.value,),
                epoch=1,
            ),
        )
        return http.post(
            f"{host.url}/v1/jobs",
            content=json.dumps(body).encode(),
            headers={**headers, "Idempotency-Key": key, "Content-Type": "application/json"},
        )


@contextmanager
def fleet(target_url: str) -> Iterator[Fleet]:
    """A fresh cell on durable engines, its tenant placed and its target approved. No host runs yet."""
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        ports = [Reservation(), Reservation()]
        password = new_password()
        postgres = Postgres(folder / "postgres", port=ports[0].port, password=password)
        valkey = Valkey(folder / "valkey", port=ports[1].port, password=password)
        engines = [
            RunningEngine(postgres, folder / "postgres.log"),
            RunningEngine(valkey, folder / "valkey.log"),
        ]
        for engine in engines:
            stack.callback(engine.stop)
            engine.start()
        cell = BenchCell(
            folder=folder,
            database_url=postgres.url,
            valkey_url=valkey.url,
            engine_pids={},
            target_url=target_url,
        )
        cell.migrate()
        asyncio.run(cell.prepare())
        made = Fleet(cell=cell, postgres=engines[0], valkey=engines[1])
        stack.callback(made.close)
        yield made
        for port in ports:
            port.release()


class Load:
    """Makes jobs at a steady pace through the APIs of the hosts in turn, each due a little later.

    `made` are the idempotency keys that the target must see: of jobs whose creation was answered.
    """

    def __init__(
        self,
        cell: Fleet,
        *,
        per_second: float,
        ahead_seconds: tuple[int, int] = (1, 6),
        hosts: Mapping[str, Host] | None = None,
    ) -> None:
        self._cell = cell
        self._hosts = hosts if hosts is not None else cell.hosts
        self._pause = 1 / per_second
        self._ahead = ahead_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.made: set[str] = set()
        self.unanswered = 0
        self._fault: Exception | None = None

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Make no more."""
        self._stop.set()
        self._thread.join(60)
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            self._make()
        except Exception as fault:  # noqa: BLE001 - raised again where the load is finished
            self._fault = fault

    def _make(self) -> None:
        low, high = self._ahead
        began = time.monotonic()
        creations = []
        with httpx.Client(timeout=3.0) as http, ThreadPoolExecutor(8) as pool:
            for number in itertools.count():
                if self._stop.wait(max(0.0, began + number * self._pause - time.monotonic())):
                    break
                at = time.strftime(
                    "%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + low + number % (high - low))
                )
                body = {
                    "schedule": {"type": "ONCE", "run_at": at},
                    "target": {"type": "HTTP", "target_id": TARGET, "path": "/run", "timeout_seconds": 5},
                    "dispatch_window_seconds": 1,
                    "retry_policy": {
                        "max_attempts": 20,
                        "initial_backoff_seconds": 1,
                        "max_backoff_seconds": 4,
                    },
                    "payload": {"number": number},
                }
                creations.append(pool.submit(self._create, http, body, at, number))
            for creation in creations:
                creation.result()

    def _create(self, http: httpx.Client, body: dict[str, Any], at: str, number: int) -> None:
        key = str(uuid.UUID(int=secrets.randbits(128)))
        hosts = list(self._hosts.values())
        for turn in range(len(hosts)):
            try:
                answer = self._cell.create_job(http, hosts[(number + turn) % len(hosts)], body, key)
            except httpx.TransportError:
                continue
            if answer.status_code in (200, 201):  # 200: made before, the answer was lost
                self.made.add(f"{answer.json()['job_id']}:{at}")
                return
            if answer.status_code < 500:
                raise RuntimeError(f"a job was refused: {answer.status_code} {answer.text}")
        self.unanswered += 1
