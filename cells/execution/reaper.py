"""Takes back runs whose executor died or overstayed its lease, and those of silent workers.

What executors held is taken back at once: their hosts' leases say that they are dead. Of workers we
know only what we hear; `cells.domain.reaping` decides when silence means death.
"""

from __future__ import annotations

import asyncio

from cells.domain.reaping import Look, Mode, ReapPolicy
from cells.execution.handing_on import HandingOn
from cells.execution.host_agent import HostAgent
from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Clock, Queue, Retryable, Store, Terminal

log = logger(__name__)

INTERVAL_SECONDS = 1.0
#: After this host registered it first lets others (and itself) record what finished while the
#: store was away; then it takes back.
SETTLE_SECONDS = 2.0
_LIMIT = 1000
#: How far one look at ended leases reaches back into the one before (the 5 s margin among it), and how
#: often all are looked at: those of tenants that were not active before (seconds).
_OVERLAP_SECONDS, DEEP_SECONDS = 30.0, 60.0
#: The part of the time that looks at the leases of workers may take: they count all of them.
LEASES_SHARE = 0.05
#: Tasks that wait this long with nobody polling are told of; how often that is looked at (seconds).
STARVED_SECONDS, STARVED_LOOK_SECONDS = 120, 15.0
#: Occurrences that wait this long are late, and how often that is looked at (seconds).
LATE_SECONDS, LATE_LOOK_SECONDS = 60, 30.0


class Reaper:
    """Role `reaper`. Any number of hosts may run it."""

    def __init__(
        self,
        store: Store,
        queue: Queue,
        host: HostAgent,
        clock: Clock,
        metrics: Metrics,
        *,
        late_seconds: int = LATE_SECONDS,
    ):
        self._store = store
        self._late_seconds = late_seconds
        self._late_told = clock.monotonic() - LATE_LOOK_SECONDS
        self._host = host
        self._onward = HandingOn(queue, metrics)
        self._clock = clock
        self._policy = ReapPolicy()
        self._told = clock.monotonic() - STARVED_LOOK_SECONDS
        self._looked: float | None = None  # steady clock: when the last look began that left nothing
        self._rested = 0.0  # steady clock: when the leases of workers may be looked at again
        self._deep_at = 0.0  # steady clock: when to look at everything again
        self._pulled = metrics.counter("reaper_tasks_reclaimed_total", "Runs taken back from silent workers")
        self._holds = metrics.counter(
            "reaper_holds_total",
            "Times that too many workers fell silent together to take anything back",
        )
        metrics.gauge("reaper_holding", "1 while the runs of silent workers are left to them").set_function(
            lambda: float(self._policy.mode is Mode.HOLDING)
        )
        self._reaped = metrics.counter("reaper_runs_reclaimed_total", "Runs taken back from dead executors")

    async def run(self, stop: asyncio.Event) -> None:
        """Look every second until `stop`."""
        while not stop.is_set():
            full = False
            if self._host.settled(SETTLE_SECONDS):
                try:
                    full = await self._reap()
                    await self._reap_pulled()
                    await self._tell_starved()
                    await self._tell_late()
                    if not full:
                        await self._wake()
                except (Retryable, Terminal) as fault:
                    log.warning("cannot reap", fault=str(fault)[:200])
                except Exception:
                    log.exception("reaping failed in here")
            if full:
                continue
            try:
                async with asyncio.timeout(INTERVAL_SECONDS):
                    await stop.wait()
            except TimeoutError:
                continue

    async def _wake(self) -> None:
        """Places that nobody's end has given on."""
        await self._onward.add(await self._store.wake_parked(host_id=self._host.host_id))

    async def _reap(self) -> bool:
        now = self._clock.monotonic()
        deep = self._looked is None or now >= self._deep_at
        back = None if deep else round(1000 * (now - (self._looked or now) + _OVERLAP_SECONDS))
        members = await self._store.reap(host_id=self._host.host_id, limit=_LIMIT, back_ms=back)
        if members.taken:
            self._reaped.inc(members.taken)
            log.warning("runs reclaimed", runs=members.taken)
            await self._onward.add(members)
        # What could not be taken just then is no reason to look again at once.
        if members.looked >= _LIMIT and members.taken:
            return True
        self._looked = now
        if deep:
            self._deep_at = now + DEEP_SECONDS
        return False

    async def _reap_pulled(self) -> None:
        began = self._clock.monotonic()
        if began < self._rested:
            return
        leases = await self._store.look_at_leases()
        now = self._clock.monotonic()
        self._rested = now + (now - began) / LEASES_SHARE
        verdict = self._policy.decide(
            Look(
                at=now,
                live=leases.live,
                expired=leases.expired,
                interval=leases.interval_s,
                contact_age=leases.contact_age_s,
            )
        )
        if verdict.changed:
            log.warning("silent workers", mode=verdict.mode.value, live=leases.live, silent=leases.expired)
            if verdict.mode is Mode.HOLDING:
                self._holds.inc()
            await self._store.tell_silent(mode=verdict.mode.value, host_id=self._host.host_id)
        if not verdict.take:
            return
        members = await self._store.reap_pulled(host_id=self._host.host_id, limit=min(verdict.take, _LIMIT))
        self._policy.took(now, members.taken)
        if members.taken:
            self._pulled.inc(members.taken)
            log.warning("runs of silent workers reclaimed", runs=members.taken)
            await self._onward.add(members)

    async def _tell_starved(self) -> None:
        now = self._clock.monotonic()
        if now - self._told >= STARVED_LOOK_SECONDS:
            self._told = now
            await self._store.tell_starved(after_seconds=STARVED_SECONDS, host_id=self._host.host_id)

    async def _tell_late(self) -> None:
        now = self._clock.monotonic()
        if now - self._late_told >= LATE_LOOK_SECONDS:
            self._late_told = now
            await self._store.tell_late(after_seconds=self._late_seconds, host_id=self._host.host_id)
