"""The whole of the topology as it is: regions, cells, sites, headroom, use; suggestions from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from controlplane.identity import TENANT, decode, encode
from controlplane.moves.models import TenantMove
from controlplane.moves.planning import ended
from controlplane.topology.actions.placement import candidates, candidates_and_coming
from controlplane.topology.headroom import Candidate, Spare, spare
from controlplane.topology.hot import Suggestion, Used, suggestions
from controlplane.topology.models import Cell, CellState, Placement, Region, Relocation, RelocationState, Site

#: A figure older than this says nothing about now; beat asks every ten seconds.
FRESH = timedelta(seconds=60)


@dataclass(frozen=True, kw_only=True, slots=True)
class CellView:
    """A cell with its figures. Rates are runs a second; None: not known now."""

    cell: Cell
    seen: Candidate
    used: float | None
    lag_ms: int | None
    sites: Sequence[Site]
    relocation: Relocation | None

    @property
    def heat(self) -> float | None:
        """Measured use of capacity, percent."""
        return None if self.used is None else round(100 * self.used / self.seen.capacity, 1)

    @property
    def promised_share(self) -> float:
        """Promised of what may be promised, percent; at most 100."""
        return round(min(100.0, 100 * self.seen.promised / self.seen.limit), 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionView:
    """A region with its cells, and whether it can lose one."""

    region: Region
    cells: Sequence[CellView]
    spare: Spare | None  # None: it has fewer than two shared cells in use

    @property
    def sentence(self) -> str:
        """Its N+1 in plain words."""
        if self.spare is None:
            return "fewer than two shared cells are in use: none of them could be lost"
        return self.spare.sentence


def fresh_status(cell: Cell, now: datetime) -> Mapping[str, Any]:
    """What a cell said last, unless that is old or it did not answer since."""
    if cell.status_at is None or now - cell.status_at > FRESH or cell.status_error:
        return {}
    return cell.status or {}


def map_of(*, now: datetime | None = None) -> list[RegionView]:
    """All regions, in a fixed number of queries for each."""
    now = now or timezone.now()
    open_ones = Relocation.objects.filter(state__in=[RelocationState.RUNNING, RelocationState.PAUSED])
    relocations = {r.cell_id: r for r in open_ones}
    views = []
    for region in Region.objects.order_by("name"):
        found = candidates(region.name)
        seen = {c.name: c for c in found}
        rows = Cell.objects.filter(region=region).exclude(state=CellState.RETIRED).order_by("name")
        cells = [
            CellView(
                cell=cell,
                seen=seen[cell.name],
                used=_used(fresh_status(cell, now)),
                lag_ms=fresh_status(cell, now).get("lag_ms"),
                sites=sorted(cell.sites.all(), key=lambda s: (not s.primary, s.region_id)),
                relocation=relocations.get(cell.name),
            )
            for cell in rows.prefetch_related("sites")
            if cell.name in seen
        ]
        views.append(RegionView(region=region, cells=cells, spare=spare(found)))
    return views


def _used(status: Mapping[str, Any]) -> float | None:
    load = status.get("load")
    return float(load["runs_per_second"]) if isinstance(load, dict) else None


def hot_tenants(*, now: datetime | None = None) -> list[Suggestion]:
    """Moves that would help, over all regions. Tenants that are on their way are left out."""
    now = now or timezone.now()
    moving = {
        encode(TENANT, tenant)
        for tenant in TenantMove.objects.exclude(state__in=ended()).values_list("tenant_id", flat=True)
    }
    found: list[Suggestion] = []
    for region in Region.objects.order_by("name"):
        cells = list(Cell.objects.filter(region=region).exclude(state=CellState.RETIRED))
        statuses = {cell.name: fresh_status(cell, now) for cell in cells}
        used = {name: rate for name, status in statuses.items() if (rate := _used(status)) is not None}
        measured = {
            (name, str(item["tenant_id"])): item
            for name, status in statuses.items()
            for item in (status.get("load") or {}).get("tenants", ())
        }
        found += suggestions(
            candidates_and_coming(region.name),
            used,
            [t for t in _tenants(measured) if t.tenant_id not in moving],
        )
    return found


def _tenants(measured: Mapping[tuple[str, str], Mapping[str, Any]]) -> list[Used]:
    """The measured tenants that live where they were measured."""
    ids = [found for _, name in measured if (found := decode(TENANT, name)) is not None]
    rows = Placement.objects.filter(tenant__in=ids).values_list(
        "tenant_id", "cell_id", "tenant__slug", "tenant__quota__job_runs_per_second"
    )
    return [
        Used(
            tenant_id=name,
            name=slug,
            cell=cell,
            quota=quota,
            used=float(item["runs_per_second"]),
            busiest=float(item["busiest_runs_per_second"]),
        )
        for tenant, cell, slug, quota in rows
        if (item := measured.get((cell, name := encode(TENANT, tenant)))) is not None
    ]
