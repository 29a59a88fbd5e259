"""Keeps the next two hours of timers in buckets.

Minute by minute, now first and then outward, each with one read of the store; whole minutes are
shared between loaders by a short claim. A minute counts as loaded in one generation of buckets:
when Valkey was emptied or restarted everything is loaded again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import aclosing
from datetime import UTC, datetime

from cells.observability.logs import logger
from cells.ports import Clock, Retryable, Store
from cells.timers.metrics import TimerMetrics
from cells.timers.pacing import Backoff, stopped_within
from cells.timers.queue import LOADED_MINUTES, ValkeyQueue

log = logger(__name__)

#: How often the generation is checked and the next minute looked for (seconds).
LOOK_SECONDS = 1.0
#: Members per read: they are turned into objects and arguments without a pause for others.
PAGE = 1_000


def instant(ms: int) -> datetime:
    """The datetime of epoch milliseconds."""
    return datetime.fromtimestamp(ms / 1000, UTC)


async def load_minute(
    store: Store, queue: ValkeyQueue, clock: Clock, *, generation: str, minute: int, shards: Collection[int]
) -> int:
    """Put a minute's members of these shards into buckets and mark it loaded; how many were read.

    Marked only when everything is in: a failure on the way leaves the minute to be loaded again.
    """
    # Of a minute that has begun, some may be held or queued already (a restart that kept them).
    put = queue.restore if minute <= clock.now_ms() // 60_000 else queue.add
    read = 0
    writing: asyncio.Task[int | None] | None = None
    try:
        async with aclosing(  # type: ignore[type-var]
            store.due_members(
                shards=sorted(shards),
                since=instant(minute * 60_000),
                until=instant((minute + 1) * 60_000),
                page=PAGE,
            )
        ) as pages:
            async for page in pages:
                read += len(page)
                if writing is not None:
                    await writing
                # The next page is read while this one is written.
                writing = asyncio.ensure_future(put(page))
        if writing is not None:
            await writing
    finally:
        if writing is not None and not writing.done():
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
    await queue.mark_loaded(generation, minute, shards)
    return read


class Loader:
    """The role service. Any number of them may run on one cell."""

    def __init__(
        self,
        *,
        store: Store,
        queue: ValkeyQueue,
        clock: Clock,
        metrics: TimerMetrics | None = None,
        ahead_minutes: int = LOADED_MINUTES,
    ):
        self._store = store
        self._queue = queue
        self._clock = clock
        self._metrics = metrics or TimerMetrics()
        self._ahead = ahead_minutes
        self._generation = ""
        self._done: set[int] = set()  # minutes known to be loaded in this generation

    async def run(self, stop: asyncio.Event) -> None:
        """Load until `stop`; engine outages are waited out."""
        backoff = Backoff()
        pause = 0.0
        while not await stopped_within(stop, pause):
            try:
                await self.look(stop)
            except Retryable as fault:
                if backoff.failures == 0:
                    log.warning("loading interrupted", fault=str(fault)[:200])
                self._metrics.faults.labels("loader").inc()
                pause = backoff.failed()
            else:
                backoff.succeeded()
                pause = LOOK_SECONDS

    async def look(self, stop: asyncio.Event | None = None) -> int:
        """Load whatever of the horizon is not loaded; how many members that were."""
        await self._follow_generation()
        first = self._clock.now_ms() // 60_000
        self._done = {m for m in self._done if m >= first}
        wanted = [m for m in range(first, first + self._ahead + 1) if m not in self._done]
        if not wanted:
            return 0
        loaded = 0
        missing = await self._queue.not_loaded(self._generation, wanted)
        for minute, shards in zip(wanted, missing, strict=True):
            if stop is not None and stop.is_set():
                break
            if shards:
                # A lost Valkey must not wait until two hours are walked through.
                if await self._follow_generation():
                    break
                loaded += await self._load(minute, shards)
            else:
                self._done.add(minute)
        return loaded

    async def _load(self, minute: int, shards: frozenset[int]) -> int:
        if not await self._queue.begin_load(self._generation, minute):
            return 0
        try:
            read = await load_minute(
                self._store,
                self._queue,
                self._clock,
                generation=self._generation,
                minute=minute,
                shards=shards,
            )
        except Retryable:
            await self._queue.give_up_load(self._generation, minute)
            raise
        self._done.add(minute)
        self._metrics.loads.labels("loader").inc()
        self._metrics.loaded.inc(read)
        return read

    async def _follow_generation(self) -> bool:
        """Whether a new generation began."""
        generation = await self._queue.generation()
        if generation == self._generation:
            return False
        if self._generation:
            log.warning("buckets were lost; loading them again", generation=generation)
            self._metrics.generations.inc()
        self._generation, self._done = generation, set()
        return True
