"""Group commit of completions.

Finished attempts are collected for a few milliseconds and written in one transaction. One is
under way at a time; what finishes meanwhile makes the next one bigger, which is what makes
it cheap under load. While the store is away they are kept and tried again as long as their
leases hold.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cells.domain.run import AttemptOutcome, RunState
from cells.execution.handing_on import HandingOn
from cells.execution.host_agent import HostAgent
from cells.execution.lanes import Work
from cells.observability.logs import logger
from cells.observability.metrics import SIZE_BUCKETS, Metrics
from cells.ports import Clock, Completion, Retryable, Store

log = logger(__name__)

MAX_BATCH = 500
#: How long the first completion of a batch waits for company (seconds): little where little
#: comes, more under load.
MIN_WINDOW = 0.002
MAX_WINDOW = 0.010
_BUSY = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pending:
    completion: Completion
    work: Work


class Completions:
    """Collects with `add`, writes in `run`."""

    def __init__(
        self,
        store: Store,
        onward: HandingOn,
        host: HostAgent,
        clock: Clock,
        metrics: Metrics,
        *,
        done: Callable[[Work], None],
    ):
        self._store = store
        self._onward = onward
        self._host = host
        self._clock = clock
        self._done = done  # told of each work that is written or given up
        self._pending: deque[_Pending] = deque()
        self._wake = asyncio.Event()
        self._full = asyncio.Event()
        self._closing = False
        self._writing = 0
        self._size = metrics.histogram(
            "executor_group_commit_size", "Completions written in one transaction", buckets=SIZE_BUCKETS
        )
        self._seconds = metrics.histogram(
            "executor_group_commit_seconds", "Completion transactions, from call to answer"
        )
        attempts = metrics.counter("executor_attempts_total", "Attempts recorded, by outcome", ["outcome"])
        self._attempts = {outcome: attempts.labels(outcome.value) for outcome in AttemptOutcome}
        self._retries = metrics.counter("executor_retries_total", "Attempts that will be followed by another")
        self._dlq = metrics.counter("executor_dlq_entries_total", "Runs that ended in the dead-letter queue")
        self._rejections = metrics.counter(
            "executor_epoch_rejections_total", "Completions refused: the run had been claimed anew or ended"
        )
        self._dropped = metrics.counter(
            "executor_completions_dropped_total", "Completions given up: lease over, or never acceptable"
        )
        metrics.gauge("executor_completions_pending", "Completions not yet committed").set_function(
            lambda: float(len(self))
        )

    def __len__(self) -> int:
        return len(self._pending) + self._writing

    def add(self, work: Work, completion: Completion) -> None:
        """Have it written with the next batch."""
        pending = self._pending
        pending.append(_Pending(completion=completion, work=work))
        if len(pending) == 1:
            self._wake.set()
        elif len(pending) == MAX_BATCH:
            self._full.set()

    async def run(self) -> None:
        """Write until `close` was called and all is written."""
        last = 0
        while True:
            if not self._pending:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            if not self._closing and len(self._pending) < MAX_BATCH:
                await self._collect(MIN_WINDOW if last <= _BUSY else MAX_WINDOW)
            last = min(len(self._pending), MAX_BATCH)
            batch = [self._pending.popleft() for _ in range(last)]
            self._writing = last
            try:
                await self._write(batch)
            finally:
                self._writing = 0

    def close(self) -> None:
        """Take no more time than needed from here on."""
        self._closing = True
        self._wake.set()
        self._full.set()

    async def _collect(self, window: float) -> None:
        self._full.clear()
        try:
            async with asyncio.timeout(window):
                await self._full.wait()
        except TimeoutError:
            return

    async def _write(self, batch: Sequence[_Pending]) -> None:
        pause = 0.02
        while True:
            now = self._clock.monotonic()
            held = [p for p in batch if p.work.lease_until > now]
            if len(held) < len(batch):
                over = [p for p in batch if p.work.lease_until <= now]
                self._drop(over, "the lease ended before the store took it")
            if not held:
                return
            batch = held
            completions = [p.completion for p in batch]
            try:
                result = await self._store.complete(completions, host_id=self._host.host_id)
            except Retryable as fault:
                log.warning("completions wait for the store", waiting=len(self), fault=str(fault)[:200])
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
            except Exception as fault:  # noqa: BLE001 - the refused one is logged below
                # One of them is not acceptable: find it, and do not let the others pay for it.
                if len(batch) == 1:
                    self._drop(batch, f"{type(fault).__name__}: {fault}")
                else:
                    middle = len(batch) // 2
                    await self._write(batch[:middle])
                    await self._write(batch[middle:])
                return
            else:
                self._seconds.observe(self._clock.monotonic() - now)
                self._count(completions, result.applied)
                for pending in batch:
                    self._done(pending.work)
                await self._onward.add(result.retries)
                return

    def _count(self, completions: Sequence[Completion], applied: Sequence[bool]) -> None:
        self._size.observe(len(completions))
        for completion, took in zip(completions, applied, strict=True):
            if not took:
                self._rejections.inc()
                continue
            self._attempts[completion.attempt.outcome].inc()
            if completion.state is RunState.RETRY_WAIT:
                self._retries.inc()
            elif completion.state is RunState.FAILED:
                self._dlq.inc()

    def _drop(self, over: Sequence[_Pending], why: str) -> None:
        self._dropped.inc(len(over))
        log.error("completions dropped; their runs will be reclaimed", count=len(over), why=why[:200])
        for pending in over:
            self._done(pending.work)
