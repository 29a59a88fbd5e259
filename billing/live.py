"""What is used right now, as far as the newest sealed minutes say."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from billing.sql import named_sql
from cells.contract import Metric

_SQL = named_sql("live")


def latest_minute(tenant_id: uuid.UUID, metric: Metric) -> int | None:
    """The quantity of a tenant's newest sealed minute of a metric within the last hour, if any."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["latest_minute"], {"tenant_id": tenant_id, "metric": metric.value})
        row = cursor.fetchone()
    return None if row is None else int(row[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Hour:
    """A metric's newest sealed minutes, up to an hour of them."""

    total: int
    minutes: int
    newest: int  # the last minute's quantity


def latest_hour(
    tenants: Sequence[uuid.UUID], metrics: Sequence[Metric]
) -> dict[tuple[uuid.UUID, Metric], Hour]:
    """What some tenants used over the last hour; those that used nothing are left out."""
    with connection.cursor() as cursor:
        cursor.execute(
            _SQL["latest_hour"], {"tenants": list(tenants), "metrics": [metric.value for metric in metrics]}
        )
        rows = cursor.fetchall()
    return {
        (tenant_id, Metric(metric)): Hour(total=int(total), minutes=minutes, newest=int(newest))
        for tenant_id, metric, total, minutes, newest in rows
    }


def received_by_cell() -> dict[str, datetime]:
    """When each cell's meters came last, within a day."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["received_by_cell"])
        return dict(cursor.fetchall())
