"""Closed months for tests: usage as rollups leave it, and the period that closes over it."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from django.db.models.functions import Now

from billing.models import BillingPeriod, UsageAdjustment, UsageDay

Row = tuple[date, str, str, int]  # day, metric, region policy, quantity


def used(tenant: Any, *rows: Row, cell: str = "cell-1") -> None:
    """Usage days of an open month."""
    UsageDay.objects.bulk_create(
        UsageDay(
            tenant_id=tenant.id, day=day, metric=metric, region_policy=policy, cell=cell,
            quantity=quantity, records=1,
        )
        for day, metric, policy, quantity in rows
    )  # fmt: skip


def close(tenant: Any, month: date, *, at: datetime | None = None) -> None:
    """Closes a month; its usage days stay as they are."""
    BillingPeriod.objects.update_or_create(
        tenant_id=tenant.id, month=month, defaults={"state": "CLOSED", "closed_at": at or Now()}
    )


def late(tenant: Any, into: date, *rows: Row, cell: str = "cell-1") -> None:
    """Usage of closed months that another month bills."""
    UsageAdjustment.objects.bulk_create(
        UsageAdjustment(
            tenant_id=tenant.id, into_month=into, day=day, metric=metric, region_policy=policy, cell=cell,
            quantity=quantity,
        )
        for day, metric, policy, quantity in rows
    )  # fmt: skip
