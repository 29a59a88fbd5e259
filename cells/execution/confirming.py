"""Claims of STRICT runs on their way to the lanes: they are called only once another region has them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cells.execution.host_agent import HostAgent
from cells.execution.lanes import Work
from cells.observability.logs import logger
from cells.ports import Clock, Retryable, Store

log = logger(__name__)

#: Between tries to have claims confirmed (seconds).
AGAIN_SECONDS = 0.5


class Confirming:
    """Keeps claims until they are confirmed. That takes milliseconds, and each has its place in its lane
    meanwhile. While no other region answers it may take minutes: then they stand aside, so that the lane's
    slots are free for work that waits for nobody, and only tenants with many of them are passed over."""

    def __init__(self, store: Store, host: HostAgent, clock: Clock):
        self._store = store
        self._host = host
        self._clock = clock
        self._alone = False  # no other region answered, at the last attempt
        self._batches: dict[asyncio.Task[None], _Batch] = {}

    def put(self, works: Sequence[Work]) -> None:
        """Put them into their lanes once their claims are confirmed. What waits for too long, or whose host
        has lost its lease, is put as well: whoever would call it finds that out and gives it back."""
        batch = _Batch(works, aside=self._alone)
        task = asyncio.create_task(self._confirm(batch))
        self._batches[task] = batch
        task.add_done_callback(lambda done: self._batches.pop(done, None))

    async def give_up(self) -> list[Work]:
        """End the waiting: what is not confirmed, for somebody to give back."""
        batches = dict(self._batches)
        for task in batches:
            task.cancel()
        await asyncio.gather(*batches, return_exceptions=True)
        return [work for batch in batches.values() for work in batch.take()]

    async def _confirm(self, batch: _Batch) -> None:
        while batch.works and self._host.holds(batch.works[0].host_id):
            try:
                await self._store.confirm()
                self._alone = False
                break
            except Retryable as fault:
                log.warning("claims are not confirmed by another region", fault=str(fault)[:200])
            except Exception:
                log.exception("confirming claims failed in here")
            self._alone = True
            batch.stand_aside()
            now = self._clock.monotonic()
            _put(batch.take([work for work in batch.works if now > work.last_start]))
            await asyncio.sleep(AGAIN_SECONDS)
        _put(batch.take())


class _Batch:
    """Claims that one confirmation confirms, and how they count in their lanes."""

    def __init__(self, works: Sequence[Work], *, aside: bool) -> None:
        self.works = list(works)
        self._aside = aside
        for work in self.works:
            if aside:
                work.lane.set_aside(work.claim.tenant_id)
            else:
                work.lane.expect(1)

    def stand_aside(self) -> None:
        """From now on they keep no slots."""
        if self._aside:
            return
        self._aside = True
        for work in self.works:
            work.lane.set_aside(work.claim.tenant_id)
            work.lane.expect(-1)

    def take(self, works: Sequence[Work] | None = None) -> list[Work]:
        """Take these out, or all."""
        taken = list(self.works if works is None else works)
        gone = set(map(id, taken))
        self.works = [work for work in self.works if id(work) not in gone]
        for work in taken:
            if self._aside:
                work.lane.take_back(work.claim.tenant_id)
            else:
                work.lane.expect(-1)
        return taken


def _put(works: Sequence[Work]) -> None:
    for work in works:
        work.lane.put(work)
