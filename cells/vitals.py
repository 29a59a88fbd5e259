"""Looks at what hurts a cell before anybody notices, and shows it as metrics.

A transaction that stays open keeps every row that died since in the tables, and due scans walk over
them: its age is watched. So are shards that nobody releases, overdue timers, open dead letters.
"""

from __future__ import annotations

import asyncio

from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Retryable, Store, Terminal

log = logger(__name__)

INTERVAL_SECONDS = 15.0
#: An open transaction of that age is told in the log, once (seconds).
HELD_SECONDS = 300.0


class VitalSigns:
    """Belongs to the role `reaper`; every process that has it shows the same."""

    def __init__(self, store: Store, metrics: Metrics, *, interval: float = INTERVAL_SECONDS) -> None:
        self._store, self._interval = store, interval
        self._told = False
        self._snapshot = metrics.gauge(
            "cell_oldest_snapshot_seconds", "Age of the oldest open transaction or snapshot"
        )
        self._shards = metrics.gauge("cell_shards_without_dispatcher", "Shards whose members nobody releases")
        self._letters = metrics.gauge("cell_dead_letters_open", "Open dead letters, counted to 100,000")
        self._dead = metrics.gauge("cell_dead_rows", "Dead rows not yet cleaned", ["table"])
        self._late = metrics.gauge("cell_oldest_timer_late_seconds", "How long the earliest timer is overdue")
        self._seen = metrics.gauge("cell_vitals_read_timestamp_seconds", "When these were last read")

    async def run(self, stop: asyncio.Event) -> None:
        """At once, then every 15 s, until `stop`."""
        while not stop.is_set():
            try:
                await self.look()
            except (Retryable, Terminal) as fault:
                log.info("vital signs not read", fault=str(fault)[:200])
            try:
                async with asyncio.timeout(self._interval):
                    await stop.wait()
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Read once."""
        vitals = await self._store.vitals()
        self._snapshot.set(vitals.oldest_snapshot_seconds)
        self._shards.set(vitals.shards_without_dispatcher)
        self._letters.set(vitals.dead_letters_open)
        self._late.set(vitals.oldest_timer_late_seconds)
        for table, rows in vitals.dead_rows.items():
            self._dead.labels(table).set(rows)
        self._seen.set_to_current_time()
        held = vitals.oldest_snapshot_seconds > HELD_SECONDS
        if held and not self._told:
            log.warning("a transaction is held open", seconds=round(vitals.oldest_snapshot_seconds))
        self._told = held
