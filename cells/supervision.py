"""Keeps the roles of a process running.

A role that raises, or ends before it was told to, is logged, counted and started again with
a growing pause. It is never silently gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from cells.observability.logs import logger
from cells.observability.metrics import Metrics

log = logger(__name__)

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 10.0
#: After running for this long a role starts again with the first pause (seconds).
_GOOD_RUN = 30.0


class Service(Protocol):
    """Something that works until `stop` is set, and then ends by itself."""

    async def run(self, stop: asyncio.Event) -> None: ...


class Supervisor:
    """Runs services. Each start builds its service anew, so that nothing broken is inherited."""

    def __init__(self, metrics: Metrics):
        self._restarts = metrics.counter("host_role_restarts_total", "Roles that ended early", ["role"])
        self._running = metrics.gauge("host_role_running", "1 while a role runs", ["role"])

    async def keep(
        self,
        role: str,
        build: Callable[[], Service],
        stop: asyncio.Event,
        *,
        first_pause: float = FIRST_PAUSE,
    ) -> None:
        """Run one role until `stop`."""
        loop = asyncio.get_running_loop()
        running = self._running.labels(role)
        self._restarts.labels(role)
        pause = first_pause
        while not stop.is_set():
            began = loop.time()
            running.set(1)
            try:
                await build().run(stop)
                if stop.is_set():
                    return
                log.error("role ended by itself", role=role)
            except Exception:
                log.exception("role crashed", role=role)
            finally:
                running.set(0)
            self._restarts.labels(role).inc()
            if loop.time() - began > _GOOD_RUN:
                pause = first_pause
            try:
                async with asyncio.timeout(pause):
                    await stop.wait()
            except TimeoutError:
                pause = min(pause * 2, LONGEST_PAUSE)
