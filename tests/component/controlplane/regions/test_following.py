"""The control plane's records after a takeover."""

from __future__ import annotations

import pytest

from billing.watermarks import newest
from controlplane.events.models import AuditEvent
from controlplane.ownership import OwnershipStore, PromotionRecord
from controlplane.regions.following import follow_owners
from controlplane.topology.models import Cell, Placement, Site, Tenure
from tests.component.controlplane.factories import CellFactory, RegionFactory, TenantFactory

pytestmark = pytest.mark.usefixtures("control")


def test_placements_and_stays_follow_a_takeover(ownership: OwnershipStore) -> None:
    cell = CellFactory(region="here")
    RegionFactory(name="there")
    Site.objects.create(cell=cell, region_id="there", url="http://127.0.0.1:2", primary=False)
    tenant = TenantFactory()
    before = Placement.objects.get(tenant=tenant)
    assert before.cell_id == cell.name
    ownership.record_promotion(
        PromotionRecord(
            cell=cell.name, timeline=1, epoch=cell.ownership_epoch, region="here", parent=0, fork=0
        )
    )
    assert follow_owners(ownership) == []

    taken = ownership.claim_cell(cell.name, region="there", expected=cell.ownership_epoch)
    # As long as nobody was promoted nothing has happened yet.
    assert follow_owners(ownership) == []
    ownership.record_promotion(
        PromotionRecord(cell=cell.name, timeline=2, epoch=taken.epoch, region="there", parent=1, fork=9)
    )
    owned = ownership.claim_tenant(tenant.id, cell=cell.name, expected=before.epoch)
    assert follow_owners(ownership) == [cell.name]
    assert Cell.objects.get(pk=cell.pk).ownership_epoch == taken.epoch
    assert Site.objects.get(cell=cell, primary=True).region_id == "there"
    placement = Placement.objects.get(tenant=tenant)
    assert (placement.cell_id, placement.epoch) == (cell.name, owned.epoch)
    stays = list(Tenure.objects.filter(tenant=tenant).order_by("epoch"))
    assert [(stay.epoch, stay.until is None) for stay in stays] == [
        (before.epoch, False),
        (owned.epoch, True),
    ]
    # The month closes on the new owner's word only.
    assert newest([cell.name])[cell.name, 0].epoch == taken.epoch
    assert AuditEvent.objects.filter(action="cell.taken_over", subject=cell.name).count() == 1
    # The month waits for the word of the new owner.
    (mark,) = newest([cell.name]).values()
    assert (mark.store, mark.epoch, mark.sealed_until) == (0, taken.epoch, None)
    assert follow_owners(ownership) == []


def test_a_tenant_on_its_way_elsewhere_is_left_to_its_move(ownership: OwnershipStore) -> None:
    cell, other = CellFactory(), CellFactory()
    tenant = TenantFactory()
    before = Placement.objects.get(tenant=tenant)
    home = Cell.objects.get(pk=before.cell_id)
    elsewhere = other if home.pk == cell.pk else cell
    ownership.claim_cell(home.name, region="here", expected=home.ownership_epoch)
    ownership.claim_tenant(tenant.id, cell=elsewhere.name, expected=before.epoch)
    assert follow_owners(ownership) == [home.name]
    assert Placement.objects.get(tenant=tenant).epoch == before.epoch
