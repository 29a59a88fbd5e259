"""What a tenant used, by day: the reading side of the rollups. Nothing here writes or reads a clock."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import date

from django.db import connection

from billing.sql import named_sql

_SQL = named_sql("usage")


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """A day's sum of a metric, under a region policy, on a cell (`router` for requests)."""

    day: date
    metric: str
    region_policy: str
    cell: str
    quantity: int


def usage_of(tenant_id: uuid.UUID, since: date, until: date) -> list[Usage]:
    """A tenant's usage over the half-open range [since, until), in order of day, metric, policy, cell.

    Of a closed month it is what the month was closed with, for ever: what was learned later is in
    `periods.adjustments` of the month that bills it.
    """
    with connection.cursor() as cursor:
        cursor.execute(_SQL["usage_of"], {"tenant_id": tenant_id, "since": since, "until": until})
        return [
            Usage(day=day, metric=metric, region_policy=policy, cell=cell, quantity=quantity)
            for day, metric, policy, cell, quantity in cursor.fetchall()
        ]
