"""Relocations go on: beat looks at each that runs, and begins the next moves at its pace.

Whatever a crash leaves behind, the next look finds: the moves say who is where, the row only that they go on.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from controlplane.actors import service
from controlplane.errors import Refused
from controlplane.events.recording import record
from controlplane.identity import TENANT, decode, encode
from controlplane.moves.actions import start_move
from controlplane.moves.machine import State
from controlplane.moves.models import TenantMove
from controlplane.moves.planning import ended
from controlplane.topology.actions.placement import candidates
from controlplane.topology.headroom import Candidate
from controlplane.topology.models import (
    Cell,
    CellState,
    Placement,
    Relocation,
    RelocationKind,
    RelocationState,
)
from controlplane.topology.relocation_plans import Resident, next_to_come

#: Tenants that are tried in one look at most, and how long one whose move was given up is left alone.
_TRIED = 20
_REST = timedelta(seconds=60)


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a relocation is, in tenants."""

    total: int
    moved: int  # they live elsewhere (or here, for a fill) now
    moving: int  # on their way
    left: int  # still to begin
    stuck: int  # of these, those that fit nowhere or whose move was given up


def running() -> list[Relocation]:
    """Those that begin moves."""
    return list(Relocation.objects.filter(state=RelocationState.RUNNING).order_by("created_at"))


def moves_of(relocation: Relocation) -> QuerySet[TenantMove]:
    """The moves it began."""
    return TenantMove.objects.filter(started_by=service(relocation.public_id).name)


def progress_of(relocation: Relocation) -> Progress:
    """How far it is, from the moves and placements."""
    mine = moves_of(relocation)
    moving = _under_way(relocation).count()
    if relocation.kind == RelocationKind.DRAIN:
        here = Placement.objects.filter(cell=relocation.cell_id).count()
        return Progress(
            total=relocation.total,
            moved=max(0, relocation.total - here),
            moving=moving,
            left=max(0, here - moving),
            stuck=len(relocation.stuck),
        )
    moved = mine.filter(state__in=[State.CLEANUP.value, State.DONE.value, State.VERIFY.value]).count()
    return Progress(
        total=relocation.total,
        moved=moved,
        moving=moving,
        left=max(0, relocation.total - moved - moving) if relocation.finished_at is None else 0,
        stuck=len(relocation.stuck),
    )


def _under_way(relocation: Relocation) -> QuerySet[TenantMove]:
    """Moves from the cell (or to it) whose tenant has not been handed over."""
    over = [*ended(), State.VERIFY.value, State.CLEANUP.value]
    open_moves = TenantMove.objects.exclude(state__in=over).select_related("tenant")
    if relocation.kind == RelocationKind.DRAIN:
        return open_moves.filter(source=relocation.cell_id)
    return open_moves.filter(destination=relocation.cell_id)


@transaction.atomic
def go_on(relocation: Relocation) -> None:
    """Begins what its pace allows, and says what it does. Another's look is not waited for."""
    found = (
        Relocation.objects.select_for_update(skip_locked=True, no_key=True)
        .filter(pk=relocation.pk, state=RelocationState.RUNNING)
        .first()
    )
    if found is None:
        return
    room = found.at_once - _under_way(found).count()
    if found.kind == RelocationKind.DRAIN:
        _drain(found, room)
    else:
        _fill(found, room)
    found.changed_at = timezone.now()
    found.save(update_fields=["state", "why", "stuck", "changed_at", "finished_at"])


# --- draining ----------------------------------------------------------------------------
def _drain(found: Relocation, room: int) -> None:
    resting = _resting(found)
    going = set(_open_moves_from(found.cell_id).values_list("tenant_id", flat=True))
    here = Placement.objects.filter(cell=found.cell_id)
    waiting = here.exclude(tenant__in=resting | going)
    biggest_first = waiting.order_by("-tenant__quota__job_runs_per_second", "tenant_id")
    ids = list(biggest_first.values_list("tenant_id", flat=True))
    # Those that fit nowhere come last, each in its turn: a place may have become free.
    turns = {tenant_id: random.random() for tenant_id in ids if encode(TENANT, tenant_id) in found.stuck}
    ids.sort(key=lambda tenant_id: turns.get(tenant_id, -1.0))
    for tenant_id in ids[:_TRIED] if room > 0 else []:
        if _begin(found, tenant_id, cell=None):
            room -= 1
        if room <= 0:
            break
    found.stuck = {tenant: why for tenant, why in found.stuck.items() if _lives_on(tenant, found.cell_id)}
    if not here.exists() and not _open_moves_from(found.cell_id).exists():
        _done(found, f"{found.cell_id} is empty; it can be retired")
        return
    found.why = _line(found)


def _resting(found: Relocation) -> set[uuid.UUID]:
    """Whose move was given up a moment ago: begun again at once it would be given up again."""
    given_up = moves_of(found).filter(state=State.ABORTED.value, finished_at__gt=Now() - _REST)
    return set(given_up.values_list("tenant_id", flat=True))


def _open_moves_from(cell: str) -> QuerySet[TenantMove]:
    return TenantMove.objects.filter(source=cell).exclude(state__in=ended())


def _lives_on(tenant: str, cell: str) -> bool:
    found = decode(TENANT, tenant)
    return found is not None and Placement.objects.filter(tenant=found, cell=cell).exists()


# --- filling -----------------------------------------------------------------------------
def _fill(found: Relocation, room: int) -> None:
    cell = Cell.objects.get(pk=found.cell_id)
    if cell.state != CellState.OPEN:
        found.why = f"waits: {cell.name} is {cell.state.lower()}"
        return
    resting = {encode(TENANT, tenant_id): "its last move was given up" for tenant_id in _resting(found)}
    for _ in range(room):
        step = next_to_come(cell.name, *_as_after_moves(cell.region_id, without=found.stuck | resting))
        if step is None:
            break
        tenant_id = decode(TENANT, step.tenant_id)
        if tenant_id is not None:
            _begin(found, tenant_id, cell=cell.name)
    else:
        found.why = _line(found)
        return
    if resting or _under_way(found).exists():
        found.why = _line(found)
    else:
        _done(found, f"{cell.name} is about as full as the other cells of {cell.region_id}")


def _as_after_moves(
    region: str, *, without: dict[str, str]
) -> tuple[Sequence[Candidate], Sequence[Resident]]:
    """The region's cells and tenants as they will be when the moves under way are over."""
    coming = {
        move.tenant_id: move.destination_id
        for move in TenantMove.objects.exclude(state__in=ended()).filter(new_epoch=None)
    }
    shift: dict[str, int] = {}
    residents = []
    for resident in residents_of(region):
        tenant_id = decode(TENANT, resident.tenant_id)
        destination = coming.get(tenant_id) if tenant_id is not None else None
        if destination is not None:
            shift[resident.cell] = shift.get(resident.cell, 0) - resident.runs_per_second
            shift[destination] = shift.get(destination, 0) + resident.runs_per_second
        elif resident.tenant_id not in without:
            residents.append(resident)
    cells = [replace(c, promised=c.promised + shift.get(c.name, 0)) for c in candidates(region)]
    return cells, residents


def residents_of(region: str, *, cell: str | None = None) -> list[Resident]:
    """Who lives in a region, or on one cell of it."""
    placed = Placement.objects.filter(cell__region=region)
    if cell is not None:
        placed = placed.filter(cell=cell)
    rows = placed.values_list("tenant_id", "cell_id", "tenant__quota__job_runs_per_second")
    return [
        Resident(tenant_id=encode(TENANT, tenant), cell=name, runs_per_second=runs)
        for tenant, name, runs in rows.order_by("tenant_id")
    ]


# --- both --------------------------------------------------------------------------------
def _begin(found: Relocation, tenant_id: uuid.UUID, *, cell: str | None) -> bool:
    """Begins a tenant's move; why not, where it cannot be, is kept with the relocation."""
    name = encode(TENANT, tenant_id)
    try:
        with transaction.atomic():
            start_move(
                tenant_id=tenant_id, cell=cell, actor=service(found.public_id),
                reason=found.reason or f"{found.kind.lower()} of {found.cell_id}",
            )  # fmt: skip
    except Refused as refused:
        found.stuck = found.stuck | {name: str(refused)[:300]}
        return False
    found.stuck = {tenant: why for tenant, why in found.stuck.items() if tenant != name}
    return True


def _line(found: Relocation) -> str:
    """One line: what it does, or what it waits for."""
    told = progress_of(found)
    moves = list(_under_way(found).order_by("created_at")[:3])
    parts = [f"{told.moved} of {told.total} moved"]
    parts += [f"{m.tenant.slug} to {m.destination_id} ({m.state.lower()}: {m.why})" for m in moves]
    if found.stuck:
        name, why = next(iter(sorted(found.stuck.items())))
        parts.append(f"{len(found.stuck)} cannot move now, {name}: {why}")
    if found.kind == RelocationKind.DRAIN and not moves and told.left == 0:
        parts.append("waits until what is left at the source is metered and deleted")
    return "; ".join(parts)[:500]


def _done(found: Relocation, why: str) -> None:
    found.state, found.why, found.finished_at = RelocationState.DONE.value, why, timezone.now()
    record(
        action="relocation.done", subject=found.public_id, tenant_id=None, actor=service("relocations"),
        reason=found.reason, after={"cell": found.cell_id, "kind": found.kind, "why": why},
    )  # fmt: skip
