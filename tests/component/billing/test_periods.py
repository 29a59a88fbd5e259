"""Months close once all their cells have sealed them, and never change from then on."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, transaction

from billing import periods
from billing.ingest import ingest
from billing.models import (
    BillingPeriod,
    MeterWatermark,
    RouterMark,
    UsageAdjustment,
    UsageDay,
    UsageHour,
    UsageMonth,
)
from billing.months import month_of, next_month, start_of
from billing.periods import Adjustment, Period, Waiting, adjustments, close, close_due, closed
from billing.rollup import recompute_dirty
from billing.usage import Usage, usage_of
from billing.watermarks import MalformedWatermark, hear_incarnations, know_owners, raise_watermarks
from cells.contract import HostSealed, MeterRecord, Metric
from controlplane.events.models import AuditEvent
from controlplane.tenants.models import Tenant
from controlplane.topology.models import Tenure
from tests.component.controlplane.factories import CellFactory, TenantFactory

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC).replace(second=0, microsecond=0)
#: Noon of the last day of the last month: an instant in a month that is over, which a record may still bear
#: and around which minutes are of that month, too.
THEN = start_of(month_of(NOW.date())) - timedelta(hours=12)
MONTH = month_of(THEN.date())
LATER = next_month(MONTH)


def _send(tenant: Tenant, at: datetime, quantity: int, **changes: Any) -> None:
    values: dict[str, Any] = {
        "tenant_id": tenant.public_id, "cell": tenant.placement.cell_id, "store": 0, "epoch": 1,
        "host": "h", "minute": f"{at:%Y-%m-%dT%H:%M:00Z}", "metric": Metric.JOB_RUNS,
        "region_policy": "HOME_ASYNC", "quantity": quantity,
    }  # fmt: skip
    assert ingest([MeterRecord(**{**values, **changes})]) == ["accepted"]


def _seal(cell: str, *, epoch: int = 1, until: date = LATER, after: timedelta = timedelta()) -> None:
    """As if the cell had said so; a month that is still under way cannot be sealed through the door."""
    MeterWatermark.objects.filter(cell=cell, store=0, epoch=epoch).delete()
    sealed = start_of(until) + after
    MeterWatermark.objects.create(cell=cell, store=0, epoch=epoch, sealed_until=sealed)


def _close(tenant: Tenant, month: date = MONTH, **how: str) -> Period | Waiting:
    return close(tenant_id=tenant.id, month=month, actor="test", **how)


@pytest.fixture
def tenant(control: None) -> Tenant:
    tenant: Tenant = TenantFactory()
    Tenure.objects.filter(tenant=tenant).update(since=NOW - timedelta(days=34))
    return tenant


def _usage(tenant: Tenant) -> list[int]:
    return [u.quantity for u in usage_of(tenant.id, MONTH, LATER)]


def test_it_waits_for_the_cell_to_seal_its_end(tenant: Tenant) -> None:
    _send(tenant, THEN, 3)
    cell = tenant.placement.cell_id
    assert _close(tenant) == Waiting(waits_for=(f"{cell} has sealed nothing yet",))
    _seal(cell, until=LATER - timedelta(days=1))
    waiting = _close(tenant)
    assert isinstance(waiting, Waiting)
    assert waiting.waits_for[0].startswith(f"{cell} has sealed up to")
    assert BillingPeriod.objects.get().state == "CLOSING"
    assert closed(tenant.id, MONTH) is None
    _seal(cell)
    period = _close(tenant)
    assert isinstance(period, Period)
    assert (period.start, period.end) == (start_of(MONTH), start_of(LATER))
    assert closed(tenant.id, MONTH) == period == _close(tenant)
    assert BillingPeriod.objects.get().evidence["sums"] == {"job_runs": "3"}


def test_what_waits_to_be_added_up_is_in_it(tenant: Tenant) -> None:
    _send(tenant, THEN, 3)
    _seal(tenant.placement.cell_id)
    _close(tenant)
    assert usage_of(tenant.id, MONTH, LATER) == [
        Usage(day=THEN.date(), metric="job_runs", region_policy="HOME_ASYNC",
              cell=tenant.placement.cell_id, quantity=3)
    ]  # fmt: skip
    assert [int(m.quantity) for m in UsageMonth.objects.all()] == [3]
    assert recompute_dirty() == 0


def test_it_waits_for_every_cell_the_tenant_lived_on(tenant: Tenant) -> None:
    earlier = CellFactory()
    Tenure.objects.filter(tenant=tenant).update(since=THEN)
    Tenure.objects.create(
        tenant=tenant, cell=earlier, epoch=900, since=THEN - timedelta(minutes=5), until=THEN
    )
    _seal(tenant.placement.cell_id)
    assert _close(tenant) == Waiting(waits_for=(f"{earlier.name} has sealed nothing yet",))
    _seal(earlier.name)
    assert isinstance(_close(tenant), Period)


def test_a_newer_owner_must_seal_under_its_own_epoch(tenant: Tenant) -> None:
    _seal(tenant.placement.cell_id, epoch=1)
    _send(tenant, THEN, 1, epoch=2)
    assert isinstance(_close(tenant), Waiting)
    _seal(tenant.placement.cell_id, epoch=2)
    assert isinstance(_close(tenant), Period)


def test_earlier_months_close_first(tenant: Tenant) -> None:
    _seal(tenant.placement.cell_id, until=next_month(LATER))
    periods.open_month(MONTH)
    assert _close(tenant, LATER) == Waiting(waits_for=(f"{MONTH:%Y-%m} is not closed",))
    assert isinstance(_close(tenant), Period)
    assert isinstance(_close(tenant, LATER), Period)


def test_late_records_are_billed_by_the_next_month(tenant: Tenant) -> None:
    _send(tenant, THEN, 3)
    _seal(tenant.placement.cell_id)
    _close(tenant)
    _send(tenant, THEN + timedelta(minutes=1), 4)
    recompute_dirty()
    _send(tenant, THEN + timedelta(minutes=2), 2)
    recompute_dirty()
    assert _usage(tenant) == [3]
    late = Adjustment(day=(THEN + timedelta(minutes=1)).date(), metric="job_runs", region_policy="HOME_ASYNC",
                      cell=tenant.placement.cell_id, quantity=6)  # fmt: skip
    assert adjustments(tenant.id, MONTH) == []
    assert adjustments(tenant.id, LATER) == [late]
    assert closed(tenant.id, LATER) is None


def test_later_than_late_goes_into_the_month_after(tenant: Tenant) -> None:
    _send(tenant, THEN, 3)
    _seal(tenant.placement.cell_id, until=next_month(LATER))
    _close(tenant)
    _send(tenant, THEN + timedelta(minutes=1), 4)
    assert recompute_dirty() == 1
    assert isinstance(_close(tenant, LATER), Period)
    _send(tenant, THEN + timedelta(minutes=2), 5)
    for _ in range(2):  # again: nothing more
        recompute_dirty()
        assert [a.quantity for a in adjustments(tenant.id, LATER)] == [4]
        assert [a.quantity for a in adjustments(tenant.id, next_month(LATER))] == [5]
    assert sum(_usage(tenant)) + sum(a.quantity for a in UsageAdjustment.objects.all()) == 12


def test_nothing_of_a_closed_month_changes(tenant: Tenant) -> None:
    _send(tenant, THEN, 3)
    _seal(tenant.placement.cell_id)
    _close(tenant)
    rows = {
        model: model.objects.filter(tenant_id=tenant.id)
        for model in (UsageDay, UsageHour, UsageMonth)
    }  # fmt: skip
    before = {model: list(found.values()) for model, found in rows.items()}
    for found in rows.values():
        for act in (lambda f=found: f.update(quantity=9), lambda f=found: f.delete()):
            with pytest.raises(DatabaseError, match="closed period"), transaction.atomic():
                act()
    for act in (
        lambda: BillingPeriod.objects.update(state="OPEN", closed_at=None),
        lambda: BillingPeriod.objects.all().delete(),
        lambda: UsageDay.objects.create(
            tenant_id=tenant.id, day=THEN.date(), metric="x", region_policy="", cell="c", quantity=1,
            records=1,
        ),
        lambda: UsageAdjustment.objects.create(
            tenant_id=tenant.id, into_month=MONTH, day=THEN.date(), metric="x", region_policy="", cell="c",
            quantity=1,
        ),
    ):  # fmt: skip
        with pytest.raises(DatabaseError, match="closed"), transaction.atomic():
            act()
    assert {model: list(found.values()) for model, found in rows.items()} == before


def test_a_person_closes_without_a_dead_cell(tenant: Tenant) -> None:
    period = _close(tenant, without="its machine burnt down")
    assert isinstance(period, Period)
    evidence = BillingPeriod.objects.get().evidence
    assert evidence["without"] == [[tenant.placement.cell_id, 0]]
    assert (evidence["reason"], evidence["actor"]) == ("its machine burnt down", "test")
    event = AuditEvent.objects.get(action="period.close")
    assert (event.tenant_id, event.actor, event.reason) == (tenant.id, "test", "its machine burnt down")


def test_a_month_that_is_not_over_is_closed_by_nobody(tenant: Tenant) -> None:
    this = month_of(NOW.date())
    for month in (this, next_month(this)):
        waiting = _close(tenant, month, without="a slip in the month")
        assert waiting == Waiting(waits_for=(f"{month:%Y-%m} is not over",))
    # Neither for somebody who lived nowhere, for whom no cell has to seal anything.
    assert isinstance(close(tenant_id=uuid.uuid4(), month=this, actor="test"), Waiting)
    assert not BillingPeriod.objects.filter(month__gte=this).exists()
    with pytest.raises(CommandError, match="is not over"):
        call_command(
            "close_period", tenant.public_id, f"{this:%Y-%m}", "--actor", "op", "--without", "a slip"
        )


def test_one_that_fails_keeps_no_other_from_closing(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [TenantFactory() for _ in range(2)]
    for each in (tenant, *others):
        Tenure.objects.filter(tenant=each).update(since=NOW - timedelta(days=34))
        _seal(each.placement.cell_id, after=timedelta(hours=1))
    periods.open_month(MONTH)
    real = periods.recompute_range

    def recompute_range(tenant_id: uuid.UUID, since: date, until: date) -> None:
        if tenant_id == tenant.id:
            raise ValueError("a row nobody thought of")
        real(tenant_id, since, until)

    monkeypatch.setattr(periods, "recompute_range", recompute_range)
    assert close_due() == 2
    monkeypatch.undo()
    assert close_due() == 1


def test_every_due_month_closes_of_everybody(tenant: Tenant) -> None:
    _send(tenant, THEN, 3)
    idle: Tenant = TenantFactory()
    Tenure.objects.filter(tenant=idle).update(since=NOW - timedelta(days=34))
    periods.open_month(MONTH)
    assert close_due() == 0
    both = {tenant.placement.cell_id, idle.placement.cell_id}
    for each in both:
        _seal(each, until=LATER - timedelta(days=1))
    assert close_due() == 0
    for each in both:
        _seal(each)
    assert close_due() == 2
    assert close_due() == 0
    assert closed(idle.id, MONTH) is not None
    # The month that comes is begun for both.
    assert BillingPeriod.objects.filter(month=LATER, state="OPEN").count() == 2


def test_a_takeover_is_waited_for_from_its_beginning(tenant: Tenant) -> None:
    _seal(tenant.placement.cell_id, epoch=1)
    know_owners([(tenant.placement.cell_id, 0, 9)])
    assert _close(tenant) == Waiting(waits_for=(f"{tenant.placement.cell_id} has sealed nothing yet",))
    _seal(tenant.placement.cell_id, epoch=9)
    assert isinstance(_close(tenant), Period)


def test_many_that_wait_for_one_cell_are_a_handful_of_statements(
    tenant: Tenant, django_assert_max_num_queries: Any
) -> None:
    away = CellFactory()
    others = [TenantFactory() for _ in range(8)]
    Tenure.objects.filter(tenant__in=others).update(cell=away, since=NOW - timedelta(days=34))
    _seal(tenant.placement.cell_id)
    periods.open_month(MONTH)
    assert close_due() == 1
    waiting = BillingPeriod.objects.filter(month=MONTH, tenant_id__in=[each.id for each in others])
    assert {(row.state, *row.waits_for) for row in waiting} == {
        ("CLOSING", f"{away.name} has sealed nothing yet")
    }
    with django_assert_max_num_queries(20):  # half of them set the search path
        assert close_due() == 0
    _seal(away.name)
    assert close_due() == 8


# --- routers ---------------------------------------------------------------------------------
def _heard(host: str, until: datetime, *, ended: bool = False) -> None:
    hear_incarnations([HostSealed(host=host, sealed_until=f"{until:%Y-%m-%dT%H:%M:00Z}", ended=ended)])


def test_a_month_waits_for_what_routers_counted(tenant: Tenant) -> None:
    end = start_of(LATER)
    _seal(tenant.placement.cell_id)
    _heard("router-a", end)
    _heard("router-b", end - timedelta(minutes=2))
    _heard("router-b", end - timedelta(minutes=3))  # it never falls
    periods.open_month(MONTH)
    assert close_due() == 0
    waits_for = f"router-b have counted up to {end - timedelta(minutes=2):%Y-%m-%dT%H:%MZ} only"
    assert BillingPeriod.objects.get(month=MONTH).waits_for == [waits_for]
    assert _close(tenant) == Waiting(waits_for=(waits_for,))
    _heard("router-b", end - timedelta(minutes=2), ended=True)
    assert close_due() == 1


def test_a_router_that_is_gone_is_waited_for_three_days(tenant: Tenant) -> None:
    _seal(tenant.placement.cell_id)
    _heard("router-a", start_of(LATER) - timedelta(hours=1))
    assert isinstance(_close(tenant), Waiting)
    RouterMark.objects.update(heard_at=NOW - timedelta(days=3, minutes=1))
    assert isinstance(_close(tenant), Period)
    RouterMark.objects.update(heard_at=NOW - timedelta(days=37))
    close_due()
    assert not RouterMark.objects.exists()


def test_a_person_closes_without_a_lost_router(tenant: Tenant) -> None:
    _seal(tenant.placement.cell_id)
    _heard("router-a", start_of(LATER) - timedelta(hours=1))
    assert isinstance(_close(tenant, without="its disk is gone"), Period)
    assert BillingPeriod.objects.get().evidence["without_routers"] == ["router-a"]


@pytest.mark.parametrize(
    ("host", "until"),
    [("", "2026-01-01T00:00:00Z"), ("r", "2026-01-01"), ("r" * 201, "2026-01-01T00:00:00Z")],
)
def test_words_of_routers_that_cannot_be(control: None, host: str, until: str) -> None:
    with pytest.raises(MalformedWatermark):
        hear_incarnations([HostSealed(host=host, sealed_until=until)])
    assert not RouterMark.objects.exists()


def test_watermarks_never_fall(control: None) -> None:
    minute = NOW - timedelta(minutes=1)
    raise_watermarks("c-1", [(0, 1, f"{minute:%Y-%m-%dT%H:%M:00Z}")])
    raise_watermarks("c-1", [(0, 1, f"{minute - timedelta(hours=1):%Y-%m-%dT%H:%M:00Z}")])
    assert MeterWatermark.objects.get().sealed_until == minute


@pytest.mark.parametrize("text", ["2026-01-01", "2026-01-01T00:00:30Z", "2999-01-01T00:00:00Z"])
def test_watermarks_that_cannot_be(control: None, text: str) -> None:
    with pytest.raises(MalformedWatermark):
        raise_watermarks("c-1", [(0, 1, text)])
    assert not MeterWatermark.objects.exists()


def test_unknown_tenants_have_no_periods(control: None) -> None:
    assert closed(uuid.uuid4(), MONTH) is None
    assert adjustments(uuid.uuid4(), MONTH) == []
    assert usage_of(uuid.uuid4(), MONTH, LATER) == []


def test_the_command_closes_or_says_why_not(tenant: Tenant) -> None:
    _send(tenant, THEN, 3)
    asked = ["close_period", tenant.public_id, f"{MONTH:%Y-%m}", "--actor", "op"]
    with pytest.raises(CommandError, match="has sealed nothing yet"):
        call_command(*asked)
    for wrong in (
        ["close_period", "x", "2026-01"],
        ["close_period", tenant.public_id, "2026-13"],
        ["close_period", tenant.public_id, "9999-12"],
    ):
        with pytest.raises(CommandError, match="is no"):
            call_command(*wrong, "--actor", "op")
    call_command(*asked, "--without", "the cell burnt down")
    assert closed(tenant.id, MONTH) is not None
