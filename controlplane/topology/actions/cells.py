"""Cells: made known, closed to newcomers, opened again, retired."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import URLValidator
from django.db import transaction
from django.db.models.functions import Now

from controlplane.actors import Actor
from controlplane.addresses import split
from controlplane.errors import Conflicting, Fault, Invalid, Unavailable
from controlplane.events.models import Change
from controlplane.events.recording import publish, record
from controlplane.locks import lock_cell, lock_region
from controlplane.ownership import OwnershipStore, Superseded
from controlplane.ownership.installed import installed_store
from controlplane.ownership.store import OwnershipUnavailable
from controlplane.topology.cell_client import CellUnreachable, call_cell
from controlplane.topology.cell_keys import open_cell_key, open_engine_url, seal_cell_key, seal_engine_url
from controlplane.topology.engines import plain
from controlplane.topology.models import (
    NAME,
    Cell,
    CellKind,
    CellState,
    Relocation,
    RelocationKind,
    RelocationState,
    Site,
)

#: Which states an operator may move a cell to, from where.
STATE_CHANGES: dict[CellState, frozenset[CellState]] = {
    CellState.OPEN: frozenset({CellState.CORDONED, CellState.DRAINING}),
    CellState.CORDONED: frozenset({CellState.OPEN, CellState.DRAINING, CellState.RETIRED}),
    CellState.DRAINING: frozenset({CellState.OPEN, CellState.CORDONED, CellState.RETIRED}),
    CellState.RETIRED: frozenset(),
}

_URL = URLValidator(schemes=["http", "https"])


def cell_faults(name: str, url: str, key: bytes, kind: str, capacity: int | None) -> list[Fault]:
    """All that is wrong with what a cell is to be."""
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
    if capacity is not None and capacity < 1:
        faults.append(Fault(pointer="/capacity_runs_per_second", detail="at least 1"))
    return faults


def _engines(name: str, region: str, database_url: str | None, valkey_url: str | None) -> dict[str, Any]:
    """A site's engines as they are kept: what was told of them."""
    kept: dict[str, Any] = {}
    for engine, url in (("database", database_url), ("valkey", valkey_url)):
        if url is not None:
            kept[engine] = plain(url)[:300]
            kept[f"sealed_{engine}_url"] = seal_engine_url(name, region, engine, url)
    return kept


def _known_engines(site: Site | None, database_url: str | None, valkey_url: str | None) -> dict[str, str]:
    """What is known of the engines that are told now. An address whose password alone changed is another."""
    if site is None:
        return {}
    known: dict[str, str] = {}
    for engine, url in (("database", database_url), ("valkey", valkey_url)):
        sealed = getattr(site, f"sealed_{engine}_url")
        if url is not None and sealed is not None:
            same = open_engine_url(site.cell_id, site.region_id, engine, bytes(sealed)) == url
            known[engine] = (
                getattr(site, engine) if same else f"{getattr(site, engine)} with another password"
            )
    return known


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
    capacity_runs_per_second: int | None = None,
    state: CellState = CellState.OPEN,
    database_url: str | None = None,
    valkey_url: str | None = None,
    store: OwnershipStore | None = None,
    actor: Actor,
    reason: str,
) -> Cell:
    """Makes a cell and its site in the region known, with its engines where they are told.

    Again with the same name: addresses and key are updated, and the capacity if one is told; its `state`
    stays. A new cell without a told capacity is taken to carry what `Cell` says.
    """
    url = ",".join(split(url))
    if faults := cell_faults(name, url, key, kind, capacity_runs_per_second):
        raise Invalid(faults)
    lock_region(region)
    cell = Cell.objects.select_for_update(no_key=True).filter(pk=name).first()
    before: dict[str, Any] | None = None
    if cell is None:
        cell = Cell(name=name, region_id=region, kind=kind, state=state)
        cell.ownership_epoch = _own(store or installed_store(), name, region)
        same_key = False
    else:
        if cell.region_id != region or cell.kind != kind:
            raise Conflicting(f"{name} is a {cell.kind} cell in {cell.region_id}")
        site = Site.objects.filter(cell=cell, primary=True).first()
        before = {
            "url": site.url if site else None,
            "capacity_runs_per_second": cell.capacity_runs_per_second,
            **_known_engines(site, database_url, valkey_url),
        }
        same_key = open_cell_key(name, bytes(cell.sealed_key)) == key
    capacity = cell.capacity_runs_per_second if capacity_runs_per_second is None else capacity_runs_per_second
    engines = _engines(name, region, database_url, valkey_url)
    after = {
        "url": url,
        "capacity_runs_per_second": capacity,
        **{engine: engines[engine] for engine in ("database", "valkey") if engine in engines},
    }
    if before == after and same_key:
        return cell
    cell.capacity_runs_per_second = capacity
    if not same_key:
        cell.sealed_key = seal_cell_key(name, key)
    cell.save()
    elsewhere = Site.objects.filter(cell=cell, primary=True).exclude(region_id=region).exists()
    Site.objects.update_or_create(
        cell=cell, region_id=region, defaults={"url": url, "primary": not elsewhere, **engines}
    )
    publish(Change.Kind.CELL, name)
    record(
        action="cell.register", subject=name, tenant_id=None, actor=actor, reason=reason,
        before=before, after={**after, "region": region, "kind": kind, "key_changed": not same_key},
    )  # fmt: skip
    return cell


def set_cell_state(*, name: str, state: CellState, actor: Actor, reason: str) -> Cell:
    """Opens, cordons or retires a cell, or says that it is being drained (`actions/relocations.py` moves its
    tenants). Retiring needs it empty, and its meters all sealed and answered for."""
    # Outside the transaction: the cell is asked.
    unsettled = _unsettled(name) if state == CellState.RETIRED else None
    return _set_cell_state(name=name, state=state, unsettled=unsettled, actor=actor, reason=reason)


@transaction.atomic
def _set_cell_state(*, name: str, state: CellState, unsettled: str | None, actor: Actor, reason: str) -> Cell:
    # Placements and moves weigh cells under their region's lock: none of them sees the state before.
    region = Cell.objects.filter(pk=name).values_list("region_id", flat=True).first()
    if region is not None:
        lock_region(region)
    cell = lock_cell(name)
    before = CellState(cell.state)
    if before == state:
        return cell
    if state not in STATE_CHANGES[before]:
        raise Conflicting(f"a {before} cell cannot become {state}")
    if state == CellState.RETIRED:
        _check_retirable(cell, unsettled)
    if state == CellState.OPEN and (never := _never_ready(cell)):
        raise Conflicting(never)
    sources = [source.value for source, ends in STATE_CHANGES.items() if state in ends]
    if not Cell.objects.filter(pk=name, state__in=sources).update(state=state):
        raise Conflicting(f"{name} has changed; look again")
    cell.state = state
    if state != CellState.DRAINING:
        stop_relocation(cell, RelocationKind.DRAIN, f"{name} is {state.lower()} now")
    publish(Change.Kind.CELL, name)
    record(
        action="cell.set_state", subject=name, tenant_id=None, actor=actor, reason=reason,
        before={"state": before}, after={"state": state},
    )  # fmt: skip
    return cell


def _check_retirable(cell: Cell, unsettled: str | None) -> None:
    """All that stands in the way, with the numbers."""
    reasons = []
    if tenants := cell.placements.count():
        reasons.append(f"{tenants} tenants still live on {cell.name}")
    if moves := _moving(cell):
        reasons.append(f"{moves} moves from or to {cell.name} are not over")
    if unsettled:
        reasons.append(unsettled)
    if reasons:
        raise Conflicting("; ".join(reasons))


def _unsettled(name: str) -> str | None:
    """Why the cell's meters are not all sealed and answered for, as far as it says."""
    cell = Cell.objects.filter(pk=name).first()
    if cell is None:
        return None
    site = Site.objects.filter(cell=cell, primary=True).first()
    if site is None or (cell.status_at is None and site.ready_at is None):
        return None  # it has never been seen at work, and counted nothing
    try:
        meters = call_cell(cell, "GET", "/internal/status").get("meters") or {}
    except CellUnreachable as away:
        return f"whether its meters are sealed is not known: {away}"
    waiting, unsealed = int(meters.get("unshipped", 0)), bool(meters.get("unsealed", False))
    reasons = []
    if unsealed:
        reasons.append("minutes of it are not sealed yet")
    if waiting:
        reasons.append(f"{waiting} sealed meters are not answered for")
    return " and ".join(reasons) or None


def _never_ready(cell: Cell) -> str | None:
    """Why a cell that was added with its engines may not be opened: nobody has seen it ready."""
    site = Site.objects.filter(cell=cell, primary=True).exclude(database="").first()
    if site is None or site.ready_at is not None:
        return None
    return f"{cell.name} was never seen ready; `clockhouse cell check {cell.name}` says what it waits for"


def stop_relocation(cell: Cell, kind: RelocationKind, why: str) -> None:
    """Moves that go on end as they do; no further ones begin."""
    Relocation.objects.filter(
        cell=cell, kind=kind, state__in=[RelocationState.RUNNING, RelocationState.PAUSED]
    ).update(state=RelocationState.STOPPED, why=why[:500], finished_at=Now(), changed_at=Now())


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
