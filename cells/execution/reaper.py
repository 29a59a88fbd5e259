"""Takes back runs whose executor died or overstayed its lease."""

from __future__ import annotations

import asyncio

from cells.execution.handing_on import HandingOn
from cells.execution.host_agent import HostAgent
from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Queue, Retryable, Store, Terminal

log = logger(__name__)

INTERVAL_SECONDS = 1.0
#: After this host registered it first lets others (and itself) record what finished while the
#: store was away; then it takes back.
SETTLE_SECONDS = 2.0
_LIMIT = 1000


class Reaper:
    """Role `reaper`. Any number of hosts may run it."""

    def __init__(self, store: Store, queue: Queue, host: HostAgent, metrics: Metrics):
        self._store = store
        self._host = host
        self._onward = HandingOn(queue, metrics)
        self._reaped = metrics.counter("reaper_runs_reclaimed_total", "Runs taken back from dead executors")

    async def run(self, stop: asyncio.Event) -> None:
        """Look every second until `stop`."""
        while not stop.is_set():
            full = False
            if self._host.settled(SETTLE_SECONDS):
                try:
                    full = await self._reap()
                except (Retryable, Terminal) as fault:
                    log.warning("cannot reap", fault=str(fault)[:200])
            if full:
                continue
            try:
                async with asyncio.timeout(INTERVAL_SECONDS):
                    await stop.wait()
            except TimeoutError:
                continue

    async def _reap(self) -> bool:
        members = await self._store.reap(host_id=self._host.host_id, limit=_LIMIT)
        if members:
            self._reaped.inc(len(members))
            log.warning("runs reclaimed", runs=len(members))
            await self._onward.add(members)
        return len(members) >= _LIMIT
