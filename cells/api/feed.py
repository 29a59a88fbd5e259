"""Tells the queue what was just written, behind the answer.

A writer's answer does not wait for the queue, and a queue that is down fails nothing: the store
is the truth, the sweeps add what is missing within seconds. What could not be told is counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from prometheus_client import Counter

from cells.observability.logs import logger
from cells.ports import Member, Queue

log = logger(__name__)

#: Members that wait at most; more are left to the sweeps.
WAITING_LIMIT = 50_000
_BATCH = 1000
#: A queue that takes longer is as good as down (seconds).
_TIMEOUT_SECONDS = 5.0


@dataclass(slots=True)
class _Told:
    add: bool
    members: list[Member]


class QueueFeed:
    """Adds and removes members, in order, one call at a time."""

    def __init__(self, queue: Queue, missed: Counter):
        self._queue = queue
        self._missed = missed
        self._waiting: deque[_Told] = deque()
        self._count = 0
        self._teller: asyncio.Task[None] | None = None

    def add(self, members: Sequence[Member]) -> None:
        """These wait now."""
        self._tell(True, members)

    def remove(self, members: Sequence[Member]) -> None:
        """These wait no more."""
        self._tell(False, members)

    async def flush(self) -> None:
        """Return when everything told so far has reached the queue, or was given up."""
        while self._teller is not None:
            await asyncio.wait({self._teller})

    def _tell(self, add: bool, members: Sequence[Member]) -> None:
        if not members:
            return
        if self._count + len(members) > WAITING_LIMIT:
            self._missed.inc(len(members))
            return
        self._count += len(members)
        last = self._waiting[-1] if self._waiting else None
        if last is not None and last.add is add and len(last.members) < _BATCH:
            last.members.extend(members)
        else:
            self._waiting.append(_Told(add, list(members)))
        if self._teller is None:
            self._teller = asyncio.create_task(self._tell_all())

    async def _tell_all(self) -> None:
        try:
            while self._waiting:
                told = self._waiting.popleft()
                self._count -= len(told.members)
                tell: Callable[[Sequence[Member]], Awaitable[None]]
                tell = self._queue.add if told.add else self._queue.remove
                try:
                    async with asyncio.timeout(_TIMEOUT_SECONDS):
                        await tell(told.members)
                except Exception as error:  # noqa: BLE001 - the sweeps find what was written; this must live on
                    self._missed.inc(len(told.members))
                    log.warning("queue not told", members=len(told.members), fault=str(error)[:200])
        finally:
            self._teller = None
