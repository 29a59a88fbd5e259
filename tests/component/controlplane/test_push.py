"""Cells are told until they confirm; the outbox loses nothing; drift is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from django.db import connection

from controlplane.events import outbox
from controlplane.events.models import OutboxItem
from controlplane.tenants.actions.tenants import set_quotas, suspend_tenant
from controlplane.tenants.models import Tenant
from controlplane.topology.cell_client import CellUnreachable
from controlplane.topology.models import Cell, Placement
from controlplane.topology.push import push_tenant, settle_drift
from controlplane.topology.tasks import check_drift, observe_cells
from tests.component.controlplane.factories import ACTOR, REASON, CellFactory, TenantFactory
from tests.component.controlplane.standin import StandInCell

pytestmark = pytest.mark.django_db


@dataclass
class Home:
    """A tenant and the cell it lives on."""

    cell: Cell
    answering: StandInCell
    tenant: Tenant

    @property
    def told(self) -> dict[str, object]:
        return self.answering.tenants[self.tenant.public_id]

    @property
    def placement(self) -> Placement:
        return Placement.objects.get(tenant=self.tenant)

    def run_outbox(self) -> list[bool]:
        return [outbox.run_item(i) for i in outbox.due_items()]


@pytest.fixture
def home(control: None) -> Iterator[Home]:
    name = CellFactory.name.function()
    with StandInCell(name, bytes(range(32))) as answering:
        cell = CellFactory(name=name, url=answering.url)
        yield Home(cell=cell, answering=answering, tenant=TenantFactory())


def _due_now() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE events_outboxitem SET due_at = now()")


def test_a_new_tenant_is_told_and_confirmed(home: Home) -> None:
    assert home.placement.confirmed_version == 0
    assert home.run_outbox() == [True]
    assert home.told["state"] == "ACTIVE"
    assert home.told["ownership_epoch"] == home.placement.epoch
    assert home.placement.confirmed_version == 1
    assert not OutboxItem.objects.exists()


def test_changes_arrive_the_newest_once(home: Home) -> None:
    set_quotas(tenant_id=home.tenant.id, quotas={"running_runs": 5}, actor=ACTOR, reason=REASON)
    suspend_tenant(tenant_id=home.tenant.id, actor=ACTOR, reason=REASON)
    assert home.run_outbox() == [True]
    assert (home.told["state"], home.told["config_version"]) == ("SUSPENDED", 3)
    assert home.told["config"]["running_runs"] == 5  # type: ignore[index]
    assert home.answering.puts == 1


def test_a_cell_that_is_away_is_told_later(home: Home) -> None:
    home.answering.failing = True
    assert home.run_outbox() == [False]
    item = OutboxItem.objects.get()
    assert (item.attempts, item.leased_until) == (1, None)
    assert "503" in item.last_error
    assert outbox.due_items() == []
    home.answering.failing = False
    _due_now()
    assert home.run_outbox() == [True]
    assert home.placement.confirmed_version == 1


def test_what_is_wanted_again_meanwhile_is_done_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from controlplane.topology import push

    real = push.call_cell

    def changed_meanwhile(*args: object) -> object:
        answer = real(*args)  # type: ignore[arg-type]
        monkeypatch.setattr(push, "call_cell", real)
        set_quotas(tenant_id=home.tenant.id, quotas={"running_runs": 9}, actor=ACTOR, reason=REASON)
        return answer

    monkeypatch.setattr(push, "call_cell", changed_meanwhile)
    home.run_outbox()
    assert home.told["config_version"] == 1
    assert home.placement.confirmed_version == 1
    assert home.run_outbox() == [True]
    assert home.told["config_version"] == 2
    assert not OutboxItem.objects.exists()


def test_a_held_item_is_not_taken_twice(home: Home) -> None:
    item = OutboxItem.objects.get()
    assert outbox.lease(item.pk) is not None
    assert outbox.lease(item.pk) is None
    assert outbox.due_items() == []


def test_a_lapsed_lease_is_taken_over(home: Home) -> None:
    item = OutboxItem.objects.get()
    outbox.lease(item.pk)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE events_outboxitem SET leased_until = now() - interval '1 second'")
    again = outbox.lease(item.pk)
    assert again is not None
    assert again.attempts == 2


def test_the_wait_grows_to_five_minutes() -> None:
    assert [outbox.wait_after(n) for n in (1, 2, 3, 9, 10, 1000)] == [1, 2, 4, 256, 300, 300]


def test_a_cell_ahead_of_us_is_overtaken(home: Home) -> None:
    """After a restore from a backup the cell knows versions we never wrote."""
    home.run_outbox()
    home.told["config_version"] = 50
    push_tenant(str(home.tenant.id))
    assert Tenant.objects.get(pk=home.tenant.pk).version == 51
    assert home.run_outbox() == [True]
    assert home.told["config_version"] == 51
    assert home.placement.confirmed_version == 51


def test_a_later_push_that_was_faster_is_no_restore(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version people edit with must not move, and nobody must be alarmed."""
    from controlplane.topology import push

    home.run_outbox()
    real = push.call_cell

    def overtaken(*args: object) -> object:
        monkeypatch.setattr(push, "call_cell", real)
        set_quotas(tenant_id=home.tenant.id, quotas={"running_runs": 9}, actor=ACTOR, reason=REASON)
        push_tenant(str(home.tenant.id))
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(push, "call_cell", overtaken)
    push_tenant(str(home.tenant.id))
    assert Tenant.objects.get(pk=home.tenant.pk).version == 2
    assert home.told["config_version"] == 2
    assert home.run_outbox() == [True]
    assert home.placement.confirmed_version == 2


def test_a_cell_under_a_later_epoch_has_confirmed_nothing(home: Home) -> None:
    """It refuses what we say, whatever the version: that must not look like success."""
    home.run_outbox()
    later = home.told["ownership_epoch"] + 1
    home.told["ownership_epoch"] = later
    suspend_tenant(tenant_id=home.tenant.id, actor=ACTOR, reason=REASON)
    assert home.run_outbox() == [False]
    assert f"is under epoch {later}" in OutboxItem.objects.get().last_error
    assert home.placement.confirmed_version == 1


def test_drift_is_settled(home: Home) -> None:
    home.run_outbox()
    assert settle_drift(home.cell) == 0
    home.told["state"] = "SUSPENDED"
    check_drift()
    assert OutboxItem.objects.count() == 1
    home.answering.tenants.clear()  # the cell lost everything
    assert settle_drift(home.cell) == 1
    home.run_outbox()
    assert settle_drift(home.cell) == 0


def test_an_unexpected_answer_is_no_answer(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home.answering, "_get", lambda path: {"tenants": 5})
    with pytest.raises(CellUnreachable):
        settle_drift(home.cell)
    check_drift()  # goes on


def test_cells_are_observed(home: Home) -> None:
    CellFactory()  # one that is away
    observe_cells()
    seen = {c.name: c for c in Cell.objects.all()}
    assert seen[home.cell.name].status == {"cell": home.cell.name, "hosts": []}
    assert [bool(c.status_error) for c in seen.values() if c.name != home.cell.name] == [True]


def test_a_push_of_a_tenant_that_is_gone_is_done(home: Home) -> None:
    from controlplane.identity import new_id

    push_tenant(str(new_id()))
    assert home.answering.puts == 0
