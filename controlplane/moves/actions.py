"""Use-cases: start a move, give one up."""

from __future__ import annotations

import uuid
from functools import partial

from django.db import IntegrityError, transaction

from controlplane.actors import Actor
from controlplane.errors import Conflicting, NotFound
from controlplane.events.recording import record
from controlplane.locks import lock_region, lock_tenant
from controlplane.moves.machine import ABORTABLE, ENDED
from controlplane.moves.models import MoveStep, TenantMove
from controlplane.moves.planning import plan_move, tenant_to_move
from controlplane.topology.models import Placement, PlacementState


@transaction.atomic
def start_move(
    *, tenant_id: uuid.UUID, cell: str | None = None, keep_kind: bool = False, actor: Actor, reason: str
) -> TenantMove:
    """Begins to move a tenant to the given cell, or to the one the chooser takes. It works on meanwhile.
    `keep_kind`: it may not come to a cell of its own, or lose it, by the cell that is named."""
    from controlplane.moves.tasks import wake  # tasks import the driving of moves, which imports this

    tenant = tenant_to_move(tenant_id)
    lock_region(tenant.home_region_id)
    lock_tenant(tenant_id)
    plan = plan_move(tenant_to_move(tenant_id), cell=cell, keep_kind=keep_kind)
    try:
        with transaction.atomic():
            move = TenantMove.objects.create(
                tenant=tenant,
                source_id=plan.source,
                destination_id=plan.destination,
                choice=plan.why,
                why="waits to be begun",
                started_by=actor.name,
                reason=reason,
            )
    except IntegrityError as e:
        raise Conflicting("the tenant is being moved already") from e
    MoveStep.objects.create(move=move, attempt=1, state=move.state)
    Placement.objects.filter(tenant=tenant).update(state=PlacementState.MOVING)
    record(
        action="tenant.move", subject=move.public_id, tenant_id=tenant.id, actor=actor, reason=reason,
        before={"cell": plan.source}, after={"cell": plan.destination, "why": plan.why},
    )  # fmt: skip
    transaction.on_commit(partial(wake, move.id))
    return move


@transaction.atomic
def abort_move(*, move_id: uuid.UUID, actor: Actor, reason: str) -> TenantMove:
    """Has a move given up: the tenant stays where it is. Until HANDOFF only."""
    from controlplane.moves.tasks import wake

    move = TenantMove.objects.select_for_update(no_key=True).filter(pk=move_id).first()
    if move is None:
        raise NotFound("no such move")
    if move.at in ENDED:
        raise Conflicting(f"the move is over: {move.state}")
    if move.at not in ABORTABLE:
        raise Conflicting(f"a move in {move.state} can only go on: the tenant is being handed over")
    if move.abort_reason is None:
        move.abort_reason = reason or f"given up by {actor.name}"
        move.save(update_fields=["abort_reason"])
        record(
            action="tenant.move_abort", subject=move.public_id, tenant_id=move.tenant_id, actor=actor,
            reason=reason, before={"state": move.state}, after={"state": "ABORTING"},
        )  # fmt: skip
        transaction.on_commit(partial(wake, move.id))
    return move
