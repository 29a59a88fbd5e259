"""What other processes say: a new head in a bucket, members in a queue.

Messages can be lost with the connection. Whoever listens is therefore told "look yourself" after
every new subscription, and never sleeps longer than a second or so on the word of this channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from redis.exceptions import RedisError

from cells.observability.logs import logger
from cells.timers.keys import Keys
from cells.timers.valkey import connect

log = logger(__name__)

ALL_CLASSES = 0b1111
_PAUSE_SECONDS = (0.05, 0.1, 0.2, 0.5)


class Signals:
    """Listens to a cell's channels until it is closed, through every outage."""

    def __init__(self, url: str, keys: Keys):
        self._client = connect(url, socket_timeout=None)
        self._keys = keys
        self._task: asyncio.Task[None] | None = None
        self._on_wake: list[Callable[[int], None]] = []
        self._on_ready: list[Callable[[int], None]] = []
        self._on_tasks: list[Callable[[bytes | None], None]] = []
        self.subscribed = False

    def on_wake(self, tell: Callable[[int], None]) -> Callable[[], None]:
        """`tell(due_ms)` when a bucket got a head that is due then; 0: look at once. Call what is
        returned to hear no more."""
        self._on_wake.append(tell)
        return lambda: self._on_wake.remove(tell)

    def on_ready(self, tell: Callable[[int], None]) -> None:
        """`tell(classes)` when classes (one bit each) got members."""
        self._on_ready.append(tell)

    def on_tasks(self, tell: Callable[[bytes | None], None]) -> None:
        """`tell(message)` when task queues got tasks; None: look at all of them."""
        self._on_tasks.append(tell)

    def open(self) -> None:
        """Begin to listen."""
        if self._task is None:
            self._task = asyncio.create_task(self._listen(), name="timers-signals")

    async def close(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._client.aclose()

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                async with self._client.pubsub() as channel:
                    await channel.subscribe(self._keys.wake, self._keys.ready, self._keys.tasks)
                    async for message in channel.listen():
                        failures = 0
                        self._hear(message)
            except (RedisError, OSError) as fault:
                if failures == 0:
                    log.warning("signals interrupted", fault=str(fault)[:200])
            self.subscribed = False
            await asyncio.sleep(_PAUSE_SECONDS[min(failures, len(_PAUSE_SECONDS) - 1)])
            failures += 1

    def _hear(self, message: dict[str, object]) -> None:
        channel, data = message["channel"], message["data"]
        if channel == self._keys.tasks.encode():
            said = data if message["type"] == "message" and isinstance(data, bytes) else None
            for hear in self._on_tasks:
                hear(said)
            return
        ready = channel == self._keys.ready.encode()
        if message["type"] == "message":
            value = int(data)  # type: ignore[call-overload]
        else:
            # Subscribed (again): nobody knows what was said before.
            value = ALL_CLASSES if ready else 0
            self.subscribed = self.subscribed or ready
        for tell in self._on_ready if ready else self._on_wake:
            tell(value)
