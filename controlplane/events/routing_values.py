"""The values of the routing feed, as routers read them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from controlplane.identity import TENANT, encode
from controlplane.moves.machine import HELD
from controlplane.moves.models import TenantMove
from controlplane.tenants.models import ApiKey, Tenant, tenant_uuid
from controlplane.topology.cell_keys import open_cell_key
from controlplane.topology.models import Cell, CellState, Site


def _ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)


def keys(ids: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """Keys that can be used now, all or those of the given ids."""
    live = ApiKey.objects.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), revoked_at=None)
    if ids is not None:
        live = live.filter(pk__in=ids)
    return {
        key_id: {
            "sha256": sha256,
            "tenant_id": None if tenant is None else encode(TENANT, tenant),
            "scopes": scopes,
            "expires_at_ms": _ms(expires_at),
        }
        for key_id, sha256, tenant, scopes, expires_at in live.values_list(
            "id", "sha256", "tenant_id", "scopes", "expires_at"
        ).iterator(chunk_size=5_000)
    }


def tenants(ids: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """Placed tenants by TypeID."""
    placed = Tenant.objects.filter(placement__isnull=False).annotate(
        held=Exists(TenantMove.objects.filter(tenant=OuterRef("pk"), state__in=sorted(HELD)))
    )
    if ids is not None:
        placed = placed.filter(pk__in=[u for u in map(tenant_uuid, ids) if u is not None])
    rows = placed.values_list(
        "id",
        "state",
        "placement__cell_id",
        "placement__epoch",
        "placement__cell__ownership_epoch",
        "quota__api_requests_per_second",
        "held",
    )
    return {
        encode(TENANT, tenant): {
            "cell": cell,
            "epoch": max(epoch, cell_epoch),
            # Routers hold requests for a moment, rather than ask a cell that is just giving it away.
            "state": "HANDOFF" if held else state,
            "api_requests_per_second": rate,
        }
        for tenant, state, cell, epoch, cell_epoch, rate, held in rows.iterator(chunk_size=5_000)
    }


def cells(names: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """Cells that may have tenants, with the key that signs what is forwarded to them."""
    found = Cell.objects.exclude(state=CellState.RETIRED)
    if names is not None:
        found = found.filter(pk__in=names)
    urls = dict(Site.objects.filter(primary=True).values_list("cell_id", "url"))
    return {
        cell.name: {
            "url": urls[cell.name],
            "secret_hex": open_cell_key(cell.name, bytes(cell.sealed_key)).hex(),
            "state": cell.state,
        }
        for cell in found
        if cell.name in urls
    }
