"""Use-cases: empty a cell, fill one; pause that, let it go on, end it."""

from __future__ import annotations

import uuid
from dataclasses import replace

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from controlplane.actors import Actor
from controlplane.errors import Conflicting, NotFound, invalid
from controlplane.events.models import Change
from controlplane.events.recording import publish, record
from controlplane.locks import lock_cell, lock_region
from controlplane.topology.actions.cells import STATE_CHANGES
from controlplane.topology.actions.placement import candidates
from controlplane.topology.models import (
    Cell,
    CellKind,
    CellState,
    Placement,
    Relocation,
    RelocationKind,
    RelocationState,
)
from controlplane.topology.relocating import residents_of
from controlplane.topology.relocation_plans import RelocationPlan, drain_plan, fill_plan

MOST_AT_ONCE = 20


def plan_relocation(*, cell: str, kind: RelocationKind) -> RelocationPlan:
    """Who would move where. Moves nobody."""
    found = Cell.objects.filter(pk=cell).first()
    if found is None:
        raise NotFound(f"no cell {cell}")
    cells = candidates(found.region_id)
    if found.name not in {c.name for c in cells}:
        raise Conflicting(f"{cell} is retired")
    if kind == RelocationKind.DRAIN:
        return drain_plan(cell, cells, residents_of(found.region_id, cell=cell))
    # As if it were open: a plan is wanted before a cell is.
    opened = [replace(c, state="OPEN") if c.name == cell else c for c in cells]
    return fill_plan(cell, opened, residents_of(found.region_id))


def _check_pace(at_once: int) -> None:
    if not 1 <= at_once <= MOST_AT_ONCE:
        raise invalid("/at_once", f"from 1 to {MOST_AT_ONCE}")


@transaction.atomic
def start_drain(
    *, cell: str, at_once: int = 1, override: bool = False, actor: Actor, reason: str
) -> Relocation:
    """The cell takes nobody any more, and every tenant of it moves away, `at_once` at the same time.

    Refused, with the numbers, where some fit on no other cell; with `override` those stay until there is
    room for them.
    """
    _check_pace(at_once)
    found = Cell.objects.filter(pk=cell).first()
    if found is None:
        raise NotFound(f"no cell {cell}")
    lock_region(found.region_id)
    found = lock_cell(cell)
    before = CellState(found.state)
    if before != CellState.DRAINING and CellState.DRAINING not in STATE_CHANGES[before]:
        raise Conflicting(f"a {before} cell cannot be drained")
    plan = plan_relocation(cell=cell, kind=RelocationKind.DRAIN)
    if plan.refusal is not None and not override:
        raise Conflicting(f"{plan.refusal}; an operator may override this")
    sources = [state.value for state, ends in STATE_CHANGES.items() if CellState.DRAINING in ends]
    if Cell.objects.filter(pk=cell, state__in=sources).update(state=CellState.DRAINING):
        publish(Change.Kind.CELL, cell)
        record(
            action="cell.set_state", subject=cell, tenant_id=None, actor=actor, reason=reason,
            before={"state": before}, after={"state": CellState.DRAINING},
        )  # fmt: skip
    return _begin(found, RelocationKind.DRAIN, plan, at_once, override, actor, reason)


@transaction.atomic
def start_fill(*, cell: str, at_once: int = 1, actor: Actor, reason: str) -> Relocation:
    """Tenants come to an open, shared cell from fuller ones of its region, until it is about as full."""
    _check_pace(at_once)
    found = lock_cell(cell)
    if found.kind != CellKind.SHARED:
        raise Conflicting(f"{cell} is kept for one tenant")
    if found.state != CellState.OPEN:
        raise Conflicting(f"{cell} is {found.state.lower()}; open it first")
    plan = plan_relocation(cell=cell, kind=RelocationKind.FILL)
    if not plan.steps:
        raise Conflicting(f"no tenant of a fuller cell of {found.region_id} would even it out")
    return _begin(found, RelocationKind.FILL, plan, at_once, False, actor, reason)


def _begin(
    cell: Cell,
    kind: RelocationKind,
    plan: RelocationPlan,
    at_once: int,
    override: bool,
    actor: Actor,
    reason: str,
) -> Relocation:
    try:
        with transaction.atomic():
            made = Relocation.objects.create(
                cell=cell, kind=kind, at_once=at_once, total=len(plan.steps), why="waits to be begun",
                stuck={step.tenant_id: step.why[:300] for step in plan.nowhere},
                started_by=actor.name, reason=reason,
            )  # fmt: skip
    except IntegrityError as e:
        raise Conflicting(f"{cell.name} is being drained or filled already") from e
    record(
        action="relocation.start", subject=made.public_id, tenant_id=None, actor=actor, reason=reason,
        after={"cell": cell.name, "kind": kind, "tenants": made.total, "nowhere": len(plan.nowhere),
               "at_once": at_once, "overridden": override and bool(plan.nowhere)},
    )  # fmt: skip
    return made


def _change(
    *, relocation_id: uuid.UUID, verb: str, state: RelocationState, sources: tuple[RelocationState, ...],
    why: str, at_once: int | None = None, actor: Actor, reason: str,
) -> Relocation:  # fmt: skip
    found = Relocation.objects.filter(pk=relocation_id).first()
    if found is None:
        raise NotFound("no such relocation")
    values: dict[str, object] = {"state": state, "why": why, "changed_at": Now()}
    if at_once is not None:
        _check_pace(at_once)
        values["at_once"] = at_once
    if state == RelocationState.STOPPED:
        values["finished_at"] = Now()
    if not Relocation.objects.filter(pk=relocation_id, state__in=sources).update(**values):
        raise Conflicting(f"a {found.state} relocation cannot {verb}")
    record(
        action=f"relocation.{verb}", subject=found.public_id, tenant_id=None, actor=actor, reason=reason,
        before={"state": found.state, "at_once": found.at_once},
        after={"state": state, "at_once": at_once or found.at_once},
    )  # fmt: skip
    return Relocation.objects.get(pk=relocation_id)


@transaction.atomic
def pause_relocation(*, relocation_id: uuid.UUID, actor: Actor, reason: str) -> Relocation:
    """Begins no further moves; those under way go on."""
    return _change(
        relocation_id=relocation_id, verb="pause", state=RelocationState.PAUSED,
        sources=(RelocationState.RUNNING,), why=f"paused by {actor.name}", actor=actor, reason=reason,
    )  # fmt: skip


@transaction.atomic
def resume_relocation(
    *, relocation_id: uuid.UUID, at_once: int | None = None, actor: Actor, reason: str
) -> Relocation:
    """Begins moves again, at another pace if one is given; of one that runs, the pace alone changes."""
    return _change(
        relocation_id=relocation_id, verb="resume", state=RelocationState.RUNNING,
        sources=(RelocationState.PAUSED, RelocationState.RUNNING), why="goes on", at_once=at_once,
        actor=actor, reason=reason,
    )  # fmt: skip


@transaction.atomic
def stop_relocation(*, relocation_id: uuid.UUID, actor: Actor, reason: str) -> Relocation:
    """Ends it: who has moved stays there, moves under way go on. A drained cell stays CORDONED with who is
    left on it."""
    stopped = _change(
        relocation_id=relocation_id, verb="stop", state=RelocationState.STOPPED,
        sources=(RelocationState.RUNNING, RelocationState.PAUSED), why=f"stopped by {actor.name}",
        actor=actor, reason=reason,
    )  # fmt: skip
    if stopped.kind == RelocationKind.DRAIN and Cell.objects.filter(
        pk=stopped.cell_id, state=CellState.DRAINING
    ).update(state=CellState.CORDONED):
        publish(Change.Kind.CELL, stopped.cell_id)
        record(
            action="cell.set_state", subject=stopped.cell_id, tenant_id=None, actor=actor, reason=reason,
            before={"state": CellState.DRAINING}, after={
                "state": CellState.CORDONED,
                "tenants": Placement.objects.filter(cell=stopped.cell_id).count(),
            },
        )  # fmt: skip
    return stopped
