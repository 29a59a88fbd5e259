"""How services wait: until a time that others may bring forward, or for an engine to come back."""

from __future__ import annotations

import asyncio
import math

from cells.ports import Clock


class Alarm:
    """A sleep until an instant that `ring` can only move forward. One sleeper."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._until = math.inf
        self._rung = math.inf  # asked for while nobody slept
        self._sleeper: asyncio.Future[None] | None = None

    def ring(self, due_ms: float = 0) -> None:
        """Wake the sleeper at `due_ms` at the latest; at once by default."""
        if self._sleeper is None:
            self._rung = min(self._rung, due_ms)
        elif due_ms < self._until:
            self._until = due_ms
            if not self._sleeper.done():
                self._sleeper.set_result(None)

    async def sleep_until(self, due_ms: float) -> None:
        """Return at `due_ms`, or earlier if it was rung."""
        self._until, self._rung = min(due_ms, self._rung), math.inf
        loop = asyncio.get_running_loop()
        while (left := self._until - self._clock.now_ms()) > 0:
            sleeper = self._sleeper = loop.create_future()
            # Wall and steady clock drift apart in long sleeps: look again at least every second.
            handle = loop.call_later(min(left, 1000) / 1000, _finish, sleeper)
            try:
                await sleeper
            finally:
                handle.cancel()
                self._sleeper = None


def _finish(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


class Backoff:
    """Pauses that grow while an engine is away: 50 ms, 100 ms, ... one second."""

    def __init__(self) -> None:
        self.failures = 0

    def succeeded(self) -> None:
        """Begin anew."""
        self.failures = 0

    def failed(self) -> float:
        """Seconds to wait now."""
        self.failures += 1
        return min(0.05 * 2.0 ** min(self.failures - 1, 10), 1.0)


async def stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    """Wait `seconds`, or until `stop`; whether it was `stop`."""
    if stop.is_set():
        return True
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return False
    return True
