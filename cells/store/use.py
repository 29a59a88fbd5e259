"""What a tenant uses of its quotas right now."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from cells.domain import ids
from cells.insight import Holdups, Running, TenantUse
from cells.store.arrays import uuids
from cells.store.base import StoreBase
from cells.store.database import fetch_all, fetch_row, run
from cells.store.journal import Entry

#: Strict jobs are looked for so far ahead: the allowance is full where their busiest second is.
STRICT_AHEAD = timedelta(days=1)


class Use(StoreBase):
    """Counts over one tenant's own rows."""

    async def tenant_use(
        self, tenant_id: uuid.UUID, *, most_timers: int, most_runs: int, now: datetime
    ) -> TenantUse:
        """What waits, what runs, and the busiest second of strict jobs within a day."""
        tenant: dict[str, object] = {"tenant": tenant_id}
        ahead = {"since": now.replace(microsecond=0), "until": now + STRICT_AHEAD}
        async with self._database.transaction() as connection:
            timers = await fetch_row(connection, "create_pending", tenant | {"limit": most_timers + 1})
            running = await fetch_row(connection, "use_running", tenant | {"limit": most_runs + 1})
            strict = await fetch_row(connection, "use_strict", tenant | ahead)
        return TenantUse(
            pending_timers=int(timers[0]),
            running_runs=int(running[0]),
            strict_in_busiest_second=int(strict[0]),
        )

    async def running(self) -> Mapping[uuid.UUID, Running]:
        """See `insight.InsightStore.running`."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "use_running_all")
        return {tenant: Running(runs=runs, told=told) for tenant, runs, told in rows}

    async def tell_running(
        self,
        *,
        full: Sequence[tuple[uuid.UUID, int, int]],
        room: Collection[uuid.UUID],
        host_id: int,
    ) -> None:
        """See `insight.InsightStore.tell_running`."""
        async with self._database.transaction() as connection:
            entry = Entry()
            if full:
                told = await fetch_all(connection, "use_full", {"tenants": uuids([t for t, _, _ in full])})
                news = {tenant for (tenant,) in told}
                for tenant, quota, runs in full:
                    if tenant in news:
                        subject = ids.encode(ids.TENANT, tenant)
                        entry.event(
                            tenant, "quota.reached", subject, None,
                            quota="running_runs", limit=quota, used=runs,
                        )  # fmt: skip
            if room:
                await run(connection, "use_room", {"tenants": uuids(list(room))})
            await self._journal.append(connection, host_id, entry)

    async def tell_delayed(self, tenants: Collection[uuid.UUID], *, host_id: int) -> None:
        """See `insight.InsightStore.tell_delayed`."""
        async with self._database.transaction() as connection:
            news = await fetch_all(connection, "use_delay", {"tenants": uuids(list(tenants))})
            if news:
                entry = Entry()
                for tenant, told in news:
                    if told:
                        entry.event(tenant, "budget.spent", ids.encode(ids.TENANT, tenant), None)
                await self._journal.append(connection, host_id, entry)

    async def holdups(self, tenant_id: uuid.UUID) -> Holdups:
        """See `insight.InsightStore.holdups`."""
        async with self._database.transaction() as connection:
            row = await fetch_row(connection, "use_holdups", {"tenant": tenant_id})
        paused, full_since, low_delayed = row
        return Holdups(paused=paused, full_since=full_since, low_delayed=low_delayed)
