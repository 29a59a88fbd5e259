"""Usage by what is asked for, in pages that hold together."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from billing.models import UsageDay
from controlplane.events.models import AuditEvent
from controlplane.tenants.models import Tenant
from controlplane.topology.models import Cell, CellState
from tests.component.controlplane.factories import TenantFactory
from tests.component.controlplane.signed import SignedClient, operator, tenant_admin

pytestmark = pytest.mark.django_db
TODAY = datetime.now(UTC).date()
DAYS = [TODAY - timedelta(days=n) for n in (2, 1, 0)]


@pytest.fixture
def tenant(control: None) -> Tenant:
    tenant: Tenant = TenantFactory()
    for n, day in enumerate(DAYS):
        for metric in ("egress_bytes", "job_runs"):
            for policy in ("HOME_ASYNC", "STRICT"):
                UsageDay.objects.create(
                    tenant_id=tenant.id, day=day, metric=metric, region_policy=policy, cell="c", records=1,
                    quantity=10 ** n * (1 if metric == "job_runs" else 7),
                )  # fmt: skip
    return tenant


def _read(client: SignedClient, **asked: object) -> dict[str, Any]:
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    found: dict[str, Any] = client.get(f"/v1/usage?{query}").json
    return found


def _all(client: SignedClient, **asked: object) -> list[dict[str, Any]]:
    items, page = [], _read(client, **asked)
    while True:
        assert len(page["items"]) <= int(str(asked.get("limit", 1000)))
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        page = _read(client, **asked, cursor=page["next_cursor"])


@pytest.mark.parametrize("by", ["day", "metric", "region_policy"])
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 1000])
def test_pages_hold_together(tenant: Tenant, by: str, limit: int) -> None:
    client = tenant_admin(tenant, "usage:read")
    assert _all(client, by=by, limit=limit) == _read(client, by=by)["items"]


def test_sums(tenant: Tenant) -> None:
    client = tenant_admin(tenant, "usage:read")
    plain = {"day": None, "job_id": None}
    assert _read(client, by="metric")["items"] == [
        {**plain, "metric": "egress_bytes", "region_policy": None, "quantity": 2 * 777},
        {**plain, "metric": "job_runs", "region_policy": None, "quantity": 2 * 111},
    ]
    assert _read(client, by="region_policy")["items"][-1] == {
        **plain, "metric": "job_runs", "region_policy": "STRICT", "quantity": 111,
    }  # fmt: skip
    assert len(_read(client, by="day")["items"]) == 12


@pytest.mark.parametrize(
    "query",
    [
        "by=hour",
        "limit=0",
        "limit=x",
        "limit=5001",
        "cursor=%00",
        "cursor=abc",
        "colour=red",
        "from=2026-02-30",
    ],
)
def test_what_cannot_be_asked(tenant: Tenant, query: str) -> None:
    answer = tenant_admin(tenant, "usage:read").get(f"/v1/usage?{query}")
    assert answer.status == 422
    assert answer.json["type"].startswith("urn:clockhouse:problem:")


def test_a_cursor_belongs_to_its_list(tenant: Tenant) -> None:
    client = tenant_admin(tenant, "usage:read")
    cursor = _read(client, by="day", limit=1)["next_cursor"]
    assert client.get(f"/v1/usage?by=metric&limit=1&cursor={cursor}").status == 422
    assert client.get(f"/v1/usage?by=day&limit=1&to={DAYS[0]}&cursor={cursor}").status == 422


def test_a_cursor_with_a_nul_is_no_cursor(tenant: Tenant) -> None:
    since = TODAY - timedelta(days=30)
    place = ["day", since.isoformat(), (TODAY + timedelta(days=1)).isoformat(), TODAY.isoformat(), "a\0", ""]
    cursor = base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")
    assert tenant_admin(tenant, "usage:read").get(f"/v1/usage?cursor={cursor}").status == 422


def test_a_cell_that_is_gone_is_named_and_not_asked(tenant: Tenant) -> None:
    Cell.objects.filter(pk=tenant.placement.cell_id).update(state=CellState.RETIRED)
    found = _read(tenant_admin(tenant, "usage:read"), by="job")
    assert (found["without_cells"], found["items"]) == ([tenant.placement.cell_id], [])


def test_what_operators_read_is_in_the_tenants_audit_log(tenant: Tenant) -> None:
    operator(tenant).get("/v1/usage")
    operator().get(f"/v1/admin/cost-reports/daily?tenant_id={tenant.public_id}")
    (read,) = AuditEvent.objects.filter(tenant_id=tenant.id, action="operator.read")
    assert read.after is not None
    assert read.after["first"] in ("/v1/usage", "/v1/admin/cost-reports/daily")


def test_a_cell_that_is_away_is_said(tenant: Tenant) -> None:
    answer = tenant_admin(tenant, "usage:read").get("/v1/usage?by=job")
    assert answer.status == 503
    assert f"{tenant.placement.cell_id} cannot be asked now" in answer.json["detail"]
