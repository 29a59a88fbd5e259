"""The ownership map: who owns each cell and tenant by the ownership store, and who disagrees."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.identity import TENANT, encode
from controlplane.ownership import CellOwnership, OwnershipStore, TenantOwnership
from controlplane.ownership.installed import installed_store
from controlplane.ownership.store import OwnershipUnavailable
from controlplane.topology.cell_client import CellUnreachable
from controlplane.topology.models import Cell, CellState, Placement
from controlplane.topology.push import Told, told_to

#: Rows of the store that are read at a time, and differences that are told one by one.
_PAGE = 1_000
_SHOWN = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A tenant about whom the store, our records and its cell do not say the same."""

    tenant_id: str
    store: str | None  # cell and epoch; None: no row
    recorded: str | None
    told: str | None  # by the cell; None: it does not know the tenant
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Owned:
    """A cell in the ownership map."""

    cell: str
    region: str  # where we recorded it
    owner_region: str | None  # by the store
    epoch: int | None
    renewals: int | None  # grows while a lease is held; 0: owned for good, without one
    promotions: int | None
    recorded_epoch: int
    tenants: int  # rows of the store that name it
    drift: Sequence[str]  # about the cell itself
    differences: Sequence[Difference]
    more: int  # differences that are not told one by one
    away: str  # why the store or the cell could not be asked; empty: both were

    @property
    def agreed(self) -> bool:
        """Whether all that could be asked say the same."""
        return not (self.drift or self.differences or self.away)


def ownership_map(*, cell: str | None = None, store: OwnershipStore | None = None) -> list[Owned]:
    """Every cell that is not retired, or the given one. Asks the store and each cell."""
    store = store or installed_store()
    cells = Cell.objects.exclude(state=CellState.RETIRED).order_by("region", "name")
    if cell is not None:
        cells = cells.filter(pk=cell)
    return [_owned(each, store) for each in cells]


def _owned(cell: Cell, store: OwnershipStore) -> Owned:
    away: list[str] = []
    row: CellOwnership | None = None
    tenants: dict[uuid.UUID, TenantOwnership] | None = None
    try:
        row = store.cell(cell.name)
        tenants = {t.tenant_id: t for t in _all_tenants(store, cell.name)}
    except OwnershipUnavailable as e:
        away.append(f"the ownership store cannot be reached: {e}")
    told: dict[uuid.UUID, Told] | None = None
    try:
        told = told_to(cell)
    except CellUnreachable as e:
        away.append(f"the cell does not answer: {e}")
    recorded = {
        p.tenant_id: p for p in Placement.objects.filter(cell=cell).only("tenant_id", "epoch", "state")
    }
    differences = [] if tenants is None else _compare(cell, tenants, recorded, told, store)
    return Owned(
        cell=cell.name,
        region=cell.region_id,
        owner_region=row.region if row else None,
        epoch=row.epoch if row else None,
        renewals=row.renewals if row else None,
        promotions=row.promotions if row else None,
        recorded_epoch=cell.ownership_epoch,
        tenants=len(tenants or {}),
        drift=_drift(cell, row) if tenants is not None else [],
        differences=differences[:_SHOWN],
        more=max(0, len(differences) - _SHOWN),
        away="; ".join(away),
    )


def _all_tenants(store: OwnershipStore, cell: str) -> list[TenantOwnership]:
    found: list[TenantOwnership] = []
    after: uuid.UUID | None = None
    while True:
        page = list(store.tenants_of(cell, after=after, limit=_PAGE))
        found += page
        if len(page) < _PAGE:
            return found
        after = page[-1].tenant_id


def _drift(cell: Cell, row: CellOwnership | None) -> list[str]:
    if row is None:
        return ["the store has no row for it"]
    found = []
    primary = next((s.region_id for s in cell.sites.all() if s.primary), None)
    if row.region != primary:
        found.append(f"the store says {row.region} owns it, its primary site is in {primary}")
    if row.epoch != cell.ownership_epoch:
        found.append(f"the store says epoch {row.epoch}, {cell.ownership_epoch} is recorded")
    return found


def _compare(
    cell: Cell,
    tenants: dict[uuid.UUID, TenantOwnership],
    recorded: dict[uuid.UUID, Placement],
    told: dict[uuid.UUID, Told] | None,
    store: OwnershipStore,
) -> list[Difference]:
    found = []
    active = {t for t, has in (told or {}).items() if has.state == "ACTIVE"}
    for tenant_id in sorted(tenants.keys() | recorded.keys() | active):
        owner, place = tenants.get(tenant_id), recorded.get(tenant_id)
        has = None if told is None else told.get(tenant_id)
        why = _why(cell, owner, place, has, asked=told is not None)
        if why is None:
            continue
        if owner is None:
            with contextlib.suppress(OwnershipUnavailable):  # it is then shown as not known
                owner = store.tenant(tenant_id)
        found.append(
            Difference(
                tenant_id=encode(TENANT, tenant_id),
                store=f"{owner.cell}, epoch {owner.epoch}" if owner else None,
                recorded=f"{cell.name}, epoch {place.epoch}" if place else None,
                told=f"{has.state}, epoch {has.ownership_epoch}" if has else None,
                why=why,
            )
        )
    return found


def _why(
    cell: Cell,
    owner: TenantOwnership | None,
    place: Placement | None,
    has: Told | None,
    *,
    asked: bool,
) -> str | None:
    if owner is not None and place is None:
        return "the store says it lives here, we have recorded another place, or none"
    if owner is None and place is not None:
        return "we have recorded that it lives here, the store says otherwise"
    if owner is None or place is None:
        return "it is active here, and lives elsewhere by the store and our records"
    if owner.epoch != place.epoch:
        return "the store and our records name different epochs"
    if not asked:
        return None
    if has is None:
        return "the cell does not know it yet"
    if has.ownership_epoch != max(place.epoch, cell.ownership_epoch):
        return "the cell follows another epoch"
    return None
