"""Telling people that they have reached a limit, but not a thousand times a second."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from cells.domain import ids
from cells.ports import AllowanceExceeded, Fence, NewJob, QuotaExceeded
from cells.store.journal import Entry

#: Once in so many seconds per tenant and limit, from each process.
INTERVAL_SECONDS = 60.0
_KEPT = 10_000


class LimitsTold:
    """Which tenants have lately been told of which limit."""

    def __init__(self) -> None:
        self._told: dict[tuple[uuid.UUID, str], float] = {}

    def tell(self, entry: Entry, items: Sequence[tuple[Fence, NewJob]], outcomes: Sequence[object]) -> None:
        """An event for each limit that refused one of these jobs and was not told of lately."""
        for (fence, job), outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, QuotaExceeded):
                self._tell(entry, fence.tenant_id, outcome.scope, job.actor, limit=outcome.limit)
            elif isinstance(outcome, AllowanceExceeded):
                self._tell(entry, fence.tenant_id, "strict_jobs_per_second", job.actor)

    def _tell(self, entry: Entry, tenant: uuid.UUID, quota: str, actor: str, **data: object) -> None:
        now = time.monotonic()
        key = (tenant, quota)
        if now - self._told.get(key, float("-inf")) < INTERVAL_SECONDS:
            return
        if len(self._told) >= _KEPT:
            self._told.clear()
        self._told[key] = now
        entry.event(tenant, "quota.reached", ids.encode(ids.TENANT, tenant), actor, quota=quota, **data)
