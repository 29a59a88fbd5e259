"""What goes back to the queue: next occurrences, retries, returned claims.

Everything handed on is committed in the store already, so the queue may be away: the straggler
sweep finds what was not added. It costs lateness, which is counted, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Member, Queue, Retryable
from cells.pulling import QueueId

log = logger(__name__)


class HandingOn:
    """The queue, for writers that have committed."""

    def __init__(self, queue: Queue, metrics: Metrics):
        self._queue = queue
        self._missed = metrics.counter(
            "queue_adds_missed_total", "Members the queue did not take; the straggler sweep finds them"
        )

    async def add(self, members: Sequence[Member]) -> None:
        """Add timers that were just committed."""
        if not members:
            return
        try:
            await self._queue.add(members)
        except Retryable as fault:
            self._missed.inc(len(members))
            log.warning("queue did not take timers", members=len(members), fault=str(fault)[:200])

    async def announce(self, queues: Sequence[QueueId]) -> None:
        """Tell pollers of tasks that were just committed. They look by themselves now and then, too."""
        if not queues:
            return
        try:
            await self._queue.announce(queues)
        except Retryable as fault:
            log.warning("queue did not announce tasks", queues=len(queues), fault=str(fault)[:200])

    async def remove(self, members: Sequence[Member]) -> None:
        """Take timers away that are no more. A courtesy: a claim would find them stale."""
        if not members:
            return
        try:
            await self._queue.remove(members)
        except Retryable as fault:
            log.warning("queue did not remove timers", members=len(members), fault=str(fault)[:200])

    async def refund(self, members: Sequence[Member]) -> None:
        """Tell the queue that these were stale."""
        if not members:
            return
        try:
            await self._queue.refund(members)
        except Retryable as fault:
            log.warning("queue did not take refunds", members=len(members), fault=str(fault)[:200])
