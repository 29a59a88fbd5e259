"""Long work in short pieces: all roles of a process share one event loop.

What works through thousands of rows without a pause keeps everything else of the process waiting, calls
that are due among it. It asks here after each piece whether it is time to let the loop come round.
"""

from __future__ import annotations

import asyncio
import time

#: A turn may take this long (seconds).
TURN_SECONDS = 0.002


class Rounds:
    """The turns of one piece of long work."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def give_way(self) -> None:
        """Let others go first, if this turn has been long enough."""
        if time.perf_counter() - self._since > TURN_SECONDS:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
