"""Works on what moves timers: changed calendars, backfills, other time-zone data."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from cells.domain.schedule import TZDATA_VERSION
from cells.execution.handing_on import HandingOn
from cells.execution.host_agent import HostAgent
from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Clock, Queue, Retryable, Store, Terminal
from cells.scheduling import Retimed

log = logger(__name__)

#: How long an idle worker waits before it looks again, and a busy one.
INTERVAL_SECONDS = 0.5
BUSY_SECONDS = 0.02
#: Jobs looked at in one transaction after an update of the time-zone data.
PAGE = 500


class Rescheduling:
    """Belongs to the role `reaper`. Any number of hosts may run it: each piece of work is locked by
    whoever does it, and what one leaves undone the others take up."""

    def __init__(
        self, store: Store, queue: Queue, host: HostAgent, clock: Clock, metrics: Metrics, *, kept: timedelta
    ):
        self._store = store
        self._host = host
        self._clock = clock
        self._kept = kept  # how long runs stay in the store
        self._onward = HandingOn(queue, metrics)
        self._moved = metrics.counter("timers_moved_total", "Timers moved, by what moved them", ["by"])
        self._checked = False

    async def run(self, stop: asyncio.Event) -> None:
        """Step by step until `stop`."""
        while not stop.is_set():
            pause = INTERVAL_SECONDS
            try:
                if not self._checked:
                    self._checked = await self.follow_zones(stop)
                if await self.step():
                    pause = BUSY_SECONDS
            except (Retryable, Terminal) as fault:
                log.warning("cannot move timers", fault=str(fault)[:200])
            try:
                async with asyncio.timeout(pause):
                    await stop.wait()
            except TimeoutError:
                continue

    async def step(self) -> bool:
        """One page of a calendar's jobs and one slice of a backfill, if any is due."""
        store = self._store
        calendars = await self._do("calendar", store.step_calendar)
        backfills = await self._do("backfill", partial(store.step_backfill, kept=self._kept))
        return calendars or backfills

    async def _do(self, by: str, step: Callable[..., Awaitable[Retimed | None]]) -> bool:
        done = await step(host_id=self._host.host_id, now=self._now())
        if done is None:
            return False
        await self._hand_on(by, done)
        return True

    async def _hand_on(self, by: str, done: Retimed) -> None:
        self._moved.labels(by).inc(len(done.added))
        await self._onward.remove(done.removed)
        await self._onward.add(done.added)

    async def follow_zones(self, stop: asyncio.Event) -> bool:
        """Bring stored instants to this process's time-zone data, page by page. Begun anew after a
        crash: what has moved already stays. False if it was stopped first, or has to wait for a tenant that
        is sealed and may yet come back."""
        stored, sealed = await self._store.tzdata_version()
        if stored is not None and stored > TZDATA_VERSION:
            log.warning("stored instants are of newer time-zone data", stored=stored, here=TZDATA_VERSION)
            return True
        if stored == TZDATA_VERSION:
            return True
        moved, after = 0, None
        if sealed:
            return False
        if stored is not None:
            log.info("time-zone data has changed", stored=stored, here=TZDATA_VERSION)
            while True:
                if stop.is_set():
                    return False
                page, after = await self._store.retime_page(
                    after=after, limit=PAGE, old_version=stored, host_id=self._host.host_id, now=self._now()
                )
                await self._hand_on("tzdata", page)
                moved += len(page.added)
                if after is None:
                    break
        if not await self._store.set_tzdata_version(TZDATA_VERSION):
            return False
        log.info("stored instants follow the time-zone data", version=TZDATA_VERSION, moved=moved)
        return True

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
