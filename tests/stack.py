"""The whole product in a temporary folder, for acceptance, chaos and browser tests, proofs and benches.

with Stack() as stack:
    stack.api().post("/v1/jobs", json=…)
    stack.kill("cell-local-shared-1")      # it comes back by itself
    stack.stop_process("valkey-local-shared-1")
    …
    stack.start_process("valkey-local-shared-1")
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import psycopg

from deploy import children, ctl
from deploy.engines import temporary_folder
from deploy.home import ROOT, Home, read_json
from deploy.logs import tail
from tests.waiting import eventually_sync

#: Generous: several stacks and a test run may share two cores.
START_SECONDS = 120.0


class Stack:
    """One installation with its supervisor. A context manager; it can be stopped and started again."""

    module: ClassVar[str] = "deploy.dev"
    start_seconds: ClassVar[float] = START_SECONDS

    def __init__(self, *, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
        """`environment` goes to all processes (`CLOCKHOUSE_DEMO_JOBS=0`, `CELL_EXECUTOR_SLOTS=…`).

        With `folder` the data stays there when the stack ends.
        """
        # Each Celery process costs some seconds of a core at every start.
        self._environment = {"CLOCKHOUSE_CELERY_WORKERS": "1", **(environment or {})}
        self._resources = ExitStack()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._home: Home | None = None

    # --- the whole ---------------------------------------------------------------------------
    def __enter__(self) -> Self:
        if self._folder is None:
            self._folder = self._resources.enter_context(temporary_folder())
        try:
            self.up()
        except BaseException:
            self._resources.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.down()
        finally:
            self._resources.close()

    @property
    def home(self) -> Home:
        """Its folder."""
        if self._home is None:
            raise RuntimeError("the stack has not been started")
        return self._home

    @property
    def output(self) -> Path:
        """What the supervisor says."""
        return self.home.folder.parent / f"{self.home.folder.name}.out"

    def up(self) -> None:
        """Start everything; returns when all of it is ready and the demo is seeded."""
        if self._folder is None:
            raise RuntimeError("enter the stack first")
        self._home = Home(self._folder / "home")
        # A test's own Django settings are not those of the product it starts.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("CONTROL_")}
        environment = {**inherited, **self._environment, "CLOCKHOUSE_HOME": str(self.home.folder)}
        with self.output.open("ab") as output:
            process = children.spawn(
                [sys.executable, "-m", self.module], log=output, cwd=ROOT, env=environment
            )
        self._process = process
        eventually_sync(lambda: process.poll() is not None or self.home.dev.exists(), self.start_seconds)
        if process.returncode is not None:
            raise RuntimeError(f"the stack did not start:\n{tail(self.output, 60)}")

    def down(self) -> None:
        """Drain and stop everything; the data stays for the next `up`."""
        if self._process is not None:
            children.stop(self._process, grace_seconds=90)

    def kill_supervisor(self) -> None:
        """What a crash of the machine's supervisor looks like. `up` must work afterwards."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self.home.dev.unlink(missing_ok=True)  # so that `up` waits for the new one

    # --- single processes --------------------------------------------------------------------
    def pid(self, name: str) -> int:
        """The process id of a running process."""
        pid = self.info["processes"][name]
        if pid is None:
            raise RuntimeError(f"{name} is down")
        return int(pid)

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a process a signal. What dies is started again by the supervisor."""
        os.kill(self.pid(name), how)

    def stop(self, name: str, *, kill: bool = False) -> None:
        """Take a process down (with `kill`: by force) until `start`."""
        ctl.set_wanted(self.home, name, up=False, kill=kill)

    def start(self, name: str) -> None:
        """Bring a process back; returns when it is ready."""
        ctl.set_wanted(self.home, name, up=True)

    def restart(self, name: str) -> None:
        """Stop a process gently and start it again."""
        self.stop(name)
        self.start(name)

    def wait_until_replaced(self, name: str, pid: int, timeout: float = 30.0) -> int:
        """Wait until another process than `pid` is ready under the name; its id."""

        def replaced() -> int | None:
            now = read_json(self.home.status).get("processes", {}).get(name, {})
            return now["pid"] if now.get("condition") == "ready" and now["pid"] not in (None, pid) else None

        return eventually_sync(replaced, timeout) or 0

    def log(self, name: str) -> str:
        """The end of a process's log."""
        return tail(self.home.logs / f"{name}.log", 200)

    # --- where things are --------------------------------------------------------------------
    @property
    def info(self) -> dict[str, Any]:
        """`dev.json` as it is now."""
        return read_json(self.home.dev)

    @property
    def echo_url(self) -> str:
        """Base URL of the echo target."""
        return str(self.info["echo_url"])

    @property
    def printed_curl(self) -> str:
        """The line that the start-up message offers for pasting."""
        return str(self.info["curl"])

    def database(self, cell: str) -> psycopg.Connection[Any]:
        """A connection to a cell's database; the caller closes it."""
        return psycopg.connect(self.info["cells"][cell]["database_url"], autocommit=True)
