"""Releases what is due: sleeps until the next head of its shards, then one script call.

A dispatcher holds shards under its host's lease, so that several share the work; two that hold one
shard for a moment do no harm, since every release is one atomic script. It never polls: it is woken
by its own next head, by `wake` signals about nearer ones, and looks once a second in case a signal
was lost.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from cells.contract import SHARDS
from cells.observability.logs import logger
from cells.ports import Clock, Retryable, Store, TenantPlacement
from cells.timers.loader import load_minute
from cells.timers.metrics import CLASSES, TimerMetrics
from cells.timers.pacing import Alarm, Backoff, stopped_within
from cells.timers.queue import Released, ValkeyQueue
from cells.timers.quota import SHORT_SECONDS, RunningQuota

log = logger(__name__)

#: Members per wake; Valkey serves nobody else meanwhile.
BUDGET = 1000
#: The longest sleep (ms): a lost signal costs no more.
LOOK_MS = 1000
#: Under load wakes are spaced out, up to this (ms), so that each releases several members.
MAX_GAP_MS = 5.0
#: The gap behind a part of a backlog, of the time that it took.
BACKLOG_GAP = 0.5
_LOAD_HALF_LIFE_MS = 250.0
#: Recent releases per ms of gap: 200 a second make 1 ms.
_LOAD_PER_GAP_MS = 72.0
#: How often shards are looked at: by one who holds all of them for newcomers, by one of several for
#: those whose holder has died.
SHARE_SECONDS = 3.0
SHARE_AMONG_OTHERS_SECONDS = 0.5
RATES_SECONDS = 1.0
IDLE_RATES_SECONDS = 5.0
DEPTH_SECONDS = 5.0
#: A minute that began without its mark is read from the store after this grace for the loader.
UNLOADED_GRACE_SECONDS = 1.5
#: ... and the coming one this long before it begins (ms).
_COMING_MS = 5_000


class Host(Protocol):
    """Whose lease the shards are held under. `host_id` raises `Retryable` while there is none."""

    @property
    def host_id(self) -> int: ...

    @property
    def ahead_ms(self) -> int: ...


class _NotAhead:
    """The host's clock, put back by as much as it surely is ahead of the store's: what is released
    before it is due there cannot be claimed, and would go round and round."""

    def __init__(self, clock: Clock, host: Host):
        self._clock = clock
        self._host = host

    def now_ms(self) -> int:
        return self._clock.now_ms() - self._host.ahead_ms

    def monotonic(self) -> float:
        return self._clock.monotonic()


class Dispatcher:
    """The role service."""

    def __init__(
        self,
        *,
        store: Store,
        queue: ValkeyQueue,
        clock: Clock,
        host: Host,
        metrics: TimerMetrics | None = None,
        budget: int = BUDGET,
    ):
        self._store = store
        self._queue = queue
        self._clock: Clock = _NotAhead(clock, host)
        self._host = host
        self._metrics = metrics or TimerMetrics()
        self._budget = budget
        self._alarm = Alarm(self._clock)
        self._shards: frozenset[int] = frozenset()
        self._fresh_after: int | None = None
        self._tenants_held = 0
        self._load = 0.0  # recent releases, halved every quarter of a second
        self._last_wake_ms = 0
        self._rates: dict[uuid.UUID, int] = {}
        self._delayed: frozenset[uuid.UUID] | None = None  # None: nobody has been told
        self._tenants: Sequence[TenantPlacement] = ()
        self._quota = RunningQuota(store, queue, self._clock)
        self._generation = ""
        self._covered: set[tuple[str, int, frozenset[int]]] = set()
        self._unloaded_since: dict[tuple[str, int], float] = {}
        self._next: dict[str, float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Release until `stop`; engine outages are waited out."""
        # One that failed is followed by another on the same queue.
        deaf = self._queue.on_wake(self._alarm.ring)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._release_until(stop))
                tasks.create_task(self._upkeep_until(stop))
                await stop.wait()
                self._alarm.ring()
        finally:
            deaf()

    # --- releasing -------------------------------------------------------------------
    async def _release_until(self, stop: asyncio.Event) -> None:
        backoff = Backoff()
        while not stop.is_set():
            try:
                sleep_until = await self._wake() if self._shards else self._clock.now_ms() + LOOK_MS
                backoff.succeeded()
            except Retryable as fault:
                if backoff.failures == 0:
                    log.warning("dispatch interrupted", fault=str(fault)[:200])
                self._metrics.faults.labels("dispatcher").inc()
                await stopped_within(stop, backoff.failed())
                continue
            if stop.is_set():
                return
            if sleep_until is not None:
                await self._alarm.sleep_until(sleep_until)
                # What comes close together is released together.
                gap = self._last_wake_ms + self._gap_ms() - self._clock.now_ms()
            else:
                # Between two parts of a backlog Valkey serves others.
                gap = min((self._clock.now_ms() - self._last_wake_ms) * BACKLOG_GAP, MAX_GAP_MS)
            if gap > 0 and not stop.is_set():
                await asyncio.sleep(gap / 1000)

    async def _wake(self) -> int | None:
        """Release what is due. When to wake again, None for at once."""
        now = self._clock.now_ms()
        released = await self._queue.release(
            now_ms=now, shards=self._shards, budget=self._budget, fresh_after_ms=self._fresh_after
        )
        self._measure(released, now)
        if released.left:
            self._fresh_after = now
            return None
        self._fresh_after = None
        look = now + LOOK_MS
        return look if released.next_due_ms is None else min(look, released.next_due_ms)

    def _gap_ms(self) -> float:
        return min(MAX_GAP_MS, self._load / _LOAD_PER_GAP_MS)

    def _measure(self, released: Released, now: int) -> None:
        elapsed, self._last_wake_ms = now - self._last_wake_ms, now
        self._load = self._load * 0.5 ** (elapsed / _LOAD_HALF_LIFE_MS) + released.total
        self._tenants_held = released.tenants_held
        metrics = self._metrics
        metrics.wakes.inc()
        metrics.tenants_held.set(released.tenants_held)
        if released.oldest_due_ms is not None:
            metrics.release_lag.observe(max(0, now - released.oldest_due_ms) / 1000)
        for name, count in zip(CLASSES, released.by_class, strict=True):
            if count:
                metrics.released.labels(name).inc(count)
        if released.held:
            metrics.held.inc(released.held)

    # --- upkeep ----------------------------------------------------------------------
    async def _upkeep_until(self, stop: asyncio.Event) -> None:
        pause = 0.0
        while not await stopped_within(stop, pause):
            alone = len(self._shards) == SHARDS
            short = self._quota.short
            pause = SHORT_SECONDS if short else 1.0 if alone else SHARE_AMONG_OTHERS_SECONDS
            busy = self._load > 1 or self._tenants_held > 0
            rates = RATES_SECONDS if busy else IDLE_RATES_SECONDS
            for name, seconds, duty in (
                ("generation", 1.0, self._follow_generation),
                ("rates", rates, self._tell_rates),
                ("quota", SHORT_SECONDS if short else rates, self._tell_room),
                ("shards", SHARE_SECONDS if alone else SHARE_AMONG_OTHERS_SECONDS, self._share_shards),
                ("gaps", 1.0, self._cover_unloaded),
                ("depth", DEPTH_SECONDS, self._read_depth),
            ):
                if not await self._attempt(name, seconds, duty):
                    pause = 0.25

    async def _attempt(self, name: str, seconds: float, duty: Callable[[], Awaitable[None]]) -> bool:
        now = self._clock.monotonic()
        if now < self._next.get(name, 0.0):
            return True
        try:
            await duty()
        except Retryable as fault:
            log.debug("dispatcher upkeep failed", duty=name, fault=str(fault)[:200])
            self._metrics.faults.labels(f"dispatcher-{name}").inc()
            return False
        # A little less than asked for, or a tick's jitter would double the interval.
        self._next[name] = now + seconds - min(0.1, seconds / 4)
        return True

    async def _share_shards(self) -> None:
        shards = await self._store.share_shards(host_id=self._host.host_id)
        if shards != self._shards:
            self._shards = shards
            self._metrics.shards.set(len(shards))
            self._alarm.ring()

    async def _follow_generation(self) -> None:
        """With the buckets, the quotas are lost."""
        generation = await self._queue.generation()
        if generation != self._generation:
            self._generation, self._rates, self._delayed = generation, {}, None
            self._quota.forget()
            self._next["rates"] = self._next["quota"] = 0.0

    async def _tell_rates(self) -> None:
        # What belongs to a tenant that may not run now is held, in order, until it may again.
        self._tenants = await self._store.list_tenants()
        placed = {
            t.tenant_id: t.config.job_runs_per_second if t.state == "ACTIVE" and not t.config.paused else 0
            for t in self._tenants
        }
        changed = {tenant: rate for tenant, rate in placed.items() if self._rates.get(tenant) != rate}
        await self._queue.put_rates(changed, gone=self._rates.keys() - placed.keys())
        self._rates = placed
        await self._tell_delayed()

    async def _tell_delayed(self) -> None:
        """LOW work of a tenant whose budget is spent is held, in order, until that changes."""
        delayed = frozenset(t.tenant_id for t in self._tenants if t.config.low_delayed)
        known = self._delayed
        if delayed != known:
            everybody = frozenset(t.tenant_id for t in self._tenants)
            gone = (everybody if known is None else known) - delayed
            await self._queue.put_delayed(delayed, gone=gone)
            await self._store.tell_delayed(gone | delayed, host_id=self._host.host_id)
            self._delayed = delayed
            self._metrics.tenants_delayed.set(len(delayed))

    async def _tell_room(self) -> None:
        """Past its quota of running runs a tenant's work waits at the gate."""
        await self._quota.look(self._tenants, host_id=self._host.host_id)
        self._metrics.tenants_full.set(self._quota.full)

    async def _cover_unloaded(self) -> None:
        """Read minutes straight from the store that begin without having been loaded."""
        generation = self._generation
        now_ms = self._clock.now_ms()
        minutes = sorted({now_ms // 60_000, (now_ms + _COMING_MS) // 60_000})
        shards = self._shards
        known = generation and shards
        wanted = [m for m in minutes if known and (generation, m, shards) not in self._covered]
        if not wanted:
            return
        self._covered = {c for c in self._covered if c[0] == generation and c[1] >= minutes[0]}
        missing = await self._queue.not_loaded(generation, wanted)
        for minute, unmarked in zip(wanted, missing, strict=True):
            mine = unmarked & shards
            if mine and not self._waited_for_loader(generation, minute):
                continue
            if mine:
                read = await load_minute(
                    self._store, self._queue, self._clock, generation=generation, minute=minute, shards=mine
                )
                log.info("minute read by its dispatcher", minute=minute, shards=len(mine), members=read)
                self._metrics.loads.labels("dispatcher").inc()
                self._metrics.loaded.inc(read)
            self._covered.add((generation, minute, shards))
            self._unloaded_since.pop((generation, minute), None)

    def _waited_for_loader(self, generation: str, minute: int) -> bool:
        now = self._clock.monotonic()
        since = self._unloaded_since.setdefault((generation, minute), now)
        if len(self._unloaded_since) > 16:
            self._unloaded_since = {(generation, minute): since}
        return now - since >= UNLOADED_GRACE_SECONDS

    async def _read_depth(self) -> None:
        queued, _ = await self._queue.depths()
        for name, depth in zip(CLASSES, queued, strict=True):
            self._metrics.depth.labels(name).set(depth)
