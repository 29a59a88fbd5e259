"""What is known of cells and their sites now: our records, the ownership store, the keepers."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django.db.models import Q, QuerySet

from controlplane.errors import Unavailable
from controlplane.evacuations.keepers import SiteStatus, statuses_of
from controlplane.evacuations.machine import ENDED, Whole
from controlplane.evacuations.models import EvacuatedCell, Evacuation, EvacuationKind
from controlplane.evacuations.planning import CellFacts
from controlplane.moves.machine import ABORTABLE, State
from controlplane.moves.models import TenantMove
from controlplane.moves.planning import ended
from controlplane.ownership import OwnershipStore
from controlplane.ownership.store import OwnershipUnavailable
from controlplane.topology.actions.placement import candidates
from controlplane.topology.headroom import Candidate
from controlplane.topology.models import Cell, CellState, Region, Site

#: Moves behind their handoff need the source's owner no more than any other tenant does.
_OVER = (State.VERIFY.value, State.CLEANUP.value)


def facts_of(store: OwnershipStore, *, ask: Collection[str] | None = None) -> list[CellFacts]:
    """Every cell that is not retired. `ask`: whose keepers are asked (None: all); the others' sites are
    told of as silent."""
    seen: dict[str, Candidate] = {}
    for region in Region.objects.order_by("name"):
        seen |= {c.name: c for c in candidates(region.name)}
    cells = list(Cell.objects.exclude(state=CellState.RETIRED).prefetch_related("sites").order_by("name"))
    sites: list[Site] = [
        site for cell in cells for site in cell.sites.all() if ask is None or cell.name in ask
    ]
    told = dict(zip([(s.cell_id, s.region_id) for s in sites], statuses_of(sites), strict=True))
    busy = dict(
        EvacuatedCell.objects.exclude(state__in=[s.value for s in ENDED]).values_list(
            "cell_id", "evacuation__region"
        )
    )
    found = []
    for cell in cells:
        try:
            row = store.cell(cell.name)
        except OwnershipUnavailable as fault:
            raise Unavailable("the ownership store cannot be reached") from fault
        if row is None or cell.name not in seen:
            continue
        stop, wait = moves_of(cell.name)
        found.append(
            CellFacts(
                seen=seen[cell.name],
                owner=row.region,
                epoch=row.epoch,
                sites={
                    site.region_id: told.get(
                        (cell.name, site.region_id),
                        SiteStatus(region=site.region_id, away="it was not asked"),
                    )
                    for site in cell.sites.all()
                },
                moves_to_stop=stop,
                moves_to_wait_for=wait,
                busy=f"it takes part in the evacuation of {busy[cell.name]}" if cell.name in busy else "",
            )
        )
    return found


def moves_of(cell: str) -> tuple[int, int]:
    """Open moves from or to a cell: that can still be given up, and that are being handed over."""
    states = open_moves(cell).values_list("state", flat=True)
    abortable = sum(state in ABORTABLE for state in states)
    return abortable, len(states) - abortable


def open_moves(cell: str) -> QuerySet[TenantMove]:
    """Moves whose tenant has not been handed over."""
    return TenantMove.objects.filter(Q(source=cell) | Q(destination=cell)).exclude(
        state__in=[*ended(), *_OVER]
    )


def passive_regions() -> set[str]:
    """Regions that were evacuated, or are being, and have had nothing brought back since."""
    latest: dict[str, tuple[str, str]] = {}
    rows: Sequence[tuple[str, str, str]] = (
        Evacuation.objects.exclude(state=Whole.ABORTED.value)
        .order_by("created_at", "id")
        .values_list("region_id", "kind", "state")
    )
    for region, kind, state in rows:
        latest[region] = (kind, state)
    return {region for region, (kind, _) in latest.items() if kind == EvacuationKind.EVACUATE}
