"""How the cell is, for those who operate it."""

from __future__ import annotations

from cells.ports import CellStatus, HostStatus
from cells.store.base import StoreBase
from cells.store.database import fetch_all, fetch_row


class Status(StoreBase):
    """Reads across all tenants, cheap at any size."""

    async def status(self) -> CellStatus:
        """See `ports.Store.status`."""
        async with self._database.transaction() as connection:
            hosts = await fetch_all(connection, "status_hosts")
            oldest, now = await fetch_row(connection, "status_oldest")
            (jobs,) = await fetch_row(connection, "status_jobs")
        return CellStatus(
            database_time=now,
            oldest_due_at=oldest,
            jobs_estimated=jobs,
            hosts=tuple(
                HostStatus(name=name, roles=tuple(roles), started_at=started, live=live)
                for name, roles, started, live in hosts
            ),
        )
