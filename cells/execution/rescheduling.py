"""Works on what moves timers: changed calendars, backfills, other time-zone data."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from cells.domain.schedule import TZDATA_VERSION
from cells.execution.handing_on import HandingOn
from cells.execution.host_agent import HostAgent
from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Clock, Queue, Retryable, Store, Terminal
from cells.scheduling import BehindTenant, Retimed

log = logger(__name__)

#: How long an idle worker waits before it looks again, and a busy one.
INTERVAL_SECONDS = 0.5
BUSY_SECONDS = 0.02
#: Jobs looked at in one transaction after an update of the time-zone data.
PAGE = 500
#: How often it is looked who has older data: after an update, and whoever moves here.
LOOK_SECONDS = 5.0


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
        self._other_zones = metrics.gauge(
            "timers_other_tzdata_tenants",
            "Tenants whose stored instants follow other time-zone data: older (to be moved), sealed, newer",
            ["why"],
        )
        self._behind: deque[BehindTenant] = deque()
        self._after: uuid.UUID | None = None  # how far the first of them has come
        self._look_at = 0.0
        self._told: dict[str, list[str]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Step by step until `stop`."""
        while not stop.is_set():
            pause = INTERVAL_SECONDS
            try:
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
        """One page of a calendar's jobs, one slice of a backfill and one page of a tenant with other
        time-zone data, if any is due."""
        store = self._store
        calendars = await self._do("calendar", store.step_calendar)
        backfills = await self._do("backfill", partial(store.step_backfill, kept=self._kept))
        zones = await self.follow_zones()
        return calendars or backfills or zones

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

    async def follow_zones(self) -> bool:
        """One page of a tenant whose stored instants follow other time-zone data than this process's; whether
        there was one. A tenant that is sealed meanwhile, or fails, is begun anew later: what has moved
        already stays, and nobody else waits for it."""
        if not self._behind:
            now = self._clock.monotonic()
            if now < self._look_at:
                return False
            self._look_at = now + LOOK_SECONDS
            await self._look()
            if not self._behind:
                return False
        tenant, after = self._behind[0], self._after
        self._after = None
        self._behind.popleft()  # unless the page is done, somebody else's turn is next
        done = await self._store.retime_page(
            tenant.tenant_id,
            after=after,
            limit=PAGE,
            old_version=tenant.version,
            host_id=self._host.host_id,
            now=self._now(),
        )
        if done is None:
            log.info("a tenant is sealed: its instants wait", tenant=str(tenant.tenant_id))
            return True
        page, further = done
        if further is not None:
            self._behind.appendleft(tenant)
            self._after = further
        await self._hand_on("tzdata", page)
        return True

    async def _look(self) -> None:
        """Who is behind, and what keeps them there."""
        found = await self._store.tenants_behind(TZDATA_VERSION)
        self._behind.extend(tenant for tenant in found if not tenant.newer and not tenant.sealed)
        kinds = {
            "older": list(self._behind),
            "sealed": [tenant for tenant in found if tenant.sealed and not tenant.newer],
            "newer": [tenant for tenant in found if tenant.newer],
        }
        for why, tenants in kinds.items():
            self._other_zones.labels(why).set(len(tenants))
        # One that is new here has nothing to be told of.
        told = {
            why: [str(tenant.tenant_id) for tenant in known]
            for why, tenants in kinds.items()
            if (known := [tenant for tenant in tenants if tenant.version is not None])
        }
        if told and told != self._told:
            first = {why: (len(tenants), tenants[0]) for why, tenants in told.items()}
            log.warning("stored instants follow other time-zone data", here=TZDATA_VERSION, tenants=first)
        self._told = told

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
