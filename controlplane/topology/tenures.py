"""Who lived where when, as billing asks for it. Settings name these functions."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection
from datetime import datetime

from billing.watermarks import Store
from controlplane.topology.models import Cell, Tenure


def tenures_of(
    tenant_ids: Collection[uuid.UUID], since: datetime, until: datetime
) -> list[tuple[uuid.UUID, str, datetime, datetime | None]]:
    """(tenant, cell, from, until or None) of every stay that touches the given time."""
    rows = Tenure.objects.filter(tenant_id__in=tenant_ids, since__lt=until)
    return [
        (tenant, cell, begin, end)
        for tenant, cell, begin, end in rows.values_list("tenant_id", "cell_id", "since", "until")
        if end is None or end >= since
    ]


def stores_of(
    tenant_ids: Collection[uuid.UUID], since: datetime, until: datetime
) -> dict[uuid.UUID, set[Store]]:
    """The stores that may have counted for each tenant in [since, until)."""
    found: dict[uuid.UUID, set[Store]] = defaultdict(set)
    stays = Tenure.objects.filter(tenant_id__in=tenant_ids, since__lt=until).exclude(until__lte=since)
    for tenant, cell in stays.values_list("tenant_id", "cell_id").distinct():
        found[tenant].add((cell, 0))
    return found


def residents_of(since: datetime, until: datetime) -> list[uuid.UUID]:
    """Every tenant that lived anywhere in [since, until)."""
    stays = Tenure.objects.filter(since__lt=until).exclude(until__lte=since)
    return list(stays.order_by("tenant_id").values_list("tenant_id", flat=True).distinct())


def regions_of_cells() -> dict[str, str]:
    """The region of each cell, by its name."""
    return dict(Cell.objects.values_list("name", "region_id"))
