"""Tasks of STRICT runs on their way to workers: nobody gets one before another region has its claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from cells.api.feed import QueueFeed
from cells.domain.job import STRICT
from cells.observability.logs import logger
from cells.ports import Queue, Retryable, Store, Terminal
from cells.pulling import PulledTask

log = logger(__name__)

#: For how long tasks stand aside whose claims nobody confirmed (seconds).
ASIDE_SECONDS = 10


def is_strict(task: PulledTask) -> bool:
    """Whether its claim is to be confirmed first."""
    return task.claim.definition.region_policy == STRICT


class Handing:
    """Confirms claims. While no other region answers, what is claimed stands aside: it is given back and due
    again a little later, so that tasks which wait for nobody are not kept behind it. Its tenant gets back
    what it paid at the gate, and pays when it passes again. Who comes meanwhile does not wait to hear the
    same; one look at a time finds out whether a region answers again."""

    def __init__(self, store: Store, queue: Queue, feed: QueueFeed, host_id: Callable[[], int]):
        self._store = store
        self._queue = queue
        self._feed = feed
        self._host_id = host_id
        self._alone = False  # no other region answered, at the last attempt
        self._probe: asyncio.Task[bool] | None = None

    async def confirmed(self, tasks: Sequence[PulledTask]) -> Sequence[PulledTask]:
        """Those of some claimed tasks that may be handed out."""
        strict = [task for task in tasks if is_strict(task)]
        if not strict or await self._have_them():
            return tasks
        await self._put_aside(strict)
        return [task for task in tasks if not is_strict(task)]

    async def settled(self) -> None:
        """Return when no look is under way."""
        if self._probe is not None:
            await asyncio.wait({self._probe})

    async def _have_them(self) -> bool:
        """Whether another region has what was claimed before this call."""
        if not self._alone:
            return await self._confirm()
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._confirm())
        return False

    async def _confirm(self) -> bool:
        try:
            await self._store.confirm()
        except Retryable as fault:
            log.warning("claims of tasks are not confirmed by another region", fault=str(fault)[:200])
            self._alone = True
        except Exception:
            log.exception("confirming claims of tasks failed in here")
            self._alone = True
        else:
            self._alone = False
        return not self._alone

    async def _put_aside(self, tasks: Sequence[PulledTask]) -> None:
        claims = [task.claim for task in tasks]
        try:
            members = await self._store.release(
                claims, host_id=self._host_id(), after_ms=ASIDE_SECONDS * 1000
            )
        except (Retryable, Terminal) as fault:
            # Their leases end, and the reaper takes them back.
            log.warning("unconfirmed tasks not given back", tasks=len(claims), fault=str(fault)[:200])
            return
        self._feed.add(members)
        try:
            await self._queue.refund(members)
        except Retryable as fault:
            log.warning("queue did not take refunds", members=len(members), fault=str(fault)[:200])
