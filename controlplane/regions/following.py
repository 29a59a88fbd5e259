"""The control plane's own records follow the ownership rows of cells that were taken over.

Nothing waits for this: routers find the region that owns a cell by asking it, and cells act under what
their keepers settled. Placements, stays and pushes of configuration are right again once it has run.
"""

from __future__ import annotations

import uuid

import structlog
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from billing.watermarks import know_owners
from controlplane.actors import service
from controlplane.events.models import Change
from controlplane.events.recording import publish, record, want
from controlplane.identity import TENANT, encode
from controlplane.locks import lock_cell, lock_tenant
from controlplane.ownership import CellOwnership, OwnershipStore
from controlplane.topology.models import Cell, CellState, Placement, Site, Tenure
from controlplane.topology.push import TOPIC

_LOG = structlog.get_logger(__name__)
_ACTOR = service("regions")
#: A cell's PostgreSQL, as meter records name it.
_STORE = 0
#: Tenants of one run.
_PAGE = 500


def follow_owners(store: OwnershipStore) -> list[str]:
    """Brings the records of every cell that was taken over up to date; their names."""
    followed = []
    for cell in Cell.objects.exclude(state=CellState.RETIRED).order_by("name"):
        owned = store.cell(cell.name)
        if owned is not None and owned.epoch > cell.ownership_epoch and _is_settled(store, owned):
            _follow_cell(cell.name, owned)
            followed.append(cell.name)
    # Only where the cell is ahead of its tenant: takeovers claim the cell's row first. A page of them; those
    # that cannot follow yet (their moves see to them) come last.
    behind = Placement.objects.filter(epoch__lt=F("cell__ownership_epoch")).order_by("state", "tenant_id")
    for tenant_id, cell_id in behind.values_list("tenant_id", "cell_id")[:_PAGE]:
        _follow_tenant(store, tenant_id, cell_id)
    return followed


def _is_settled(store: OwnershipStore, owned: CellOwnership) -> bool:
    """Whether the takeover has come to its end: a cell in one region has no promotions at all."""
    promotions = store.promotions(owned.cell)
    return not promotions or max(record.epoch for record in promotions) == owned.epoch


@transaction.atomic
def _follow_cell(name: str, owned: CellOwnership) -> None:
    cell = lock_cell(name)
    if cell.ownership_epoch >= owned.epoch:
        return
    before = {"epoch": cell.ownership_epoch}
    cell.ownership_epoch = owned.epoch
    cell.save(update_fields=["ownership_epoch"])
    if Site.objects.filter(cell=cell, region_id=owned.region).exists():
        Site.objects.filter(cell=cell, primary=True).update(primary=False)
        Site.objects.filter(cell=cell, region_id=owned.region).update(primary=True)
    publish(Change.Kind.CELL, name)
    # Until the new owner has sealed a month's end, the word of the one before closes nothing.
    know_owners([(name, _STORE, owned.epoch)])
    record(
        action="cell.taken_over", subject=name, tenant_id=None, actor=_ACTOR,
        reason="the ownership row says so", before=before,
        after={"epoch": owned.epoch, "region": owned.region},
    )  # fmt: skip
    _LOG.warning("cell taken over", cell=name, region=owned.region, epoch=owned.epoch)


def _follow_tenant(store: OwnershipStore, tenant_id: uuid.UUID, cell: str) -> None:
    owned = store.tenant(tenant_id)
    if owned is None or owned.cell != cell:
        return  # a move is under way, whose driver sees to it
    with transaction.atomic():
        tenant = lock_tenant(tenant_id)
        changed = Placement.objects.filter(tenant=tenant, cell=cell, epoch__lt=owned.epoch).update(
            epoch=owned.epoch
        )
        if not changed:
            return
        Tenure.objects.filter(tenant=tenant, until=None).update(until=Now())
        Tenure.objects.create(tenant=tenant, cell_id=cell, epoch=owned.epoch)
        publish(Change.Kind.TENANT, tenant.public_id)
        want(topic=TOPIC, subject=str(tenant.id))
        record(
            action="tenant.taken_over", subject=encode(TENANT, tenant_id), tenant_id=tenant_id, actor=_ACTOR,
            reason="its cell was taken over", after={"cell": cell, "epoch": owned.epoch},
        )  # fmt: skip
