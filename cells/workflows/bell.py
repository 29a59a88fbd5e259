"""Tells engines, in this process and in others, that a workflow has something to record.

A bell that is not heard costs a second: engines look by themselves, too. Ringing waits for nobody.
"""

from __future__ import annotations

import asyncio
import uuid

from redis.exceptions import RedisError

from cells.observability.logs import logger
from cells.timers.keys import Keys
from cells.timers.valkey import connect

log = logger(__name__)

#: Others are told this often at most (seconds).
_TELL_SECONDS = 0.005
_PAUSE_SECONDS = 0.5


class Ear:
    """Hears the bell. Of one waiter only: who hears it has taken the ring."""

    def __init__(self, bell: Bell):
        self._bell = bell
        self.rung = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Return when it rings, has rung since the last call, or after so long."""
        self._bell.listen()
        try:
            async with asyncio.timeout(seconds):
                await self.rung.wait()
        except TimeoutError:
            return
        finally:
            self.rung.clear()


class Bell:
    """One per process."""

    def __init__(self, url: str, *, cell: str):
        self._client = connect(url)
        self._hearing = connect(url, socket_timeout=None)
        self._channel = Keys(cell).prefix + "workflows"
        self._name = uuid.uuid4().bytes
        self._ears: list[Ear] = []
        self._teller: asyncio.Task[None] | None = None
        self._again = False
        self._listener: asyncio.Task[None] | None = None

    def ring(self) -> None:
        """Something was committed."""
        self._heard()
        self._again = True
        if self._teller is None:
            self._teller = asyncio.get_running_loop().create_task(self._tell(), name="workflows-bell")

    def ear(self) -> Ear:
        """One more who hears it."""
        ear = Ear(self)
        self._ears.append(ear)
        return ear

    def _heard(self) -> None:
        for ear in self._ears:
            ear.rung.set()

    def listen(self) -> None:
        """Hear the bells of other processes, too."""
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen(), name="workflows-bell-heard")

    async def close(self) -> None:
        """Ring no more."""
        tasks = [task for task in (self._teller, self._listener) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.aclose()
        await self._hearing.aclose()

    async def _tell(self) -> None:
        try:
            while self._again:
                self._again = False
                await self._client.publish(self._channel, self._name)
                await asyncio.sleep(_TELL_SECONDS)
        except (RedisError, OSError) as fault:
            log.warning("engines of other processes are not told", fault=str(fault)[:200])
        finally:
            self._teller = None

    async def _listen(self) -> None:
        while True:
            try:
                async with self._hearing.pubsub() as channel:
                    await channel.subscribe(self._channel)
                    async for said in channel.listen():
                        # Subscribing is heard, too: nobody knows what was said before. Who rang has heard it.
                        if said["data"] != self._name:
                            self._heard()
            except (RedisError, OSError) as fault:
                log.warning("engines of other processes are not heard", fault=str(fault)[:200])
            await asyncio.sleep(_PAUSE_SECONDS)
