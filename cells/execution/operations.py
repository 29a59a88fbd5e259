"""Works through bulk operations, at the pace each was given."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from cells.execution.handing_on import HandingOn
from cells.execution.host_agent import HostAgent
from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Clock, OperationStep, Queue, Retryable, Store, Terminal

log = logger(__name__)

#: How long an idle worker waits before it looks again.
INTERVAL_SECONDS = 0.5
#: While an operation runs, its next slice may be due sooner.
BUSY_SECONDS = 0.02


class Operations:
    """Belongs to the role `reaper`. Any number of hosts may run it: they share each operation's pace,
    and what one leaves undone the others take up."""

    def __init__(self, store: Store, queue: Queue, host: HostAgent, clock: Clock, metrics: Metrics):
        self._store = store
        self._queue = queue
        self._host = host
        self._clock = clock
        self._onward = HandingOn(queue, metrics)
        self._items = metrics.counter("operations_items_total", "Jobs that bulk operations have dealt with")

    async def run(self, stop: asyncio.Event) -> None:
        """Step by step until `stop`."""
        while not stop.is_set():
            pause = INTERVAL_SECONDS
            try:
                if await self.step() is not None:
                    pause = BUSY_SECONDS
            except (Retryable, Terminal) as fault:
                log.warning("cannot work on operations", fault=str(fault)[:200])
            try:
                async with asyncio.timeout(pause):
                    await stop.wait()
            except TimeoutError:
                continue

    async def step(self) -> OperationStep | None:
        """One slice of one operation, if any is due."""
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        step = await self._store.step_operation(host_id=self._host.host_id, now=now)
        if step is None:
            return None
        operation = step.operation
        self._items.inc(len(step.removed) + len(step.added))
        await self._onward.remove(step.removed)
        await self._onward.add(step.added)
        if operation.state != "RUNNING":
            log.info(
                "operation ended",
                operation=str(operation.operation_id),
                action=operation.action.value,
                done=operation.done,
                unchanged=operation.unchanged,
                failed=operation.failed,
            )
        return step
