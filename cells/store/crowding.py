"""Who uses the cell how much, and what a tenant waited for."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from cells.domain.crowding import Began, Waited
from cells.insight import Load, MetersLeft
from cells.store.arrays import from_datetime, instants
from cells.store.base import StoreBase
from cells.store.database import fetch_all, fetch_row

#: Runs that a statement is made of at most; the newest ones.
WAITS_LIMIT = 100_000
#: Minutes whose neighbours are looked up; those in which most was waited.
_MINUTES = 1_440


class Crowding(StoreBase):
    """Sums over minutes."""

    async def waits(
        self, tenant_id: uuid.UUID, *, since: datetime, until: datetime, most: int = WAITS_LIMIT
    ) -> tuple[Sequence[Waited], Mapping[datetime, Began]]:
        """See `insight.InsightStore.waits`."""
        asked = {"tenant": tenant_id, "since": since, "until": until, "most": most}
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "crowding_waits", asked)
            minutes = [_waited(*row) for row in rows]
            queued = sorted((m for m in minutes if m.queue), key=lambda m: -m.queue)[:_MINUTES]
            began = await fetch_all(
                connection,
                "crowding_began",
                {"tenant": tenant_id, "minutes": instants([from_datetime(m.minute) for m in queued])},
            )
        return minutes, {
            minute: Began(own=own, others=others, tenants=tenants) for minute, own, others, tenants in began
        }

    async def load(self, *, since: datetime, until: datetime) -> Sequence[Load]:
        """See `insight.InsightStore.load`."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "crowding_load", {"since": since, "until": until})
        return [
            Load(tenant_id=tenant, began=began, busiest_minute=busiest, lag_max_ms=lag)
            for tenant, began, busiest, lag in rows
        ]

    async def meters_left(self) -> MetersLeft:
        """See `insight.InsightStore.meters_left`."""
        async with self._database.transaction() as connection:
            unsealed, unshipped = await fetch_row(connection, "cell_meters_open")
        return MetersLeft(unsealed=unsealed, unshipped=unshipped)


def _waited(minute: datetime, runs: int, *waits: timedelta) -> Waited:
    window, retries, quota, workers, queue, target = (
        max(0, round(waited / timedelta(milliseconds=1))) for waited in waits
    )
    return Waited(
        minute=minute,
        runs=runs,
        window=window,
        retries=retries,
        quota=quota,
        workers=workers,
        queue=queue,
        target=target,
    )
