"""What has to be done now and then: partitions ahead, and an end to what only grows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from cells.store.base import StoreBase
from cells.store.database import fetch_one, fetch_row, run

#: How long rows are kept after their use, by what they are. README.md says what is kept for ever.
KEPT = {
    "idempotency_keys": timedelta(hours=24),
    "meters": timedelta(days=35),  # as long as the ledger takes late ones
    "job_usage": timedelta(days=400),  # as far back as reports go
    "stats": timedelta(days=90),
    "target_stats": timedelta(days=90),
    "secrets": timedelta(days=1),
    "hosts": timedelta(days=30),
    "events": timedelta(days=30),
    "reconciliation": timedelta(days=30),
    "lengthenings": timedelta(days=2),  # they reach a day ahead
    "workers": timedelta(days=7),
    "selections": timedelta(days=30),  # applied ones; the others until they expire
}
JOURNAL_KEPT = timedelta(days=30)


class Upkeep(StoreBase):
    """Partitions and expiry."""

    async def ensure_partitions(self, *, days_ahead: int) -> None:
        """Have day partitions of runs and journal from yesterday to `days_ahead` days from now.
        `Retryable` when writers could not be interrupted; nobody waited long."""
        async with self._database.transaction() as connection:
            await run(connection, "partitions_lock")
            await run(connection, "partitions_patience")
            await run(connection, "partitions_ensure", {"days_ahead": days_ahead})

    async def purge(self, *, page: int) -> Mapping[str, int]:
        """See `ports.Store.purge`. Each kind in a transaction of its own."""
        gone = {}
        for what, kept in KEPT.items():
            async with self._database.transaction() as connection:
                done = await run(connection, f"purge_{what}", {"kept": kept, "page": page})
                gone[what] = done.rowcount
        return gone

    async def drop_journal_day(self) -> bool:
        """See `ports.Store.drop_journal_day`. `Retryable` when the journal was too busy."""
        async with self._database.transaction() as connection:
            await run(connection, "purge_patience")
            (dropped,) = await fetch_row(connection, "purge_journal_day", {"kept": JOURNAL_KEPT})
            return bool(dropped)

    async def ping(self) -> None:
        """Raises `Retryable` if the engine does not answer."""
        async with self._database.transaction() as connection:
            await fetch_one(connection, "cell_name")
