"""What billing promises about correctness, a test for each promise of the ledger."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.db import DatabaseError, transaction

from billing.by_hand import settle_conflict, settle_drift
from billing.cells import CellAway
from billing.corrections import NothingToCorrect, accept_refused, correct
from billing.drift import check_day
from billing.hooks import Service
from billing.ingest import Result, ingest
from billing.models import (
    DriftFinding,
    MeterConflict,
    MeterCorrection,
    MeterRecord,
    MeterWatermark,
    UsageDay,
)
from billing.months import DAY, month_of, next_month, start_of
from billing.periods import Period, Waiting, adjustments, close
from billing.rollup import recompute_dirty
from billing.usage import usage_of
from cells.contract import MeterRecord as Sent
from cells.contract import Metric, Scope
from controlplane.events.models import AuditEvent
from controlplane.tenants.models import Tenant
from controlplane.topology.models import Site, Tenure
from tests.component.controlplane.factories import CellFactory, TenantFactory
from tests.component.controlplane.signed import SignedClient
from tests.component.controlplane.standin import StandInCell

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC).replace(second=0, microsecond=0)
THEN = start_of(month_of(NOW.date())) - timedelta(hours=12)
MONTH = month_of(THEN.date())
LATER = next_month(MONTH)
_OPERATOR = Service(name="user:op")


@pytest.fixture
def tenant(control: None) -> Tenant:
    tenant: Tenant = TenantFactory()
    Tenure.objects.filter(tenant=tenant).update(since=NOW - timedelta(days=90))
    return tenant


def _record(tenant: Tenant, at: datetime = THEN, **changes: Any) -> Sent:
    values: dict[str, Any] = {
        "tenant_id": tenant.public_id, "cell": tenant.placement.cell_id, "store": 0, "epoch": 1,
        "host": "h", "minute": f"{at:%Y-%m-%dT%H:%M:00Z}", "metric": Metric.JOB_RUNS,
        "region_policy": "HOME_ASYNC", "quantity": 5,
    }  # fmt: skip
    return Sent(**{**values, **changes})


def _sealed(cell: str, until: date = LATER) -> None:
    MeterWatermark.objects.filter(cell=cell).delete()
    MeterWatermark.objects.create(cell=cell, store=0, epoch=1, sealed_until=start_of(until))


def test_1_a_record_is_one_row_and_a_contradiction_is_refused_with_409(tenant: Tenant) -> None:
    sender = SignedClient(
        kid=tenant.placement.cell_id, secret=bytes(range(32)), scopes=[Scope.INTERNAL], sign_body=True
    )
    record = _record(tenant)
    for _ in range(3):
        answer = sender.post("/internal/meters", {"records": [msgspec.to_builtins(record)]})
        assert answer.status == 200
    wrong = msgspec.to_builtins(msgspec.structs.replace(record, quantity=6))
    other = msgspec.to_builtins(_record(tenant, host="other"))
    answer = sender.post("/internal/meters", {"records": [wrong, other]})
    assert (answer.status, answer.json["results"]) == (409, ["conflict", "accepted"])
    assert answer.json["type"] == "urn:clockhouse:problem:conflict"
    assert list(MeterRecord.objects.order_by("host").values_list("host", "quantity")) == [
        ("h", 5),
        ("other", 5),
    ]
    kept = MeterConflict.objects.get()
    assert (kept.recorded, kept.refused) == (5, 6)


def test_2_the_ledger_only_grows_and_corrections_refer_to_what_they_correct(tenant: Tenant) -> None:
    ingest([_record(tenant)])
    ingest([_record(tenant, quantity=9)])
    made = accept_refused(MeterConflict.objects.get(), actor="user:op", reason="the host counted twice")
    assert accept_refused(MeterConflict.objects.get(), actor="user:op", reason="again") == made
    assert (made.quantity, MeterCorrection.objects.count()) == (4, 1)
    event = AuditEvent.objects.get(action="meter.correct")
    assert (event.before, event.reason) == ({"quantity": 5}, "the host counted twice")
    settle_conflict(
        conflict_id=MeterConflict.objects.get().pk, accept=True, actor=_OPERATOR, reason="told twice"
    )
    assert MeterConflict.objects.get().settled_by == "user:op"
    assert MeterCorrection.objects.count() == 1
    assert (made.host, made.minute) == ("h", THEN)
    recompute_dirty()
    assert [(u.quantity, u.records) for u in UsageDay.objects.all()] == [(9, 1)]
    for act in (
        lambda: MeterRecord.objects.update(quantity=1),
        lambda: MeterRecord.objects.all().delete(),
        lambda: MeterCorrection.objects.update(quantity=1),
        lambda: MeterCorrection.objects.all().delete(),
    ):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            act()
    with pytest.raises(NothingToCorrect):
        correct(
            MeterRecord(**{**_key(made), "host": "nobody"}), quantity=1, actor="a", reason="r",
            correction_id=uuid.uuid4(),
        )  # fmt: skip


def _key(of: MeterCorrection) -> dict[str, Any]:
    names = ("tenant_id", "minute", "metric", "region_policy", "cell", "store", "epoch", "host")
    return {name: getattr(of, name) for name in names}


def test_3_event_time_decides_the_day_and_receipt_the_invoice(tenant: Tenant) -> None:
    ingest([_record(tenant)])
    _sealed(tenant.placement.cell_id)
    close(tenant_id=tenant.id, month=MONTH, actor="test")
    ingest([_record(tenant, THEN - timedelta(minutes=1), quantity=2)])
    recompute_dirty()
    (late,) = adjustments(tenant.id, LATER)
    assert (late.day, late.quantity) == ((THEN - timedelta(minutes=1)).date(), 2)
    assert sum(u.quantity for u in usage_of(tenant.id, MONTH, LATER)) == 5


def test_4_a_late_record_reopens_its_day_while_the_month_is_open(tenant: Tenant) -> None:
    ingest([_record(tenant)])
    recompute_dirty()
    ingest([_record(tenant, host="late", quantity=2)])
    recompute_dirty()
    assert [u.quantity for u in usage_of(tenant.id, THEN.date(), THEN.date() + DAY)] == [7]
    assert adjustments(tenant.id, LATER) == []


def test_4_a_correction_after_closing_is_taken_back_from_the_next_invoice(tenant: Tenant) -> None:
    ingest([_record(tenant)])
    _sealed(tenant.placement.cell_id)
    close(tenant_id=tenant.id, month=MONTH, actor="test")
    record = MeterRecord.objects.get()
    correct(record, quantity=1, actor="user:op", reason="too many", correction_id=uuid.uuid4())
    recompute_dirty()
    assert [a.quantity for a in adjustments(tenant.id, LATER)] == [-4]


@pytest.mark.parametrize(
    ("age", "word"),
    [
        (timedelta(days=35, minutes=1), Result.TOO_OLD),
        (timedelta(days=34, hours=23), Result.ACCEPTED),
        (-timedelta(minutes=4), Result.ACCEPTED),
        (-timedelta(minutes=7), Result.TOO_NEW),
    ],
)
def test_5_records_are_taken_from_35_days_ago_to_5_minutes_ahead(
    tenant: Tenant, age: timedelta, word: Result
) -> None:
    now = datetime.now(UTC)  # not when the tests began: that may be minutes ago
    assert ingest([_record(tenant, now - age)]) == [word]


def test_6_a_month_closes_only_once_every_owner_has_sealed_its_end(tenant: Tenant) -> None:
    other = CellFactory()
    Tenure.objects.create(
        tenant=tenant,
        cell=other,
        epoch=900,
        since=start_of(MONTH),
        until=start_of(MONTH) + timedelta(hours=1),
    )
    _sealed(tenant.placement.cell_id)
    assert isinstance(close(tenant_id=tenant.id, month=MONTH, actor="test"), Waiting)
    _sealed(other.name, LATER - DAY)
    assert isinstance(close(tenant_id=tenant.id, month=MONTH, actor="test"), Waiting)
    _sealed(other.name)
    assert isinstance(close(tenant_id=tenant.id, month=MONTH, actor="test"), Period)


def test_10_differences_are_kept_until_the_figures_are_one(tenant: Tenant) -> None:
    cell, day = tenant.placement.cell_id, THEN.date()
    ingest([_record(tenant)])
    recompute_dirty()
    with StandInCell(cell, bytes(range(32))) as there:
        Site.objects.filter(cell_id=cell).update(url=there.url)
        runs = {"tenant_id": tenant.public_id, "region_policy": "HOME_ASYNC", "job_runs": 6}
        there.usage = {"complete": True, "items": [runs]}
        assert check_day(cell, day) is None  # nothing is sealed
        _sealed(cell)
        for _ in range(2):
            (found,) = check_day(cell, day) or ()
            assert (found.ledger, found.rollup, found.counted) == (5, 5, 6)
            assert DriftFinding.objects.filter(settled_at=None).count() == 1
        ingest([_record(tenant, host="late", quantity=1)])
        recompute_dirty()
        assert check_day(cell, day) == []
        assert DriftFinding.objects.get().settled_by == "service:drift"
        # What a person has settled is no new alarm, as long as the figures stay those.
        for counted, new in ((9, 1), (9, 0), (10, 1)):
            there.usage = {"complete": True, "items": [{**runs, "job_runs": counted}]}
            assert len(check_day(cell, day) or ()) == new
            for finding in DriftFinding.objects.filter(settled_at=None):
                settle_drift(finding_id=finding.pk, actor=_OPERATOR, reason="the host was lost")
        event = AuditEvent.objects.filter(action="drift.settle").first()
        assert event is not None
        assert (event.tenant_id, event.actor, event.reason) == (tenant.id, "user:op", "the host was lost")
        there.usage = {"complete": False, "items": []}
        assert check_day(cell, day) is None
        there.failing = True
        with pytest.raises(CellAway):
            check_day(cell, day)
