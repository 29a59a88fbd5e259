"""What is used right now, as far as the newest sealed minutes say."""

from __future__ import annotations

import uuid

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
