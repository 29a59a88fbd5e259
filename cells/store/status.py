"""How the cell is, for those who operate it."""

from __future__ import annotations

from cells.ports import CellStatus, HostStatus, Vitals
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

    async def vitals(self) -> Vitals:
        """See `ports.Store.vitals`."""
        async with self._database.transaction() as connection:
            snapshot, shards, letters, dead_jobs, dead_runs = await fetch_row(connection, "status_vitals")
            oldest, now = await fetch_row(connection, "status_oldest")
        late = max(0.0, (now - oldest).total_seconds()) if oldest is not None else 0.0
        return Vitals(
            oldest_snapshot_seconds=snapshot,
            shards_without_dispatcher=shards,
            dead_letters_open=letters,
            dead_rows={"jobs": dead_jobs, "runs": dead_runs},
            oldest_timer_late_seconds=late,
        )
