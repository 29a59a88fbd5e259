"""Usage days are recomputed, cost follows, and the API shows both to their tenant."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from billing.ingest import ingest
from billing.models import DirtyDay, PriceBook, UnitPrice, UsageDay
from billing.rollup import recompute_dirty
from billing.tasks import recompute_dirty_days
from cells.contract import MeterRecord, Metric
from controlplane.tenants.models import Tenant
from controlplane.topology.models import Tenure
from tests.component.controlplane.factories import TenantFactory
from tests.component.controlplane.signed import operator, tenant_admin

pytestmark = pytest.mark.django_db
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _send(tenant: Tenant, at: datetime, quantity: int, **changes: Any) -> None:
    values: dict[str, Any] = {
        "tenant_id": tenant.public_id, "cell": tenant.placement.cell_id, "store": 0, "epoch": 1,
        "host": "h", "minute": f"{at:%Y-%m-%dT%H:%M:00Z}", "metric": Metric.JOB_RUNS,
        "region_policy": "HOME_ASYNC", "quantity": quantity,
    }  # fmt: skip
    assert ingest([MeterRecord(**{**values, **changes})]) == ["accepted"]


def _at_home(tenant: Tenant) -> Tenant:
    Tenure.objects.filter(tenant=tenant).update(since=TODAY - timedelta(days=30))
    return tenant


@pytest.fixture
def tenant(control: None) -> Tenant:
    return _at_home(TenantFactory())


def _days(tenant: Tenant) -> dict[date, tuple[int, int]]:
    return {d.day: (d.quantity, d.records) for d in UsageDay.objects.filter(tenant_id=tenant.id)}


def test_days_are_utc_days(tenant: Tenant) -> None:
    yesterday = TODAY - timedelta(days=1)
    _send(tenant, yesterday, 1)
    _send(tenant, TODAY - timedelta(minutes=1), 2)
    _send(tenant, TODAY, 4)
    assert recompute_dirty() == 2
    assert recompute_dirty() == 0
    assert _days(tenant) == {yesterday.date(): (3, 2), TODAY.date(): (4, 1)}


def test_a_late_record_reopens_its_day(tenant: Tenant) -> None:
    _send(tenant, TODAY, 1)
    recompute_dirty_days()
    _send(tenant, TODAY + timedelta(minutes=1), 2)
    assert DirtyDay.objects.count() == 1
    recompute_dirty_days()
    assert _days(tenant) == {TODAY.date(): (3, 2)}


def test_running_it_again_changes_nothing(tenant: Tenant) -> None:
    _send(tenant, TODAY, 1)
    recompute_dirty()
    before = list(UsageDay.objects.values())
    DirtyDay.objects.create(tenant_id=tenant.id, day=TODAY.date())
    assert recompute_dirty() == 1
    assert list(UsageDay.objects.values()) == before


def test_usage_and_cost_are_shown(tenant: Tenant) -> None:
    _at_home(other := TenantFactory())
    _send(tenant, TODAY, 2_000_000)
    _send(tenant, TODAY, 1_000_000, region_policy="STRICT")
    _send(other, TODAY, 7)
    recompute_dirty_days()
    client = tenant_admin(tenant, "usage:read")
    day = TODAY.date().isoformat()
    assert client.get(f"/v1/usage?from={day}&to={day}").json == {
        "from": day, "to": day, "by": "day", "complete_until": None, "next_cursor": None,
        "without_cells": [],
        "items": [
            {"day": day, "metric": "job_runs", "region_policy": policy, "quantity": n, "job_id": None}
            for policy, n in (("HOME_ASYNC", 2_000_000), ("STRICT", 1_000_000))
        ],
    }  # fmt: skip
    cost = client.get("/v1/cost-reports/daily").json
    assert cost["total"] == "14.30000000"
    (shown,) = cost["items"]
    assert (shown["day"], shown["price_book"], shown["total"]) == (day, "2026-01", "14.30000000")
    assert shown["lines"][0] == {
        "metric": "job_runs", "region_policy": "HOME_ASYNC", "quantity": 2_000_000,
        "unit_price": "4.4700000000", "per": 1_000_000, "cost": "8.94000000",
    }  # fmt: skip


def test_a_price_change_divides_days(tenant: Tenant) -> None:
    book = PriceBook.objects.create(name="dearer", effective_from=TODAY.date())
    UnitPrice.objects.create(book=book, metric="job_runs", per=1, amount="2")
    _send(tenant, TODAY - timedelta(minutes=1), 1_000_000)
    _send(tenant, TODAY, 3)
    recompute_dirty_days()
    items = tenant_admin(tenant).get("/v1/cost-reports/daily").json["items"]
    assert [(i["price_book"], i["total"]) for i in items] == [
        ("2026-01", "4.47000000"), ("dearer", "6.00000000"),
    ]  # fmt: skip


def test_a_tenants_report_is_its_own(tenant: Tenant) -> None:
    _at_home(other := TenantFactory())
    _send(other, TODAY, 7)
    recompute_dirty_days()
    assert tenant_admin(tenant).get("/v1/usage").json["items"] == []
    assert tenant_admin(tenant).get("/v1/cost-reports/daily").json["items"] == []


def test_operators_see_all_in_pages(tenant: Tenant) -> None:
    tenants = sorted([tenant, *(_at_home(TenantFactory()) for _ in range(2))], key=lambda t: t.id)
    for n, one in enumerate(tenants, 1):
        _send(one, TODAY, n * 1_000_000)
    recompute_dirty_days()
    first = operator().get("/v1/admin/cost-reports/daily?limit=2").json
    rest = operator().get(f"/v1/admin/cost-reports/daily?limit=2&cursor={first['next_cursor']}").json
    shown = [(i["tenant_id"], i["total"]) for i in first["items"] + rest["items"]]
    assert shown == [
        (t.public_id, total)
        for t, total in zip(tenants, ["4.47000000", "8.94000000", "13.41000000"], strict=True)
    ]
    assert rest["next_cursor"] is None
    one = operator().get(f"/v1/admin/cost-reports/daily?tenant_id={tenant.public_id}").json
    assert [i["tenant_id"] for i in one["items"]] == [tenant.public_id]


@pytest.mark.parametrize(
    "query",
    [
        "from=2026-13-01",
        "to=x",
        "from=2026-02-01&to=2026-01-01",
        "from=2020-01-01&to=2026-01-01",
        "to=9999-12-31",
    ],
)
def test_ranges_that_make_no_sense(tenant: Tenant, query: str) -> None:
    answer = tenant_admin(tenant).get(f"/v1/cost-reports/daily?{query}")
    assert (answer.status, answer.json["code"]) == (422, "INVALID")
    assert {e["parameter"] for e in answer.json["errors"]} <= {"from", "to"}
