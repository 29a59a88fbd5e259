"""Answers that are dear to make: one at a time for a tenant, a few in a process, and kept for a moment."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from cells.api.problems import Problem, unavailable
from cells.ports import Clock

V = TypeVar("V")

#: How many are made at once: each holds a connection of the pool that all requests share.
AT_ONCE = 2
#: How old an answer may be, how many are kept, and how long one waits for its turn (seconds).
KEPT_SECONDS, KEPT, PATIENCE_SECONDS = 60.0, 500, 10.0
_Key = tuple[uuid.UUID, Hashable]


class Sparing(Generic[V]):
    """Makes answers and keeps them by tenant and question."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._places = asyncio.Semaphore(AT_ONCE)
        self._turns: dict[uuid.UUID, tuple[asyncio.Lock, int]] = {}
        self._kept: dict[_Key, tuple[float, V]] = {}

    async def get(self, tenant_id: uuid.UUID, question: Hashable, make: Callable[[], Awaitable[V]]) -> V:
        """What is kept, or what `make` says. `Problem` (503) where others are being made for too long."""
        key = (tenant_id, question)
        if (found := self._found(key)) is not None:
            return found[1]
        lock, waiting = self._turns.get(tenant_id, (asyncio.Lock(), 0))
        self._turns[tenant_id] = (lock, waiting + 1)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS) as patience, lock:
                if (found := self._found(key)) is not None:  # somebody asked the same
                    return found[1]
                async with self._places:
                    patience.reschedule(None)
                    made = await make()
        except TimeoutError:
            raise _busy() from None
        finally:
            lock, waiting = self._turns[tenant_id]
            if waiting == 1:
                del self._turns[tenant_id]
            else:
                self._turns[tenant_id] = (lock, waiting - 1)
        while len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = (self._clock.monotonic(), made)
        return made

    def _found(self, key: _Key) -> tuple[float, V] | None:
        found = self._kept.get(key)
        if found is not None and self._clock.monotonic() - found[0] >= KEPT_SECONDS:
            del self._kept[key]
            return None
        return found


def _busy() -> Problem:
    return unavailable("Other statements of this kind are being made: ask again in a moment.")
