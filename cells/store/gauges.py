"""Levels: what waits and what is stored, counted once at the start of each minute by its owner.

They ride on the journal like all that is metered: the row's lease is the fence, and sealing adds
them up with the rest. A minute in which no meter ran has none.
"""

from __future__ import annotations

from cells.contract import Metric
from cells.store.base import StoreBase
from cells.store.database import fetch_all, fetch_one, fetch_row, run
from cells.store.journal import Entry


class _Closed(Exception):
    """The minute was closed while its gauges were counted; the transaction goes back."""


class Gauges(StoreBase):
    """Counting levels."""

    async def gauge_minute(self, *, host_id: int) -> bool:
        """See `ports.Store.gauge_minute`."""
        try:
            async with self._database.transaction() as connection:
                taken = await fetch_one(connection, "gauge_take")
                if taken is None:
                    return False
                entry = Entry()
                for tenant, policy, waiting in await fetch_all(connection, "gauge_timers"):
                    entry.count(tenant.hex, Metric.PENDING_TIMER_MINUTES, policy, waiting)
                for tenant, policy, stored in await fetch_all(connection, "gauge_stored"):
                    entry.count(tenant.hex, Metric.STORED_BYTE_MINUTES, policy, stored)
                await self._journal.append(connection, host_id, entry)
                if not (await fetch_row(connection, "gauge_dated", {"minute": taken[0]}))[0]:
                    raise _Closed
        except _Closed:
            return False
        return True

    async def count_stored(self) -> bool:
        """See `ports.Store.count_stored`."""
        async with self._database.transaction() as connection:
            if not (await fetch_row(connection, "stored_due"))[0]:
                return False
            await run(connection, "stored_patience")
            await run(connection, "stored_count")
            await run(connection, "stored_done")
            return True
