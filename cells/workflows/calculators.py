"""Has heavy values made by a few processes that can be killed, and remembers what they came to.

What a value came to is a function of what it is made of. Only a time or a memory that was used up is not: it
is told once, as a fault, and the step that needed the value fails with it for good, for that is recorded.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

import cells
from cells.domain.workflow.heavy import Outcome, Work
from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.workflows.calculating import CPU_SECONDS, MEMORY_BYTES, NO_MEMORY, PREFIX

log = logger(__name__)

#: Values at a time: never more than half of the processors, and of one tenant one.
PROCESSES = max(1, min(2, (os.cpu_count() or 1) // 2))
#: By the clock a value may take so many times its processor time, should the machine be busy: everything else
#: goes before it.
_PATIENCE = 60
_BEGIN_SECONDS = 30.0
#: A process that nobody needed for so long ends (seconds).
_IDLE_SECONDS = 30.0
#: Values that wait, of one tenant and in all, and their bytes; what is beyond asks again.
_WAITING_EACH, _WAITING, _WAITING_BYTES = 32, 256, 64 << 20
#: Outcomes that are remembered, and their bytes.
_KEPT, _KEPT_BYTES = 1_000, 32 << 20
#: A process that was ended from outside says nothing about its value, the first time.
_TRIES = 2
_decode = msgspec.json.Decoder(Outcome).decode


@dataclass(frozen=True, slots=True)
class _Child:
    process: asyncio.subprocess.Process
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader


class Calculators:
    """A pool. It has no processes until something heavy is asked for."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        made: Callable[[Iterable[Hashable]], None] = lambda _: None,
        processes: int = PROCESSES,
        seconds: float = CPU_SECONDS,
    ):
        """`made` is told who asked for a value that is there now."""
        self._told = made
        self._processes = processes
        self._seconds = seconds
        self._outcomes: OrderedDict[bytes, Outcome] = OrderedDict()
        self._kept_bytes = 0
        self._askers: dict[bytes, set[Hashable]] = {}
        self._waiting: OrderedDict[uuid.UUID, deque[Work]] = OrderedDict()  # tenants take turns
        self._at: set[uuid.UUID] = set()  # whose values are being made
        self._waiting_count = self._waiting_bytes = 0
        self._more = asyncio.Event()
        self._workers: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._idle = 0
        self._closed = False
        self._values = metrics.counter(
            "heavy_values_total", "Values made in processes of their own", ("outcome",)
        )

    def outcome(self, tenant: uuid.UUID, work: Work, asker: Hashable) -> Outcome | None:
        """What it came to, if it is known; else it is made, unless too much waits already."""
        digest = work.digest
        known = self._outcomes.get(digest)
        if known is not None:
            self._outcomes.move_to_end(digest)
            return known
        askers = self._askers.get(digest)
        if askers is not None:
            askers.add(asker)
            return None
        waiting = self._waiting.setdefault(tenant, deque())
        room = self._waiting_count < _WAITING and self._waiting_bytes + len(work.payload) <= _WAITING_BYTES
        if not room or len(waiting) >= _WAITING_EACH:
            return None
        waiting.append(work)
        self._askers[digest] = {asker}
        self._waiting_count += 1
        self._waiting_bytes += len(work.payload)
        self._more.set()
        self._hire()
        return None

    async def wait_for(self, tenant: uuid.UUID, work: Work) -> Outcome | None:
        """What it came to, once it is there; None where too much waits."""
        there = asyncio.Event()
        found = self.outcome(tenant, work, there)
        if found is not None or there not in self._askers.get(work.digest, ()):
            return found
        await there.wait()
        return self._outcomes.get(work.digest)

    async def close(self) -> None:
        """End the processes, whatever they are at."""
        self._closed = True
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await asyncio.gather(*self._ending, return_exceptions=True)
        self._drop_all()

    async def _dismiss(self, child: _Child) -> None:
        """End a process, even where whoever asked for it is cancelled meanwhile."""
        ending = asyncio.get_running_loop().create_task(_end(child), name="calculator-ends")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        await asyncio.shield(ending)

    def _hire(self) -> None:
        """Another worker, where more waits than there are idle ones."""
        if self._closed or self._waiting_count <= self._idle or len(self._workers) >= self._processes:
            return
        worker = asyncio.get_running_loop().create_task(self._work(), name="calculator")
        self._workers.add(worker)
        worker.add_done_callback(self._left)

    def _left(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        self._hire()  # for what came while it was leaving

    def _next(self) -> tuple[uuid.UUID, Work] | None:
        """The next one of the tenant whose turn it is, of those who have none at work."""
        for tenant, waiting in list(self._waiting.items()):
            if tenant in self._at:
                continue
            del self._waiting[tenant]
            if not waiting:
                continue
            work = waiting.popleft()
            if waiting:
                self._waiting[tenant] = waiting
            self._waiting_count -= 1
            self._waiting_bytes -= len(work.payload)
            return tenant, work
        self._more.clear()
        return None

    async def _work(self) -> None:
        child: _Child | None = None
        try:
            while True:
                taken = self._next()
                if taken is None:
                    self._idle += 1
                    try:
                        async with asyncio.timeout(_IDLE_SECONDS):
                            await self._more.wait()
                    except TimeoutError:
                        return
                    finally:
                        self._idle -= 1
                    continue
                tenant, work = taken
                outcome = None
                self._at.add(tenant)
                try:
                    for _ in range(_TRIES):
                        child = child or await self._begin()
                        outcome = await self._made_by(child, work)
                        if child.process.returncode is not None:
                            child = None
                        if outcome is not None:
                            break
                finally:
                    self._at.discard(tenant)
                    self._more.set()  # what else that tenant has may be somebody's turn now
                self._keep(work, outcome or Outcome(fault="could not be made: its process ended twice"))
        except Exception:
            # No process could be begun, or something failed in here. Whoever asked asks again.
            log.exception("values cannot be made")
            self._drop_all()
        finally:
            if child is not None:
                await self._dismiss(child)

    async def _begin(self) -> _Child:
        """One that has nothing of this process but where the code is. Raises `OSError`, `TimeoutError`."""
        beginning = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "cells.workflows.calculating",
                str(self._seconds),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={
                    "PATH": os.environ.get("PATH", ""),
                    "PYTHONPATH": str(Path(cells.__file__).parents[1]),
                    "LC_ALL": "C.UTF-8",
                },
            )
        )
        try:
            process = await asyncio.shield(beginning)
        except asyncio.CancelledError:
            # One that is half begun cannot be ended.
            process = await beginning
            process.kill()
            await process.communicate()
            raise
        if process.stdin is None or process.stdout is None:
            raise OSError("no pipes")
        child = _Child(process, process.stdin, process.stdout)
        try:
            async with asyncio.timeout(_BEGIN_SECONDS):
                await child.stdout.readexactly(PREFIX)
        except asyncio.IncompleteReadError:
            raise ChildProcessError(f"it ended at once, with status {await process.wait()}") from None
        except BaseException:
            await self._dismiss(child)
            raise
        return child

    async def _made_by(self, child: _Child, work: Work) -> Outcome | None:
        """None: the process was ended by something else than this value."""
        try:
            async with asyncio.timeout(self._seconds * _PATIENCE):
                child.stdin.write(len(work.payload).to_bytes(PREFIX) + work.payload)
                await child.stdin.drain()
                size = int.from_bytes(await child.stdout.readexactly(PREFIX))
                outcome = _decode(await child.stdout.readexactly(size))
        except TimeoutError:
            await self._dismiss(child)
            return self._took_too_long()
        except (asyncio.IncompleteReadError, ConnectionError):
            status = await child.process.wait()
            await self._dismiss(child)
            log.warning("a process that made a value has ended", status=status)
            if status == -signal.SIGXCPU:
                return self._took_too_long()
            if status in (-signal.SIGABRT, -signal.SIGSEGV, NO_MEMORY):
                # What cannot have more memory aborts.
                self._values.labels("memory").inc()
                return Outcome(fault=f"needs more than {MEMORY_BYTES >> 20} MB of memory")
            return None
        except BaseException:
            await self._dismiss(child)
            raise
        self._values.labels("value" if outcome.fault is None else "fault").inc()
        return outcome

    def _drop_all(self) -> None:
        """Nothing of what was asked for is made."""
        waiting = [asker for askers in self._askers.values() for asker in askers]
        self._askers.clear()
        self._waiting.clear()
        self._waiting_count = self._waiting_bytes = 0
        for asker in waiting:
            if isinstance(asker, asyncio.Event):
                asker.set()

    def _took_too_long(self) -> Outcome:
        self._values.labels("time").inc()
        return Outcome(fault=f"takes more than {self._seconds:g} seconds to make")

    def _keep(self, work: Work, outcome: Outcome) -> None:
        digest = work.digest
        self._outcomes[digest] = outcome
        self._kept_bytes += outcome.size
        while len(self._outcomes) > _KEPT or (self._kept_bytes > _KEPT_BYTES and len(self._outcomes) > 1):
            _, dropped = self._outcomes.popitem(last=False)
            self._kept_bytes -= dropped.size
        askers = self._askers.pop(digest, set())
        for asker in askers:
            if isinstance(asker, asyncio.Event):
                asker.set()
        self._told([asker for asker in askers if not isinstance(asker, asyncio.Event)])


async def _end(child: _Child) -> None:
    """Ended, with its pipes closed."""
    if child.process.returncode is None:
        child.process.kill()
    child.stdin.close()
    await child.stdout.read()
    with suppress(ConnectionError):
        await child.stdin.wait_closed()
    await child.process.wait()
