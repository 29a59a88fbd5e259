"""Cells: made known, closed to newcomers, opened again, retired."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import URLValidator
from django.db import transaction

from controlplane.actors import Actor
from controlplane.addresses import split
from controlplane.errors import Conflicting, Fault, Invalid, Unavailable
from controlplane.events.models import Change
from controlplane.events.recording import publish, record
from controlplane.locks import lock_cell, lock_region
from controlplane.ownership import OwnershipStore, Superseded
from controlplane.ownership.installed import installed_store
from controlplane.ownership.store import OwnershipUnavailable
from controlplane.topology.cell_keys import open_cell_key, seal_cell_key
from controlplane.topology.models import NAME, Cell, CellKind, CellState, Site

#: Which states an operator may move a cell to, from where.
STATE_CHANGES: dict[CellState, frozenset[CellState]] = {
    CellState.OPEN: frozenset({CellState.CORDONED, CellState.DRAINING}),
    CellState.CORDONED: frozenset({CellState.OPEN, CellState.DRAINING, CellState.RETIRED}),
    CellState.DRAINING: frozenset({CellState.OPEN, CellState.CORDONED, CellState.RETIRED}),
    CellState.RETIRED: frozenset(),
}

_URL = URLValidator(schemes=["http", "https"])


def _check(name: str, url: str, key: bytes, kind: str, capacity: int) -> None:
    faults = []
    try:
        NAME(name)
    except ValidationError as e:
        faults.append(Fault(pointer="/name", detail=e.messages[0]))
    try:
        for address in split(url) or ("",):
            # Django's validator wants a dotted name; hosts inside a network have none.
            dotted = "." in address or "://" not in address
            _URL(address if dotted else address.replace("://", "://host.", 1))
    except ValidationError:
        faults.append(Fault(pointer="/url", detail="not an http or https URL"))
    if len(key) < 32:
        faults.append(Fault(pointer="/key_hex", detail="at least 32 bytes"))
    if kind not in CellKind.values:
        faults.append(Fault(pointer="/kind", detail=f"one of {', '.join(CellKind.values)}"))
    if capacity < 1:
        faults.append(Fault(pointer="/capacity_runs_per_second", detail="at least 1"))
    if faults:
        raise Invalid(faults)


def _own(store: OwnershipStore, name: str, region: str) -> int:
    """The cell's epoch: its first claim, or the row that stands."""
    try:
        owner = store.cell(name)
        if owner is None:
            owner = store.claim_cell(name, region=region, expected=None)
    except Superseded:
        owner = store.cell(name)
    except OwnershipUnavailable as e:
        raise Unavailable("the ownership store cannot be reached") from e
    if owner is None:
        raise Unavailable("the ownership store lost the cell's row")
    return owner.epoch


@transaction.atomic
def register_cell(
    *,
    name: str,
    region: str,
    url: str,
    key: bytes,
    kind: str = CellKind.SHARED,
    capacity_runs_per_second: int = 5_000,
    store: OwnershipStore | None = None,
    actor: Actor,
    reason: str,
) -> Cell:
    """Makes a cell and its site in the region known.

    Again with the same name: address, key and capacity are updated, its state stays.
    """
    url = ",".join(split(url))
    _check(name, url, key, kind, capacity_runs_per_second)
    lock_region(region)
    cell = Cell.objects.select_for_update(no_key=True).filter(pk=name).first()
    before: dict[str, Any] | None = None
    if cell is None:
        cell = Cell(name=name, region_id=region, kind=kind)
        cell.ownership_epoch = _own(store or installed_store(), name, region)
        same_key = False
    else:
        if cell.region_id != region or cell.kind != kind:
            raise Conflicting(f"{name} is a {cell.kind} cell in {cell.region_id}")
        site = Site.objects.filter(cell=cell, primary=True).first()
        before = {
            "url": site.url if site else None,
            "capacity_runs_per_second": cell.capacity_runs_per_second,
        }
        same_key = open_cell_key(name, bytes(cell.sealed_key)) == key
    after = {"url": url, "capacity_runs_per_second": capacity_runs_per_second}
    if before == after and same_key:
        return cell
    cell.capacity_runs_per_second = capacity_runs_per_second
    if not same_key:
        cell.sealed_key = seal_cell_key(name, key)
    cell.save()
    Site.objects.update_or_create(cell=cell, region_id=region, defaults={"url": url, "primary": True})
    publish(Change.Kind.CELL, name)
    record(
        action="cell.register", subject=name, tenant_id=None, actor=actor, reason=reason,
        before=before, after={**after, "region": region, "kind": kind, "key_changed": not same_key},
    )  # fmt: skip
    return cell


@transaction.atomic
def set_cell_state(*, name: str, state: CellState, actor: Actor, reason: str) -> Cell:
    """Opens, cordons, drains or retires a cell. Retiring needs it empty."""
    cell = lock_cell(name)
    before = CellState(cell.state)
    if before == state:
        return cell
    if state not in STATE_CHANGES[before]:
        raise Conflicting(f"a {before} cell cannot become {state}")
    if state == CellState.RETIRED and cell.placements.exists():
        raise Conflicting(f"{cell.placements.count()} tenants still live on {name}")
    if state == CellState.RETIRED and (moves := _moving(cell)):
        raise Conflicting(f"{moves} moves from or to {name} are not over")
    cell.state = state
    cell.save(update_fields=["state"])
    publish(Change.Kind.CELL, name)
    record(
        action="cell.set_state", subject=name, tenant_id=None, actor=actor, reason=reason,
        before={"state": before}, after={"state": state},
    )  # fmt: skip
    return cell


def _moving(cell: Cell) -> int:
    """Moves that still need the cell."""
    over = ("DONE", "ABORTED")
    away, here = cell.moves_away.exclude(state__in=over), cell.moves_here.exclude(state__in=over)
    return int(away.count() + here.count())


def cordon_cell(*, name: str, actor: Actor, reason: str) -> Cell:
    """No new tenants; those there stay."""
    return set_cell_state(name=name, state=CellState.CORDONED, actor=actor, reason=reason)


def open_cell(*, name: str, actor: Actor, reason: str) -> Cell:
    """Takes new tenants (again)."""
    return set_cell_state(name=name, state=CellState.OPEN, actor=actor, reason=reason)
