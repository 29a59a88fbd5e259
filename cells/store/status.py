"""How the cell is, for those who operate it."""

from __future__ import annotations

import time
from datetime import datetime

from cells.ports import CellStatus, HostStatus, Vitals
from cells.store.base import StoreBase
from cells.store.database import Connection, fetch_all, fetch_row


class Status(StoreBase):
    """Reads across all tenants, cheap at any size."""

    async def status(self) -> CellStatus:
        """See `ports.Store.status`."""
        async with self._database.transaction() as connection:
            hosts = await fetch_all(connection, "status_hosts")
            oldest, now = await self._oldest(connection)
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
            oldest, now = await self._oldest(connection)
        late = max(0.0, (now - oldest).total_seconds()) if oldest is not None else 0.0
        return Vitals(
            oldest_snapshot_seconds=snapshot,
            shards_without_dispatcher=shards,
            dead_letters_open=letters,
            dead_rows={"jobs": dead_jobs, "runs": dead_runs},
            oldest_timer_late_seconds=late,
        )

    async def _oldest(self, connection: Connection) -> tuple[datetime | None, datetime]:
        """The earliest timer, and the database's time. One that came to be earlier than what was seen before
        is seen within a minute."""
        began = time.monotonic()
        (since,) = self._oldest_timer.begin(began)
        oldest, at = await fetch_row(connection, "status_oldest", {"since": since})
        now = time.monotonic()
        self._oldest_timer.ended([oldest], at=at, now=now, took=now - began)
        return oldest, at
