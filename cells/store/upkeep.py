"""What has to be done now and then."""

from __future__ import annotations

from cells.store.base import StoreBase
from cells.store.database import fetch_one, run


class Upkeep(StoreBase):
    """Partitions and expiry."""

    async def ensure_partitions(self, *, days_ahead: int) -> None:
        """Have day partitions of runs and journal from yesterday to `days_ahead` days from now.
        `Retryable` when writers could not be interrupted; nobody waited long."""
        async with self._database.transaction() as connection:
            await run(connection, "partitions_lock")
            await run(connection, "partitions_patience")
            await run(connection, "partitions_ensure", {"days_ahead": days_ahead})

    async def purge_idempotency_keys(self, *, older_than_hours: int) -> int:
        """Forget a page of keys older than that; how many."""
        async with self._database.transaction() as connection:
            return (await run(connection, "idempotency_purge", {"hours": older_than_hours})).rowcount

    async def ping(self) -> None:
        """Raises `Retryable` if the engine does not answer."""
        async with self._database.transaction() as connection:
            await fetch_one(connection, "cell_name")
