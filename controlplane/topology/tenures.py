"""Who lived where when, as billing asks for it. Billing's settings name `tenures_of`."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import datetime

from controlplane.topology.models import Tenure


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
