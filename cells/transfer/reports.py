"""What a region had done that came back, of tenants who live in another cell by then: that cell reports it.

Nothing of it is done again there: what the tenant has decided since was decided without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from cells.observability.logs import logger
from cells.ports import Retryable, Terminal
from cells.returns import Away, AwayPage
from cells.store.postgres import PostgresStore

log = logger(__name__)

#: Regions come back seldom (seconds), and their reports are long.
INTERVAL_SECONDS = 5.0
_PAGE = 200


class TakesReports(Protocol):
    """The other cell (`peers.Peer`)."""

    async def hand_report(self, away: Away, page: AwayPage) -> None: ...


class Reports:
    """Belongs to the role `reaper`. Several do no harm: an entry is taken once."""

    def __init__(self, store: PostgresStore, peer: TakesReports, *, host_id: Callable[[], int]) -> None:
        self._store = store
        self._peer = peer
        self._host_id = host_id

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`."""
        while not stop.is_set():
            try:
                await self.step()
            except (Retryable, Terminal) as fault:
                log.warning("reports wait for the cells that tenants went to", fault=str(fault)[:200])
            try:
                async with asyncio.timeout(INTERVAL_SECONDS):
                    await stop.wait()
            except TimeoutError:
                continue

    async def step(self) -> int:
        """Hands reports on; how many. One that its cell does not take holds up no other."""
        handed = 0
        for away in await self._store.returned_away():
            try:
                after = 0
                while True:
                    page = await self._store.returned_page(away, after=after, limit=_PAGE)
                    await self._peer.hand_report(away, page)
                    if page.last:
                        break
                    after = page.until
            except Retryable as fault:
                log.warning("a report waits", tenant=str(away.tenant_id), fault=str(fault)[:200])
                continue
            await self._store.returned_handed_on(away, host_id=self._host_id())
            handed += 1
        return handed
