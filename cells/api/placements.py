"""What this process knows of the tenants placed here, at most a second old.

Only a shortcut: each write is checked again by the store, in its own transaction.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from cells.domain import ids
from cells.ports import Clock, Store, TenantPlacement

MAX_AGE_SECONDS = 1.0
_KEPT = 50_000


class Placements:
    """A read-through cache of tenants. One read at a time per tenant."""

    def __init__(self, store: Store, clock: Clock, *, cell: str):
        self._store = store
        self._clock = clock
        self._cell = cell
        self._known: dict[uuid.UUID, tuple[float, TenantPlacement | None]] = {}
        self._reading: dict[uuid.UUID, asyncio.Task[TenantPlacement | None]] = {}

    async def get(self, tenant_id: uuid.UUID, *, at_least: int = 0) -> TenantPlacement | None:
        """The tenant as this cell knows it, None if it does not. `at_least` is the epoch the
        sender has seen: what is known of an older one is read again first."""
        found = self._known.get(tenant_id)
        if found is not None and self._clock.monotonic() - found[0] < MAX_AGE_SECONDS:
            tenant = found[1]
            if tenant is not None and tenant.ownership_epoch >= at_least:
                return tenant
            if tenant is None and not at_least:
                return None
        reading = self._reading.get(tenant_id)
        if reading is None:
            reading = asyncio.create_task(self._read(tenant_id))
            self._reading[tenant_id] = reading
        # A caller that goes away must not cancel the read the others wait for.
        return await asyncio.shield(reading)

    async def _read(self, tenant_id: uuid.UUID) -> TenantPlacement | None:
        asked = self._clock.monotonic()
        try:
            tenant = await self._store.get_tenant(tenant_id)
        finally:
            del self._reading[tenant_id]
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[tenant_id] = (asked, tenant)
        return tenant

    def forget(self, tenant_id: uuid.UUID) -> None:
        """Read it again at the next request."""
        self._known.pop(tenant_id, None)

    def forget_all(self) -> None:
        """A move changed where somebody lives."""
        self._known.clear()

    def known(self, tenant_text: str) -> dict[str, Any]:
        """What a 421 tells: where the tenant stands as far as this cell knows."""
        told: dict[str, Any] = {"cell": self._cell, "tenant_id": tenant_text, "tenant_state": None}
        tenant_id = ids.decode(ids.TENANT, tenant_text)
        _, tenant = self._known.get(tenant_id, (0.0, None)) if tenant_id is not None else (0.0, None)
        if tenant is not None:
            told |= {"tenant_state": tenant.state, "ownership_epoch": tenant.ownership_epoch}
        return told
