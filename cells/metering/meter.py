"""The role `meter`: counts levels once a minute, folds the journal, seals minutes, ships them.

Events were counted where the work was done, in its own transaction, and are only added up here: a
crash, a second host with this role, or a control plane that is away for days changes no figure.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from cells.metering.receiver import Away, Receiver
from cells.metering.shipper import Shipper
from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Clock, Retryable, Store, Terminal

log = logger(__name__)

INTERVAL_SECONDS = 1.0
#: Pauses while the control plane is away (seconds): doubled each time, drawn from its upper half.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0

#: How long a call under way may go on at the end (seconds).
LAST_CALL_SECONDS = 3.0


def pause_seconds(failures: int, rand: float) -> float:
    """How long to wait after that many failures in a row. `rand` is in [0, 1)."""
    bound = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 16))
    return bound * (0.5 + rand / 2)


class MeterService:
    """Any number of hosts may run it. Without a control plane's URL nothing is shipped: sealed
    minutes wait in the store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        metrics: Metrics,
        *,
        host_id: Callable[[], int],
        cell: str,
        control_url: str,
        kid: str,
        secret: bytes,
        interval: float = INTERVAL_SECONDS,
        pause: Callable[[int], float] | None = None,
    ) -> None:
        self._store, self._clock, self._metrics, self._host_id = store, clock, metrics, host_id
        self._cell, self._control_url, self._kid, self._secret = cell, control_url, kid, secret
        self._interval = interval
        self._pause = pause or (lambda failures: pause_seconds(failures, random.random()))
        self._folded = metrics.counter(
            "meter_journal_rows_folded_total", "Journal rows folded into statistics"
        )
        self._sealed = metrics.counter("meter_minutes_sealed_total", "Minutes sealed")
        self._gauged = metrics.counter("meter_minutes_gauged_total", "Minutes whose levels were counted here")
        self._failures = metrics.counter(
            "meter_shipping_failures_total", "Calls that did not reach acknowledgement"
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`. Shipping never holds up sealing."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._gauge(stop))
            group.create_task(self._count(stop))
            shipping = group.create_task(self._ship(stop))
            await stop.wait()
            await asyncio.wait([shipping], timeout=LAST_CALL_SECONDS)
            shipping.cancel()  # what it was sending is sent again by whoever comes next

    async def _count(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                while rows := await self._store.fold_stats():
                    self._folded.inc(rows)
                    if stop.is_set():
                        return
                self._sealed.inc(await self._store.seal_minutes())
                while await self._store.fold_job_usage():
                    if stop.is_set():
                        return
            except (Retryable, Terminal) as fault:
                log.warning("cannot fold or seal", fault=str(fault)[:200])
            await _wait(stop, self._interval)

    async def _gauge(self, stop: asyncio.Event) -> None:
        """By itself, so that no backlog makes it miss the start of a minute."""
        while not stop.is_set():
            try:
                self._gauged.inc(await self._store.gauge_minute(host_id=self._host_id()))
                await self._store.count_stored()
            except (Retryable, Terminal) as fault:
                log.warning("cannot count levels", fault=str(fault)[:200])
            await _wait(stop, self._interval)

    async def _ship(self, stop: asyncio.Event) -> None:
        if not self._control_url:
            return
        receiver = Receiver(
            self._control_url, cell=self._cell, kid=self._kid, secret=self._secret, clock=self._clock
        )
        failures = 0
        async with receiver:
            shipper = Shipper(self._store, receiver, self._clock, self._metrics, cell=self._cell)
            while not stop.is_set():
                try:
                    more = await shipper.ship()
                except (Away, Retryable, Terminal) as fault:
                    failures += 1
                    self._failures.inc()
                    # The first of a series is news; the rest is in the metric.
                    (log.warning if failures == 1 else log.debug)(
                        "meters not shipped", fault=str(fault)[:300]
                    )
                    await _wait(stop, self._pause(failures))
                else:
                    if failures:
                        log.info("meters are shipped again", failures=failures)
                    failures = 0
                    if not more:
                        await _wait(stop, self._interval)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
