"""What of a tenant is tied to regions: kept in one alone, so that it does not move, or in need of several."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Count

from controlplane.tenants.models import Tenant
from controlplane.topology.cell_client import CellUnreachable, call_cell
from controlplane.topology.models import Cell


def tied(tenant: Tenant, cell: Cell) -> dict[str, Any]:
    """What a tenant's cell says of its rows in other stores and of those that need several regions; empty
    where it does not answer: it refuses by itself, then, when the move begins."""
    try:
        told = call_cell(cell, "GET", f"/internal/tenants/{tenant.public_id}/stores")
    except CellUnreachable:
        return {}
    return told if isinstance(told, dict) else {}


def needs_regions(tenant: Tenant, told: dict[str, Any]) -> str:
    """Why a tenant cannot live on a cell of one region: what of it is STRICT; empty where nothing is."""
    strict = told.get("strict") or {}
    has = [f"{strict.get(what):,} {what}" for what in ("jobs", "workflows") if strict.get(what)]
    if tenant.default_region_policy == "STRICT":
        has.append("its default region policy")
    if not has:
        return ""
    return f"it is in one region alone, where nobody could confirm what is STRICT ({', '.join(has)})"


def of_one_region(cells: Iterable[str]) -> set[str]:
    """Those of some cells that are in one region alone."""
    known = Cell.objects.filter(pk__in=list(cells)).annotate(n=Count("sites"))
    return set(known.filter(n__lt=2).values_list("name", flat=True))


def kept_apart(told: dict[str, Any]) -> str:
    """Why a tenant cannot leave its cell: which regions alone hold rows of it, and how many; empty where none
    does."""
    stores = told.get("items")
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
