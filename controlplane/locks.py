"""Row locks, always in this order: region, cell, tenant. Rows below a tenant (members, keys,
quota, placement) are changed under their tenant's lock and need none of their own.

Locks are NO KEY UPDATE: they do not stop others from inserting rows that refer to them.
"""

from __future__ import annotations

import uuid

from controlplane.errors import NotFound, VersionMismatch
from controlplane.tenants.models import Tenant
from controlplane.topology.models import Cell, Region


def lock_region(name: str) -> Region:
    """Placements in a region happen one after the other."""
    region = Region.objects.select_for_update(no_key=True).filter(pk=name).first()
    if region is None:
        raise NotFound(f"no region {name}")
    return region


def lock_home_region(tenant_id: uuid.UUID) -> Region:
    """The region a tenant lives in: quotas and placements there are weighed one after the other."""
    home = Tenant.objects.filter(pk=tenant_id).values_list("home_region_id", flat=True).first()
    if home is None:
        raise NotFound("no such tenant")
    return lock_region(home)


def lock_cell(name: str) -> Cell:
    cell = Cell.objects.select_for_update(no_key=True).filter(pk=name).first()
    if cell is None:
        raise NotFound(f"no cell {name}")
    return cell


def lock_tenant(tenant_id: uuid.UUID, *, expected_version: int | None = None) -> Tenant:
    """The tenant as it is now. With `expected_version`, only if it still has that version."""
    tenant = Tenant.objects.select_for_update(no_key=True).filter(pk=tenant_id).first()
    if tenant is None:
        raise NotFound("no such tenant")
    if expected_version is not None and tenant.version != expected_version:
        raise VersionMismatch(tenant.version)
    return tenant
