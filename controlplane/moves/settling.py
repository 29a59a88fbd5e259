"""A cell asks where a tenant lives whose move nobody drives on.

The ownership row says it. Where it still names the source and the source asks, the row is claimed for it
under a fresh epoch first: a driver that wakes up afterwards then loses its claim.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.db import transaction
from django.db.models.functions import Now

from cells.contract import MoveSide
from controlplane.actors import service
from controlplane.errors import Conflicting, NotFound, Unavailable
from controlplane.events.models import Change
from controlplane.events.recording import publish, record, want
from controlplane.locks import lock_tenant
from controlplane.moves.cells import address_of
from controlplane.moves.models import TenantMove
from controlplane.ownership import OwnershipStore, Superseded, TenantOwnership
from controlplane.ownership.installed import installed_store
from controlplane.ownership.store import OwnershipUnavailable
from controlplane.topology.models import Cell, Placement, Tenure
from controlplane.topology.push import TOPIC


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Where the tenant lives, under which epoch, and where that cell's internal API is."""

    cell: str
    epoch: int
    url: str


def settle(
    *,
    tenant_id: uuid.UUID,
    move_id: uuid.UUID,
    side: MoveSide,
    cell: str,
    store: OwnershipStore | None = None,
) -> Answer:
    """What holds now. `cell` is who asks."""
    move = TenantMove.objects.select_related("source", "destination").filter(pk=move_id).first()
    if move is None or move.tenant_id != tenant_id:
        raise NotFound("no such move")
    if cell != (move.source_id if side is MoveSide.SOURCE else move.destination_id):
        raise NotFound(f"{cell} has no part in that move")
    try:
        owned = _owned(move, side, store or installed_store())
    except OwnershipUnavailable as e:
        raise Unavailable("the ownership store cannot be reached") from e
    home = Cell.objects.get(pk=owned.cell)
    return Answer(cell=home.name, epoch=max(owned.epoch, home.ownership_epoch), url=address_of(home))


def _owned(move: TenantMove, side: MoveSide, store: OwnershipStore) -> TenantOwnership:
    owned = store.tenant(move.tenant_id)
    if owned is None:
        raise Conflicting("the tenant has no owner")
    if side is MoveSide.SOURCE and owned.cell == move.source_id:
        # Once only: of an answer that was lost the epoch is higher than what the move began with.
        if owned.epoch == move.owned_epoch:
            try:
                owned = store.claim_tenant(move.tenant_id, cell=move.source_id, expected=owned.epoch)
            except Superseded:
                found = store.tenant(move.tenant_id)
                if found is None:
                    raise Conflicting("the tenant has no owner") from None
                owned = found
        if owned.cell == move.source_id:
            _stays(move, owned)
    return owned


@transaction.atomic
def _stays(move: TenantMove, owned: TenantOwnership) -> None:
    """The tenant works on at the source, under its fresh epoch."""
    tenant = lock_tenant(move.tenant_id)
    changed = Placement.objects.filter(tenant=tenant, cell=move.source_id, epoch__lt=owned.epoch).update(
        epoch=owned.epoch
    )
    if not changed:
        return
    Tenure.objects.filter(tenant=tenant, until=None).update(until=Now())
    Tenure.objects.create(tenant=tenant, cell_id=move.source_id, epoch=owned.epoch)
    publish(Change.Kind.TENANT, tenant.public_id)
    want(topic=TOPIC, subject=str(tenant.id))
    record(
        action="tenant.move_settled", subject=move.public_id, tenant_id=tenant.id, actor=service("moves"),
        reason="nobody drove the move on: its source took the tenant back",
        before={"state": move.state}, after={"cell": move.source_id, "epoch": owned.epoch},
    )  # fmt: skip
