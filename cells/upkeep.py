"""What a cell's tables need from time to time: partitions ahead, old idempotency keys away."""

from __future__ import annotations

import asyncio

from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Retryable, Store, Terminal

log = logger(__name__)

INTERVAL_SECONDS = 3600.0
#: A failed round is tried again after this long (seconds).
RETRY_SECONDS = 5.0
DAYS_AHEAD = 3
KEYS_KEPT_HOURS = 24


class Upkeep:
    """Belongs to the role `reaper`. Several do no harm: each step is idempotent."""

    def __init__(self, store: Store, metrics: Metrics):
        self._store = store
        self._purged = metrics.counter(
            "upkeep_idempotency_keys_purged_total", "Expired idempotency keys removed"
        )

    async def run(self, stop: asyncio.Event) -> None:
        """At once, then hourly, until `stop`."""
        while not stop.is_set():
            pause = INTERVAL_SECONDS
            try:
                await self._store.ensure_partitions(days_ahead=DAYS_AHEAD)
                self._purged.inc(await self._store.purge_idempotency_keys(older_than_hours=KEYS_KEPT_HOURS))
            except (Retryable, Terminal) as fault:
                pause = RETRY_SECONDS
                log.warning("upkeep failed", fault=str(fault)[:200])
            try:
                async with asyncio.timeout(pause):
                    await stop.wait()
            except TimeoutError:
                continue
