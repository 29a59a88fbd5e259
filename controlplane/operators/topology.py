"""The map of regions, cells and sites; who should move; where tenants live and why; who owns what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from controlplane.operators.cells import health_of
from controlplane.operators.pages import operator_page, page
from controlplane.topology.models import Cell, CellState, Placement, Relocation
from controlplane.topology.overview import CellView, RegionView, hot_tenants, map_of
from controlplane.topology.owners import ownership_map
from controlplane.topology.relocating import Progress, progress_of

_PAGE = 50
_NEWEST = 20


@dataclass(frozen=True, kw_only=True)
class MappedCell:
    """A cell as the map shows it."""

    view: CellView
    health: str  # good, wait, bad
    why: str
    progress: Progress | None  # of its relocation

    @property
    def moved_share(self) -> float | None:
        """Of the tenants to move, percent."""
        return None if self.progress is None else share_of(self.progress)


@dataclass(frozen=True, kw_only=True)
class MappedRegion:
    """A region as the map shows it."""

    view: RegionView
    cells: list[MappedCell]

    @property
    def health(self) -> str:
        """Whether it can lose a cell."""
        if self.view.spare is None:
            return "wait"
        return "good" if self.view.spare.holds else "bad"


def share_of(progress: Progress) -> float:
    """How many have moved, percent."""
    return round(100 * progress.moved / progress.total, 1) if progress.total else 100.0


@operator_page()
def topology_map(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/topology/"""
    now = timezone.now()
    regions = [
        MappedRegion(view=region, cells=[_mapped(view, now) for view in region.cells])
        for region in map_of(now=now)
    ]
    return page(
        request,
        "topology.html",
        "Topology",
        regions=regions,
        suggestions=hot_tenants(now=now),
        relocations=[(one, progress_of(one)) for one in Relocation.objects.order_by("-created_at")[:_NEWEST]],
    )


def _mapped(view: CellView, now: Any) -> MappedCell:
    health, why = health_of(view.cell, view.cell.status or {}, now)
    progress = progress_of(view.relocation) if view.relocation is not None else None
    return MappedCell(view=view, health=health, why=why, progress=progress)


@operator_page()
def placement_list(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/placements/?q=&cell=&after="""
    asked = {name: request.GET.get(name, "").strip()[:63] for name in ("q", "cell")}
    found = Placement.objects.select_related("tenant__quota", "cell").order_by("tenant__slug")
    if asked["q"]:
        found = found.filter(tenant__slug__icontains=asked["q"])
    if asked["cell"]:
        found = found.filter(cell=asked["cell"])
    if after := request.GET.get("after", "")[:48]:
        found = found.filter(tenant__slug__gt=after)
    rows = list(found[: _PAGE + 1])
    more, rows = len(rows) > _PAGE, rows[:_PAGE]
    return page(
        request,
        "placements.html",
        "Placements",
        placements=rows,
        asked=asked,
        cells=Cell.objects.exclude(state=CellState.RETIRED).order_by("region", "name"),
        after=rows[-1].tenant.slug if more else None,
    )


@operator_page()
def ownership(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/ownership/ asks the ownership store and every cell."""
    return page(request, "ownership.html", "Ownership", owned=ownership_map())
