"""Whether what a request waits for still answers at all.

A host that is suspended takes connections and says nothing. So where a request has waited for a moment,
its address is asked a question that costs nothing (`/healthz`, any answer will do). Two without an answer
mean that it is silent: requests that wait for it are given up, and further ones are not sent there until
it answers again. A long poll at a host that is well waits as long as it wants.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

log = logging.getLogger(__name__)

#: A request that waits longer for the head of its answer is looked after (seconds).
PATIENCE_S = 2.0
#: How long the question may take, and the pause before the next one (seconds).
_QUESTION_S = 2.5
_AGAIN_S = 0.5
#: So many questions in a row without an answer: silent. One alone may be a busy moment.
_UNANSWERED = 2


class Silent(Exception):
    """What is at the address takes connections, and does not answer. What was sent may have arrived."""


class Pulse:
    """One per process. Knows nothing of an address that nobody waits for."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._waiting: dict[str, set[asyncio.Timeout]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._silent: set[str] = set()

    @property
    def silent(self) -> frozenset[str]:
        """Addresses that do not answer now."""
        return frozenset(self._silent)

    @asynccontextmanager
    async def awaited(self, address: str) -> AsyncIterator[None]:
        """Around the wait for the head of an answer. Raises `Silent` once nothing is to be expected."""
        limit = asyncio.timeout(None)
        timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._look_after, address, limit)
        try:
            async with limit:
                yield
        except TimeoutError:
            if limit.expired():
                raise Silent(address) from None
            raise
        finally:
            timer.cancel()
            self._waiting.get(address, set()).discard(limit)

    async def close(self) -> None:
        """Ask nobody any more."""
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)

    def _look_after(self, address: str, limit: asyncio.Timeout) -> None:
        self._waiting.setdefault(address, set()).add(limit)
        if address not in self._asking:
            self._asking[address] = asyncio.create_task(self._ask(address), name="pulse")

    async def _ask(self, address: str) -> None:
        """Until nobody waits for it and it is known to answer."""
        unanswered = 0
        try:
            while self._waiting.get(address) or address in self._silent:
                if await self._answers(address):
                    unanswered = 0
                    if address in self._silent:
                        self._silent.discard(address)
                        log.info("it answers again: %s", address)
                else:
                    unanswered += 1
                if unanswered >= _UNANSWERED:
                    self._give_up(address)
                await asyncio.sleep(_AGAIN_S)
        finally:
            del self._asking[address]

    def _give_up(self, address: str) -> None:
        if address not in self._silent:
            self._silent.add(address)
            log.warning("it takes connections and does not answer: %s", address)
        now = asyncio.get_running_loop().time()
        for limit in self._waiting.pop(address, set()):
            limit.reschedule(now)

    async def _answers(self, address: str) -> bool:
        patience = aiohttp.ClientTimeout(total=_QUESTION_S)
        try:
            async with self._session.get(f"{address}/healthz", timeout=patience):
                return True
        except TimeoutError:
            return False
        except (aiohttp.ClientError, OSError):
            return True  # it is down, not silent: who waits there learns it from their own connection
