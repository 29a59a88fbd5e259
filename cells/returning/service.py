"""Judges what came back with a region, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import psycopg

from cells.execution.handing_on import HandingOn
from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Clock, Conflict, LeaseLost, NotOwner, Queue, Retryable, Terminal
from cells.returning.applying import Applying
from cells.returning.rows import Judged
from cells.returns import Outcome, ReturnedIntent
from cells.store.postgres import PostgresStore
from cells.store.returned import JudgedAlready

log = logger(__name__)

#: Regions come back seldom.
INTERVAL_SECONDS = 2.0
_PAGE = 100


class Returning:
    """Belongs to the role `reaper`. Several do no harm: an entry is settled once."""

    def __init__(
        self,
        store: PostgresStore,
        queue: Queue,
        clock: Clock,
        metrics: Metrics,
        *,
        host_id: Callable[[], int],
    ) -> None:
        self._store = store
        self._host_id = host_id
        self._applying = Applying(store, HandingOn(queue, metrics), host_id, clock)
        self._judged = metrics.counter(
            "returned_intents_total",
            "Decisions that came back with a region, by what became of them",
            ["outcome"],
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Page by page until `stop`."""
        while not stop.is_set():
            pause = INTERVAL_SECONDS
            try:
                if await self.step():
                    pause = 0.0
            except (Retryable, Terminal) as fault:
                log.warning("cannot judge what came back", fault=str(fault)[:200])
            try:
                async with asyncio.timeout(pause):
                    await stop.wait()
            except TimeoutError:
                continue

    async def step(self) -> int:
        """A page of intents; how many were judged."""
        waiting = await self._store.returned_waiting(limit=_PAGE)
        judged = 0
        for intent in waiting:
            try:
                outcome, note = await self._judge(intent)
            except NotOwner as fault:
                # Its tenant moves, or was taken over just then: it is judged when that is over.
                log.info(
                    "an entry waits for its tenant", tenant=str(intent.tenant_id), fault=str(fault)[:200]
                )
                continue
            await self._store.settle_returned(intent, outcome, note, host_id=self._host_id())
            self._judged.labels(outcome.value).inc()
            judged += 1
        if not judged:
            for region in await self._store.settle_unread(host_id=self._host_id()):
                log.warning("STRICT waits no more for what a site has", region=region)
        if not waiting:
            await self._store.tell_returned(host_id=self._host_id())
        return judged

    async def _judge(self, intent: ReturnedIntent) -> Judged:
        try:
            return await self._applying.judge(intent)
        except (Retryable, NotOwner, LeaseLost):
            raise
        except JudgedAlready:
            return Outcome.ALREADY, None
        except Conflict as fault:
            return Outcome.CHANGED_SINCE, str(fault)
        except (Terminal, psycopg.Error, msgspec.MsgspecError, LookupError, TypeError, ValueError) as fault:
            # One entry that nobody can read holds up no other.
            log.warning("an entry cannot be judged", verb=intent.verb, thing=intent.thing, exc_info=fault)
            return Outcome.REFUSED, f"{type(fault).__name__}: {fault}"
