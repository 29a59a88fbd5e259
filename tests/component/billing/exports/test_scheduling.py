"""Scheduled exports: each period once, when it is over."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from billing.exports import running
from billing.exports.machine import Cadence, Dataset, Format
from billing.exports.models import Export, ExportSchedule
from billing.exports.requesting import schedule_due, set_schedule
from billing.hooks import BILLING
from billing.invoices import drafting, settling
from billing.models import BillingPeriod
from tests.component.billing.exports.conftest import OCTOBER, used_in_october
from tests.component.controlplane.factories import TenantFactory

pytestmark = pytest.mark.django_db
_BY: dict[str, Any] = {"actor": BILLING, "reason": "a test"}


def scheduled(tenant: Any, dataset: Dataset, cadence: Cadence, since: datetime) -> None:
    row = set_schedule(
        tenant_id=None if tenant is None else tenant.id, dataset=dataset, file_format=Format.CSV,
        cadence=cadence, **_BY,
    )  # fmt: skip
    ExportSchedule.objects.filter(pk=row.pk).update(created_at=since)


def at(month: int, day: int, hour: int = 7) -> datetime:
    return datetime(2026, month, day, hour, tzinfo=UTC)


def days() -> list[tuple[date, date]]:
    return list(Export.objects.order_by("id").values_list("since", "until"))


def test_a_day_is_exported_once_after_six_in_the_morning(control: None, folder: Path) -> None:
    scheduled(TenantFactory(), Dataset.USAGE, Cadence.DAILY, at(10, 5))
    assert [schedule_due(at(10, 5, 23)), schedule_due(at(10, 6, 5)), days()] == [0, 0, []]
    assert [schedule_due(at(10, 6, 6)), schedule_due(at(10, 6, 6)), schedule_due(at(10, 7, 5))] == [1, 0, 0]
    assert schedule_due(at(10, 7, 6)) == 1
    assert days() == [(date(2026, 10, 5), date(2026, 10, 6)), (date(2026, 10, 6), date(2026, 10, 7))]
    assert set(Export.objects.values_list("cadence", "requested_by")) == {("DAILY", "service:billing")}


def test_a_month_waits_until_it_is_closed_and_invoiced(control: None, folder: Path) -> None:
    tenant = used_in_october(closed=False)
    for dataset in (Dataset.USAGE, Dataset.FOCUS):
        scheduled(tenant, dataset, Cadence.MONTHLY, at(10, 1))
    assert schedule_due(at(11, 2)) == 0
    BillingPeriod.objects.create(tenant_id=tenant.id, month=OCTOBER, state="CLOSED", closed_at=at(11, 2, 6))
    assert schedule_due(at(11, 2)) == 1, "usage; its invoice may not be drafted yet"
    draft = drafting.open_draft(tenant_id=tenant.id, month=OCTOBER, **_BY)
    assert draft is not None
    assert schedule_due(at(11, 2, 12)) == 0, "a draft lies open"
    settling.finalize(invoice_id=draft.id, now=at(11, 4), **_BY)
    assert [schedule_due(at(11, 4)), schedule_due(at(11, 5))] == [1, 0]
    assert set(days()) == {(OCTOBER, date(2026, 11, 1))}


def test_the_month_so_far_is_exported_each_day_anew(control: None, folder: Path) -> None:
    scheduled(used_in_october(), Dataset.FOCUS, Cadence.DAILY, at(10, 1))
    now = datetime.now(UTC).replace(hour=12)
    assert [schedule_due(now), schedule_due(now)] == [1, 0]
    export = Export.objects.get()
    assert export.since.day == export.until.day == 1
    assert running.run(export.id)
    assert schedule_due(now) == 0, "today's is there"
    Export.objects.update(created_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert [schedule_due(now), schedule_due(now)] == [1, 0]


def test_operators_wait_for_everybody(control: None, folder: Path) -> None:
    scheduled(None, Dataset.USAGE, Cadence.MONTHLY, at(10, 1))
    used_in_october()
    BillingPeriod.objects.create(tenant_id=TenantFactory().id, month=OCTOBER, state="OPEN")
    assert schedule_due(at(11, 2)) == 0
    BillingPeriod.objects.filter(state="OPEN").update(state="CLOSED", closed_at=at(11, 3))
    assert schedule_due(at(11, 3)) == 1
    assert Export.objects.get().about_tenant_id is None
