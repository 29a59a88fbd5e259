"""The lease of this process in the store.

A host registers, renews every few seconds and stops by itself when it could not: the lease is
counted from the moment the last successful renewal was *sent*, on the steady clock, so this
host believes itself dead before the store does. A lapsed host claims nothing and starts no call;
when the store answers again it registers as a new incarnation, under a new id and name.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import socket
from collections.abc import Sequence

from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Clock, HostLease, Retryable, Store, Terminal

log = logger(__name__)

LEASE_MS = 10_000
RENEW_SECONDS = 3.0
#: The host fences itself this long before its lease ends, so that what it has just begun to
#: write arrives in time.
MARGIN_SECONDS = 0.5
#: Clocks that differ from the store's by more than this are alarming (milliseconds).
CLOCK_ALARM_MS = 1000


class HostAgent:
    """Holds the lease; everybody in the process asks it. Run it as a role: `await run(stop)`."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        metrics: Metrics,
        *,
        roles: Sequence[str],
        lease_ms: int = LEASE_MS,
        renew_seconds: float = RENEW_SECONDS,
    ):
        self._store = store
        self._clock = clock
        self._roles = tuple(roles)
        self._lease_ms = lease_ms
        self._renew_seconds = renew_seconds
        self._lease: HostLease | None = None
        self._until = self._sent = 0.0  # steady clock
        self._since = 0.0  # when this incarnation registered
        self._cell_epoch: int | None = None
        #: Set once the cell has another owner than when this process first registered: what it knows of the
        #: cell may be of before that.
        self.superseded = asyncio.Event()
        self._retired = False
        self._registered = asyncio.Event()
        #: How far this machine's clock surely is ahead of the store's (ms), as of the last renewal.
        self.ahead_ms = 0
        self._losses = metrics.counter("host_lease_losses_total", "Times this process found its lease lapsed")
        self._offset = metrics.gauge(
            "host_clock_offset_seconds", "The store's clock minus this machine's, at the last renewal"
        )
        self._alarms = metrics.counter("host_clock_alarms_total", "Renewals with the clocks over 1 s apart")
        metrics.gauge(
            "host_lease_age_seconds", "Time since the last renewal that succeeded was sent"
        ).set_function(lambda: self.age() or 0.0)
        metrics.gauge("host_lease_live", "1 while this process holds its lease").set_function(
            lambda: float(self.live())
        )

    @property
    def host_id(self) -> int:
        """The live incarnation. `Retryable` while there is none."""
        if self._lease is None or not self.live():
            raise Retryable("this host holds no lease")
        return self._lease.host_id

    @property
    def name(self) -> str:
        """Name of the current (or last) incarnation."""
        return self._lease.name if self._lease is not None else "unregistered"

    def live(self) -> bool:
        """Whether this host may claim, call and write."""
        return self._lease is not None and not self._retired and self._clock.monotonic() < self._until

    def holds(self, host_id: int) -> bool:
        """Whether that incarnation is this host's and still live."""
        return self._lease is not None and self._lease.host_id == host_id and self.live()

    def age(self) -> float | None:
        """Seconds since the last successful renewal was sent, None without a lease."""
        if self._lease is None:
            return None
        return self._clock.monotonic() - self._sent

    def settled(self, seconds: float) -> bool:
        """Whether this incarnation has been live for that long."""
        return self.live() and self._clock.monotonic() - self._since >= seconds

    async def wait_live(self) -> None:
        """Return once this host holds a lease."""
        while not self.live():
            self._registered.clear()
            await self._registered.wait()

    async def run(self, stop: asyncio.Event) -> None:
        """Hold the lease until `stop`. Engine outages are waited out."""
        pause = 0.0
        failures = 0
        while not await _stopped_within(stop, pause):
            try:
                async with asyncio.timeout(self._renew_seconds):
                    await self._hold()
                failures, pause = 0, self._pause()
            except (Retryable, TimeoutError) as fault:
                failures += 1
                pause = min(0.1 * 2 ** min(failures, 10), 1.0)
                log.warning("lease not renewed", failures=failures, live=self.live(), fault=str(fault)[:200])
            except Terminal as fault:
                # The store knows this incarnation as gone: begin another.
                self._drop(str(fault))
                pause = 0.1

    async def retire(self) -> None:
        """Give the lease back: whatever this host still holds is reclaimable at once."""
        lease, self._retired = self._lease, True
        if lease is not None:
            await self._store.retire_host(host_id=lease.host_id)

    async def _hold(self) -> None:
        lease = self._lease
        if lease is not None and not self.live():
            self._drop("lapsed")
            lease = None
        sent, sent_ms = self._clock.monotonic(), self._clock.now_ms()
        if lease is None:
            got: HostLease | None = await self._store.register_host(
                name=_fresh_name(), roles=self._roles, lease_ms=self._lease_ms
            )
        else:
            got = await self._store.renew_host(host_id=lease.host_id, lease_ms=self._lease_ms)
        if got is None:
            self._drop("the store let it lapse")
            await self._hold()
            return
        # Shorter than asked for where the cell's own lease ends before it.
        margin = min(MARGIN_SECONDS, got.lease_ms / 4000)
        self._sent, self._until = sent, sent + got.lease_ms / 1000 - margin
        if self._cell_epoch not in (None, got.cell_epoch):
            self.superseded.set()
        self._cell_epoch = got.cell_epoch
        if lease is None:
            self._since = self._clock.monotonic()
            log.info("host registered", host=got.name, host_id=got.host_id)
        self._lease = got
        self._measure(got, sent_ms)
        self._registered.set()

    def _pause(self) -> float:
        """Until the next renewal: several fit into the lease, however short it is."""
        got = self._lease
        return self._renew_seconds if got is None else min(self._renew_seconds, got.lease_ms / 4000)

    def _drop(self, why: str) -> None:
        if self._lease is not None:
            self._losses.inc()
            log.error("host lease lost", host=self._lease.name, host_id=self._lease.host_id, why=why)
        self._lease = None

    def _measure(self, lease: HostLease, sent_ms: int) -> None:
        """The store read its clock somewhere between our sending and now."""
        middle = (sent_ms + self._clock.now_ms()) / 2
        offset = lease.database_time.timestamp() * 1000 - middle
        # The store read its clock after we sent: one that was behind then is behind.
        self.ahead_ms = max(0, sent_ms - math.ceil(lease.database_time.timestamp() * 1000))
        self._offset.set(offset / 1000)
        if abs(offset) > CLOCK_ALARM_MS:
            self._alarms.inc()
            log.error("this machine's clock and the store's differ", offset_ms=round(offset))


def _fresh_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


async def _stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    if seconds <= 0:
        return stop.is_set()
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return False
    return True
