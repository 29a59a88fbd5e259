"""Tenants as the control plane has announced them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from cells.ports import TenantConfig, TenantPlacement
from cells.store.base import StoreBase
from cells.store.database import Row, fetch_all, fetch_one


class Tenants(StoreBase):
    """Placements and configurations."""

    async def put_tenant(self, tenant: TenantPlacement) -> bool:
        """Store what the control plane says. False where it is older than, or the same as, what
        is known."""
        async with self._database.transaction() as connection:
            row = await fetch_one(
                connection,
                "tenant_put",
                {
                    "tenant": tenant.tenant_id,
                    "state": tenant.state,
                    "epoch": tenant.ownership_epoch,
                    "config_version": tenant.config_version,
                    "config": msgspec.json.encode(tenant.config).decode(),
                },
            )
            return row is not None

    async def get_tenant(self, tenant_id: uuid.UUID) -> TenantPlacement | None:
        """One tenant, or None if this cell has never heard of it."""
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "tenant_get", {"tenant": tenant_id})
            return None if row is None else _placement(row)

    async def list_tenants(self) -> Sequence[TenantPlacement]:
        """Every tenant this cell has heard of."""
        async with self._database.transaction() as connection:
            return [_placement(row) for row in await fetch_all(connection, "tenant_list")]

    async def is_erased(self, tenant_id: uuid.UUID) -> bool:
        """Whether the tenant was erased here, or is being erased."""
        async with self._database.transaction() as connection:
            return await fetch_one(connection, "erased_tenant", {"tenant": tenant_id}) is not None


def _placement(row: Row) -> TenantPlacement:
    return TenantPlacement(
        tenant_id=row[0],
        state=row[1],
        ownership_epoch=row[2],
        config_version=row[3],
        config=msgspec.json.decode(row[4], type=TenantConfig),
        said=None if row[5] is None else msgspec.json.decode(row[5], type=TenantConfig),
    )
