"""What a tenant uses of its quotas right now."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from cells.insight import TenantUse
from cells.store.base import StoreBase
from cells.store.database import fetch_row

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
