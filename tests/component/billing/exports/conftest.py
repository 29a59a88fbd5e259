"""Exports into a folder of the test's own."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from billing.exports.machine import Dataset, Format
from billing.exports.models import Export
from billing.exports.requesting import request_export
from billing.hooks import BILLING
from billing.models import UsageHour
from tests.component.billing.months import close, used
from tests.component.controlplane.conftest import control, ownership, ownership_url
from tests.component.controlplane.factories import MembershipFactory, TenantFactory

__all__ = ["control", "ownership", "ownership_url"]

OCTOBER, NOVEMBER = date(2026, 10, 1), date(2026, 11, 1)
TODAY = date(2026, 12, 3)


@pytest.fixture
def folder(tmp_path: Path, settings: Any) -> Path:
    """Where exports go."""
    place = tmp_path / "exports"
    settings.BILLING_EXPORTS = {**settings.BILLING_EXPORTS, "url": place.as_uri()}
    return place


@pytest.fixture
def tenant(control: None) -> Any:
    """A tenant with three hours of runs in October, on two cells, and the month closed."""
    return used_in_october()


def used_in_october(*, closed: bool = True) -> Any:
    """See `tenant`."""
    tenant = TenantFactory()
    MembershipFactory(tenant=tenant, role="owner")
    start = datetime(2026, 10, 5, 7, tzinfo=UTC)
    hours = [(start, "cell-1", 90_000), (start + timedelta(hours=1), "cell-1", 2_000_000)]
    UsageHour.objects.bulk_create(
        UsageHour(
            tenant_id=tenant.id, hour=hour, metric="job_runs", region_policy="HOME_ASYNC", cell=cell,
            quantity=quantity, records=60,
        )
        for hour, cell, quantity in [*hours, (start, "cell-2", 1_010_000)]
    )  # fmt: skip
    used(tenant, (start.date(), "job_runs", "HOME_ASYNC", 2_090_000))
    used(tenant, (start.date(), "job_runs", "HOME_ASYNC", 1_010_000), cell="cell-2")
    if closed:
        close(tenant, OCTOBER)
    return tenant


def asked(tenant: Any, dataset: Dataset = Dataset.USAGE, **more: Any) -> Export:
    """An export of a tenant's October (None: of everybody's, for operators)."""
    tenant_id = None if tenant is None else tenant.id
    wanted: dict[str, Any] = {
        "file_format": Format.CSV, "since": OCTOBER, "until": NOVEMBER, "today": TODAY, "reason": "a test",
    }  # fmt: skip
    return request_export(
        tenant_id=tenant_id, about_tenant_id=tenant_id, dataset=dataset, actor=BILLING, **(wanted | more)
    )


def files_of(folder: Path, export: Export) -> dict[str, bytes]:
    """What lies in an export's folder, by name."""
    from billing.exports.places import folder_of

    return {path.name: path.read_bytes() for path in (folder / folder_of(export)).glob("*")}
