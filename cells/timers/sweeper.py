"""Finds overdue members that are in no bucket, held set or queue, and puts them back.

Whatever lost them (a crash between commit and add, a lost part of Valkey, an executor that died
between pop and claim), the store still says they wait. Three walks over the due index:

* the newest: every few seconds, what has become overdue since the last time. A narrow range;
* the waiting: what an earlier walk found still unclaimed, some shards each time, around and around.
  It begins at the oldest that was seen waiting, so that it never reads from the beginning of the
  index, where dead entries lie;
* the deep one: everything overdue, at once at the start and when Valkey has begun a new generation, and
  then some shards each time, around in a few minutes. It reads from the beginning of the index; taken
  whole, it would be felt while somebody's open transaction keeps the dead entries there.

The first two are bounded: a backlog of hundreds of thousands is looked at piece by piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from cells.contract import SHARDS
from cells.observability.logs import logger
from cells.ports import Clock, Retryable, Store
from cells.timers.loader import instant
from cells.timers.metrics import TimerMetrics
from cells.timers.pacing import Backoff, stopped_within
from cells.timers.queue import ValkeyQueue

log = logger(__name__)

_ALL_SHARDS = range(SHARDS)

#: What is overdue for less is none of the sweep's business.
OVERDUE_MS = 5_000
SWEEP_SECONDS = 5.0
DEEP_SECONDS = 300.0
#: Of the generation.
LOOK_SECONDS = 1.0
#: About so many members are looked at each time (the deep walk excepted).
BOUND = 20_000
PAGE = 500
#: Between two pages of a walk that is not urgent: so many times what a page took, at most so long (seconds).
#: A backlog that merely waits for its turn must cost those who work it off next to nothing.
REST, LONGEST_REST = 4, 0.05


@dataclass(kw_only=True, slots=True)
class _Round:
    """One time around all shards, over what was seen waiting."""

    since_ms: int  # the oldest that waits
    members: int  # about how many wait
    shard: int = 0  # where to go on
    read: int = 0
    oldest_ms: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Walked:
    """What one walk saw."""

    read: int
    found: int  # were nowhere and are put back
    oldest_ms: int | None
    finished: bool


class Sweeper:
    """The service; it belongs to the loader's role. Several do no harm."""

    def __init__(
        self,
        *,
        store: Store,
        queue: ValkeyQueue,
        clock: Clock,
        metrics: TimerMetrics | None = None,
        overdue_ms: int = OVERDUE_MS,
        sweep_seconds: float = SWEEP_SECONDS,
        deep_seconds: float = DEEP_SECONDS,
    ):
        self._store = store
        self._queue = queue
        self._clock = clock
        self._metrics = metrics or TimerMetrics()
        self._overdue_ms = overdue_ms
        self._sweep_seconds = sweep_seconds
        self._deep_seconds = deep_seconds
        self._generation = ""
        self._swept_ms = 0  # up to here the newest have been looked at
        self._round: _Round | None = None  # None: nothing was seen waiting
        self._next_sweep = 0.0
        self._deep_shard = 0  # where the deep walk goes on
        self._deep_at = 0.0  # steady clock: up to when it has kept its pace

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep until `stop`; engine outages are waited out."""
        backoff = Backoff()
        pause = 0.0
        while not await stopped_within(stop, pause):
            try:
                await self.look()
            except Retryable as fault:
                if backoff.failures == 0:
                    log.warning("sweep interrupted", fault=str(fault)[:200])
                self._metrics.faults.labels("sweeper").inc()
                pause = backoff.failed()
            else:
                backoff.succeeded()
                pause = LOOK_SECONDS

    async def look(self) -> int:
        """Sweep if it is time, or if the buckets were lost; how many stragglers were found."""
        generation = await self._queue.generation()
        now = self._clock.monotonic()
        if generation != self._generation:
            found = await self.deep(overdue_ms=0)
            self._generation = generation
            self._deep_shard, self._deep_at = 0, now
            self._next_sweep = now + self._sweep_seconds
            return found
        if now >= self._next_sweep:
            self._next_sweep = now + self._sweep_seconds
            return await self.sweep() + await self._go_deeper(now)
        return 0

    async def deep(self, *, overdue_ms: int) -> int:
        """Look at everything that is overdue by that much."""
        until = self._clock.now_ms() - overdue_ms
        self._metrics.sweeps.labels("deep").inc()
        walked = await self._walk(_ALL_SHARDS, None, until, bound=None, rest=0)
        self._swept_ms = until
        self._round = None
        self._seen_waiting(walked.oldest_ms, walked.read)
        return self._count(walked.found)

    async def _go_deeper(self, now: float) -> int:
        """The shards of the deep walk whose turn has come."""
        count = min(SHARDS, int(SHARDS * (now - self._deep_at) / self._deep_seconds))
        if count < 1:
            return 0
        self._deep_at += count * self._deep_seconds / SHARDS if count < SHARDS else now - self._deep_at
        shards = range(self._deep_shard, min(SHARDS, self._deep_shard + count))
        self._deep_shard = shards.stop % SHARDS
        walked = await self._walk(shards, None, self._clock.now_ms() - self._overdue_ms, bound=None)
        self._seen_waiting(walked.oldest_ms, walked.read)
        if self._deep_shard == 0:
            self._metrics.sweeps.labels("deep").inc()
        return self._count(walked.found)

    async def sweep(self) -> int:
        """Look at the newest overdue members and at some of those seen waiting before."""
        since, until = self._swept_ms, self._clock.now_ms() - self._overdue_ms
        self._metrics.sweeps.labels("narrow").inc()
        found = await self._walk_waiting(self._round, since) if self._round is not None else 0
        if until > since:
            walked = await self._walk(_ALL_SHARDS, since, until, bound=BOUND)
            found += walked.found
            self._swept_ms = until
            # Where the walk had to end early, the rounds see to the rest.
            members = walked.read if walked.finished else 10 * BOUND
            self._seen_waiting(walked.oldest_ms if walked.finished else since, members)
        return self._count(found)

    def _seen_waiting(self, oldest_ms: int | None, members: int) -> None:
        if oldest_ms is None:
            return
        if self._round is None:
            self._round = _Round(since_ms=oldest_ms, members=members)
        else:
            self._round.members += members
            # Seen after this round passed its shards: the next round must not begin later.
            known = self._round.oldest_ms
            self._round.oldest_ms = oldest_ms if known is None else min(known, oldest_ms)

    async def _walk_waiting(self, around: _Round, until: int) -> int:
        count = max(1, min(SHARDS, SHARDS * BOUND // max(1, around.members)))
        shards = range(around.shard, min(SHARDS, around.shard + count))
        walked = await self._walk(shards, around.since_ms, until, bound=None)
        around.shard, around.read = shards.stop, around.read + walked.read
        if walked.oldest_ms is not None:
            known = around.oldest_ms
            around.oldest_ms = walked.oldest_ms if known is None else min(known, walked.oldest_ms)
        if around.shard == SHARDS:
            oldest = around.oldest_ms
            self._round = None if oldest is None else _Round(since_ms=oldest, members=around.read)
        return walked.found

    async def _walk(
        self, shards: Sequence[int], since: int | None, until: int, *, bound: int | None, rest: int = REST
    ) -> _Walked:
        """Put back what is nowhere among since <= due < until."""
        found, oldest, read = 0, None, 0
        began = self._clock.monotonic()
        async with aclosing(  # type: ignore[type-var]
            self._store.due_members(
                shards=shards,
                since=None if since is None else instant(since),
                until=instant(until),
                page=PAGE,
            )
        ) as pages:
            async for page in pages:
                if not page:
                    continue
                if bound is not None and read >= bound:
                    return _Walked(read=read, found=found, oldest_ms=oldest, finished=False)
                first = min(member.due_ms for member in page)
                oldest = first if oldest is None else min(oldest, first)
                read += len(page)
                found += await self._queue.restore(page)
                if len(page) == PAGE:
                    await asyncio.sleep(min(rest * (self._clock.monotonic() - began), LONGEST_REST))
                began = self._clock.monotonic()
        return _Walked(read=read, found=found, oldest_ms=oldest, finished=True)

    def _count(self, found: int) -> int:
        if found:
            self._metrics.stragglers.inc(found)
            log.info("stragglers put back", found=found)
        return found
