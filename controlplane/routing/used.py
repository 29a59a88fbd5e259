"""When each key was last used, told to Django from time to time."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from controlplane.routing.control import CALL_FAULTS, ControlPlane

log = logging.getLogger(__name__)


class LastUsed:
    """The newest use of each key since the last report. Lost by a crash: it is a hint."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def note(self, key_id: str, now_ms: int) -> None:
        """A request came with this key."""
        self._seen[key_id] = now_ms

    async def run(self, stop: asyncio.Event, control: ControlPlane, *, every_s: float = 10.0) -> None:
        """Report until `stop` is set, and once more then."""
        while not stop.is_set():
            try:
                async with asyncio.timeout(every_s):
                    await stop.wait()
            except TimeoutError:
                pass  # the interval is over
            await self.report(control)

    async def report(self, control: ControlPlane) -> bool:
        """Send what was seen; keep it for the next time if Django is away."""
        if not self._seen:
            return True
        seen, self._seen = self._seen, {}
        try:
            status, _ = await control.post("/internal/routing/used", msgspec.json.encode({"keys": seen}))
        except CALL_FAULTS as fault:
            log.debug("last uses not reported: %r", fault)
            status = 0
        if not 200 <= status < 300:
            self._seen = seen | self._seen
            return False
        return True
