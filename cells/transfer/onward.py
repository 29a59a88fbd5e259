"""Ends of calls that began here and finished after their tenant had left.

The outcome of a call that was made is a fact, so the store's refusal is not the end of it: while the tenant
is sealed it waits, if the tenant stays it is written here after all, and if it has left it is handed on to
the cell that has it now, with the epoch it was claimed under. What cannot be handed on in time is called
again there when the run's lease ends, under the same idempotency key.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Clock, Completion, Queue, Retryable
from cells.store.postgres import PostgresStore
from cells.store.transfer import TransferStore

log = logger(__name__)

INTERVAL_SECONDS = 0.05
#: How long an end is kept (seconds), how many at once, and how many go in one call.
KEPT_SECONDS, MOST, _PAGE = 120.0, 20_000, 100


@dataclass(kw_only=True, slots=True)
class _Waiting:
    completion: Completion
    since: float
    tried_here: bool = False


class TakesEnds(Protocol):
    """The other cell (`peers.Peer`)."""

    async def hand_on(self, url: str, move: uuid.UUID, completions: Sequence[Completion]) -> list[bool]: ...


class Onward:
    """Belongs to the role `executor`. `take` is called by the store, `run` does the rest."""

    def __init__(
        self,
        store: PostgresStore,
        transfers: TransferStore,
        queue: Queue,
        peer: TakesEnds,
        clock: Clock,
        metrics: Metrics,
        *,
        host_id: Callable[[], int],
    ) -> None:
        self._store = store
        self._transfers = transfers
        self._queue = queue
        self._peer = peer
        self._clock = clock
        self._host_id = host_id
        self._waiting: list[_Waiting] = []
        self._again: set[tuple[uuid.UUID, object, int]] = set()
        self._came = asyncio.Event()
        self._handed = metrics.counter("moves_completions_handed_on_total", "Ends of calls handed on")
        self._lost = metrics.counter("moves_completions_given_up_total", "Ends of calls nobody took in time")

    def take(self, refused: Sequence[Completion]) -> None:
        """Completions that changed nothing: most are superseded, some belong to tenants that are leaving."""
        for completion in refused:
            place = (completion.tenant_id, completion.key, completion.epoch)
            if place in self._again:
                continue  # written here for the second time, and superseded
            if len(self._waiting) >= MOST:
                self._lost.inc()
                continue
            self._waiting.append(_Waiting(completion=completion, since=self._clock.monotonic()))
        self._came.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`, and then what can be handed on at once."""
        while not stop.is_set():
            if not self._waiting:
                self._came.clear()
                await _either(self._came, stop)
                continue
            try:
                await self._round()
            except Retryable as fault:
                log.warning("ends of calls wait", waiting=len(self._waiting), fault=str(fault)[:200])
                await _within(stop, 0.5)
            await _within(stop, INTERVAL_SECONDS)
        if self._waiting:
            await self._round()

    async def _round(self) -> None:
        batch, self._waiting = self._waiting, []
        kept: list[_Waiting] = []
        try:
            states = await self._states(list({w.completion.tenant_id for w in batch}))
            here: list[_Waiting] = []
            away: defaultdict[tuple[uuid.UUID, str], list[_Waiting]] = defaultdict(list)
            for waiting in batch:
                state, lately, move, url = states.get(waiting.completion.tenant_id, (None, False, None, ""))
                if self._clock.monotonic() - waiting.since > KEPT_SECONDS:
                    self._lost.inc()
                elif state == "SEALED" or (state == "MOVED" and not url):
                    kept.append(waiting)
                elif state == "MOVED" and move is not None:
                    away[move, url].append(waiting)
                elif lately:
                    here.append(waiting)
            if here:
                await self._write_here(here)
            for (move, url), those in away.items():
                kept += await self._hand_on(url, move, those)
        except Retryable:
            self._waiting = batch + self._waiting
            raise
        self._waiting = kept + self._waiting

    async def _states(
        self, tenants: list[uuid.UUID]
    ) -> dict[uuid.UUID, tuple[str, bool, uuid.UUID | None, str]]:
        async with self._transfers.session(timeout_ms=5_000) as connection:
            rows = await self._transfers.rows(connection, "transfer_seen", tenants=tenants)
        return {tenant: (state, lately, move, url or "") for tenant, state, lately, move, url in rows}

    async def _write_here(self, those: list[_Waiting]) -> None:
        """The tenant stayed after all; whatever is refused now was superseded."""
        completions = [waiting.completion for waiting in those]
        self._again = {(c.tenant_id, c.key, c.epoch) for c in completions}
        try:
            done = await self._store.complete(completions, host_id=self._host_id())
        finally:
            self._again = set()
        if done.retries:
            await self._queue.add(done.retries)

    async def _hand_on(self, url: str, move: uuid.UUID, those: list[_Waiting]) -> list[_Waiting]:
        kept: list[_Waiting] = []
        for start in range(0, len(those), _PAGE):
            page = those[start : start + _PAGE]
            try:
                applied = await self._peer.hand_on(url, move, [waiting.completion for waiting in page])
            except Retryable as fault:
                log.info("the tenant's new cell does not take ends of calls yet", fault=str(fault)[:200])
                kept += page
            else:
                self._handed.inc(sum(applied))
        return kept


async def _either(first: asyncio.Event, second: asyncio.Event) -> None:
    tasks = [asyncio.create_task(first.wait()), asyncio.create_task(second.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _within(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
