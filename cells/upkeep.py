"""What a cell's tables need from time to time: partitions ahead, and what is over away."""

from __future__ import annotations

import asyncio

from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Retryable, Store, Terminal

log = logger(__name__)

INTERVAL_SECONDS = 600.0
#: A failed round is tried again after this long (seconds).
RETRY_SECONDS = 5.0
DAYS_AHEAD = 3
#: Rows of a kind that go in one transaction, and the pause between two: others come first.
PAGE = 5000
PAUSE_SECONDS = 0.1


class Upkeep:
    """Belongs to the role `reaper`. Several do no harm: each step is idempotent."""

    def __init__(self, store: Store, metrics: Metrics, *, page: int = PAGE):
        self._store = store
        self._page = page
        self._purged = metrics.counter("upkeep_rows_purged_total", "Rows whose time was over", ["what"])
        self._days = metrics.counter("upkeep_journal_days_dropped_total", "Days of the journal dropped")

    async def run(self, stop: asyncio.Event) -> None:
        """At once, then every ten minutes, until `stop`."""
        while not stop.is_set():
            pause = INTERVAL_SECONDS
            try:
                await self._store.ensure_partitions(days_ahead=DAYS_AHEAD)
                await self._purge(stop)
            except (Retryable, Terminal) as fault:
                pause = RETRY_SECONDS
                log.warning("upkeep failed", fault=str(fault)[:200])
            await _stopped_within(stop, pause)

    async def _purge(self, stop: asyncio.Event) -> None:
        """Page by page until nothing is over; one day of the journal a round is enough."""
        while True:
            gone = await self._store.purge(page=self._page)
            for what, rows in gone.items():
                self._purged.labels(what).inc(rows)
            if all(rows < self._page for rows in gone.values()):
                break
            if await _stopped_within(stop, PAUSE_SECONDS):
                return
        try:
            self._days.inc(await self._store.drop_journal_day())
        except Retryable as fault:
            log.info("the journal is busy; its oldest day stays until the next round", fault=str(fault)[:200])


async def _stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return False
    return True
