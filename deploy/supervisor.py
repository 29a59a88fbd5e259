"""Keeps a set of child processes running: starts, watches, restarts and stops them.

One asyncio task for each child. What a child does now stands in `status.json`; a file
`down/<name>` asks for a child to stay down, so that no socket or permission is needed to
stop and start single processes from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from deploy.children import CannotStart
from deploy.home import Home, write_atomically
from deploy.logs import cut_grown, open_log, tail

_FIRST_BACKOFF_SECONDS = 0.2
_LONGEST_BACKOFF_SECONDS = 5.0
#: A child that has run this long is healthy again: its next end starts the backoff anew.
_HEALTHY_SECONDS = 10.0
#: A start is given up after this many ends in a row.
_TRIES_AT_START = 3
_WATCH_SECONDS = 0.1
_PROBE_SECONDS = 0.05


class Condition(enum.StrEnum):
    """What a child does now."""

    STARTING = "starting"  # prepared or spawned, does not answer yet
    READY = "ready"  # has answered
    WAITING = "waiting"  # has ended by itself, will be started again
    STOPPED = "stopped"  # down because somebody asked


@dataclass(frozen=True, kw_only=True)
class Process:
    """A child to keep: how to start it, and how to tell that it is there."""

    name: str
    spawn: Callable[[IO[bytes]], subprocess.Popen[bytes]]  # called in the main thread
    ready: Callable[[], bool]  # may block; called in another thread
    prepare: Callable[[], None] | None = None  # before each spawn; called in another thread
    stop_signal: signal.Signals = signal.SIGTERM
    grace_seconds: float = 30.0  # how long it may take to drain
    stage: int = 0  # children of a lower stage are stopped first


class Supervisor:
    """The children of one installation."""

    def __init__(self, home: Home, *, say: Callable[[str], None], changed: Callable[[], None]) -> None:
        self._home = home
        self._say = say
        self._changed = changed
        self._children: dict[str, Child] = {}
        self._threads = ThreadPoolExecutor(max_workers=32, thread_name_prefix="probe")
        self._watcher: asyncio.Task[None] | None = None

    @property
    def pids(self) -> dict[str, int | None]:
        """Process ids by name; None for one that is down."""
        return {name: child.pid for name, child in sorted(self._children.items())}

    async def start(self, process: Process, *, timeout_seconds: float = 90.0) -> None:
        """Start a child and return when it answers; `CannotStart` with its log when it does not."""
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())
        child = Child(process, home=self._home, threads=self._threads, say=self._say, changed=self._note)
        self._children[process.name] = child
        await child.start(timeout_seconds)

    async def stop(self) -> None:
        """Stop all children, stage by stage, each as gently as it allows."""
        if self._watcher is not None:
            self._watcher.cancel()
        stages = sorted({child.process.stage for child in self._children.values()})
        for stage in stages:
            await asyncio.gather(
                *(child.end() for child in self._children.values() if child.process.stage == stage)
            )
        self._threads.shutdown(wait=False, cancel_futures=True)

    def kill(self) -> None:
        """Do not wait for anybody any longer."""
        for child in self._children.values():
            child.kill()

    def _note(self) -> None:
        write_atomically(
            self._home.status,
            {
                "supervisor": os.getpid(),
                "processes": {
                    name: {"condition": child.condition, "pid": child.pid, "restarts": child.restarts}
                    for name, child in sorted(self._children.items())
                },
            },
        )
        self._changed()

    async def _watch(self) -> None:
        next_cut = 0.0
        while True:
            down = {path.name: path for path in self._home.down.iterdir()}
            for name, child in self._children.items():
                child.want(up=name not in down)
                if name in down and child.pid is not None and _read(down[name]) == "KILL":
                    child.kill()
            if time.monotonic() >= next_cut:
                next_cut = time.monotonic() + 5
                await asyncio.to_thread(cut_grown, self._home.logs)
            await asyncio.sleep(_WATCH_SECONDS)


class Child:
    """One child and the task that keeps it."""

    def __init__(
        self,
        process: Process,
        *,
        home: Home,
        threads: ThreadPoolExecutor,
        say: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self.process = process
        self.condition = Condition.STARTING
        self.restarts = 0
        self._home = home
        self._threads = threads
        self._say = say
        self._changed = changed
        self._popen: subprocess.Popen[bytes] | None = None
        self._up = True
        self._wanted_otherwise = asyncio.Event()
        self._answered = asyncio.Event()
        self._log_start = 0
        self._keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None while it is down."""
        return self._popen.pid if self._popen is not None and self._popen.returncode is None else None

    async def start(self, timeout_seconds: float) -> None:
        """Begin to keep the child; return when it has answered for the first time."""
        self._keeper = asyncio.create_task(self._keep(), name=self.process.name)
        self._keeper.add_done_callback(self._report)
        answered = asyncio.create_task(self._answered.wait())
        try:
            done, _ = await asyncio.wait(
                {answered, self._keeper}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            answered.cancel()
        if self._keeper in done:
            self._keeper.result()  # raises why it gave up
        if not done:
            raise self._cannot_start(f"did not become ready within {timeout_seconds:.0f} s")

    def _report(self, keeper: asyncio.Task[None]) -> None:
        if self._answered.is_set() and not keeper.cancelled() and keeper.exception() is not None:
            self._say(f"{self.process.name} is no longer looked after: {keeper.exception()!r}")

    def want(self, *, up: bool) -> None:
        """Say whether the child shall be up."""
        if up != self._up:
            self._up = up
            self._wanted_otherwise.set()

    async def end(self) -> None:
        """Stop the child for good."""
        if self._keeper is not None:
            self._keeper.cancel()
            # What the keeper failed with has been reported by `start`.
            await asyncio.wait({self._keeper})
        await self._stop()

    def kill(self) -> None:
        """End the child and all it started, at once."""
        if self._popen is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, signal.SIGKILL)

    async def _keep(self) -> None:
        backoff = _FIRST_BACKOFF_SECONDS
        while True:
            self._wanted_otherwise.clear()
            if not self._up:
                self._become(Condition.STOPPED)
                self._say(f"{self.process.name} is down until it is started again")
                await self._wanted_otherwise.wait()
                continue
            began = time.monotonic()
            why = await self._run_once()
            if why is None:
                continue
            if time.monotonic() - began > _HEALTHY_SECONDS:
                backoff = _FIRST_BACKOFF_SECONDS
            self.restarts += 1
            if not self._answered.is_set() and self.restarts >= _TRIES_AT_START:
                raise self._cannot_start(why)
            self._say(f"{self.process.name} {why}; starting it again in {backoff:.1f} s")
            self._become(Condition.WAITING)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted_otherwise.wait(), backoff)
            backoff = min(backoff * 2, _LONGEST_BACKOFF_SECONDS)

    async def _run_once(self) -> str | None:
        """Run the child until it ends (why) or shall be down (None)."""
        self._become(Condition.STARTING)
        loop = asyncio.get_running_loop()
        if self.process.prepare is not None:
            try:
                await loop.run_in_executor(self._threads, self.process.prepare)
            except (CannotStart, OSError) as failure:
                return f"cannot be prepared: {failure}"
        with open_log(self._home.logs, self.process.name) as log:
            self._log_start = os.fstat(log.fileno()).st_size
            try:
                self._popen = self.process.spawn(log)
            except OSError as failure:
                return f"cannot be started: {failure}"
        self._changed()
        ended = asyncio.create_task(_ended(self._popen))
        otherwise = asyncio.create_task(self._wanted_otherwise.wait())
        probe = asyncio.create_task(self._probe())
        try:
            await asyncio.wait({ended, otherwise}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (ended, otherwise, probe):
                task.cancel()
        if not self._up:
            await self._stop()
            return None
        self.kill()  # what it may have left of its own children
        return f"ended with {_status(self._popen.returncode)}"

    async def _probe(self) -> None:
        loop = asyncio.get_running_loop()
        while not await loop.run_in_executor(self._threads, self.process.ready):
            await asyncio.sleep(_PROBE_SECONDS)
        self._become(Condition.READY)
        self._answered.set()

    async def _stop(self) -> None:
        if self._popen is None:
            return
        self._popen.send_signal(self.process.stop_signal)  # a no-op where it has ended
        try:
            await asyncio.wait_for(_ended(self._popen), self.process.grace_seconds)
        except TimeoutError:
            self._say(f"{self.process.name} does not stop: killing it")
        self.kill()
        await _ended(self._popen)
        self._become(Condition.STOPPED)

    def _become(self, condition: Condition) -> None:
        self.condition = condition
        self._changed()

    def _cannot_start(self, why: str) -> CannotStart:
        log = self._home.logs / f"{self.process.name}.log"
        return CannotStart(
            f"{self.process.name} {why}. The end of {log}:\n{tail(log, since=self._log_start)}"
        )


async def _ended(popen: subprocess.Popen[bytes]) -> None:
    """Return when the child has ended, without asking all the time where the kernel tells us."""
    try:
        descriptor = os.pidfd_open(popen.pid)
    except (AttributeError, OSError):
        while popen.poll() is None:
            await asyncio.sleep(0.05)
        return
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(descriptor, gone.set)
    try:
        while popen.poll() is None:
            await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:  # taken back meanwhile
        return ""


def _status(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else str(code)
