"""What of a tenant is kept in one region alone, and does not move."""

from __future__ import annotations

from typing import Any

from controlplane.tenants.models import Tenant
from controlplane.topology.cell_client import CellUnreachable, call_cell
from controlplane.topology.models import Cell


def kept_apart(tenant: Tenant, cell: Cell) -> str:
    """Why a tenant cannot leave a cell: which regions alone hold rows of it, and how many; empty where none
    does. Empty, too, where the cell does not say: it refuses by itself when the move begins."""
    try:
        told = call_cell(cell, "GET", f"/internal/tenants/{tenant.public_id}/stores")
    except CellUnreachable:
        return ""
    stores = told.get("items") if isinstance(told, dict) else None
    if not stores:
        return ""
    return (
        f"{'; '.join(map(_said, stores))}: what is kept in one region alone (SINGLE_REGION) has no place on"
        " another cell, so the tenant stays"
    )


def _said(store: dict[str, Any]) -> str:
    region = store.get("region") or f"the store {store.get('store')}"
    if not store.get("reachable"):
        return f"{region} does not answer, and may hold jobs and workflows of the tenant"
    return f"{region} has {store.get('jobs'):,} jobs and {store.get('workflows'):,} workflows"
