"""What nobody tells of, and the control plane finds by looking."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.notifications.models import CellSeen
from controlplane.notifications.telling import watched
from controlplane.tenants.models import ApiKey
from controlplane.topology.models import Cell, CellState

#: How long before its end a key's people are told, and how long a cell may be silent before operators are.
EXPIRING, SILENT = timedelta(days=7), timedelta(seconds=60)


def watch_keys() -> int:
    """Keys that end within a week and have no successor: each is told of once."""
    now = timezone.now()
    ending = ApiKey.objects.filter(
        Q(expires_at__gt=now, expires_at__lte=now + EXPIRING), revoked_at=None, successor=None
    ).exclude(created_at__gt=now - timedelta(days=1))
    return sum(
        watched(
            kind="api_key.expiring",
            tenant_id=key.tenant_id,
            subject=key.id,
            key=f"{key.id}:{key.expires_at:%Y%m%d%H%M%S}",
            data={
                "name": key.name,
                "expires_at": key.expires_at.isoformat() if key.expires_at else None,
                "last_used_at": key.last_used_at.isoformat() if key.last_used_at else None,
            },
        )
        > 0
        for key in ending.iterator(chunk_size=1000)
    )


def watch_cells() -> int:
    """Cells that have not answered for a minute, and those that do again."""
    now, told = timezone.now(), 0
    for cell in Cell.objects.exclude(state=CellState.RETIRED):
        silent = bool(cell.status_error) and (cell.status_at is None or cell.status_at < now - SILENT)
        with transaction.atomic():
            seen, _ = CellSeen.objects.get_or_create(cell=cell.name)
            if silent == (seen.silent_since is not None):
                continue
            changed = CellSeen.objects.filter(pk=cell.name, silent_since=seen.silent_since).update(
                silent_since=now if silent else None
            )
            if not changed:
                continue
            since = now if silent else seen.silent_since
            told += watched(
                kind="cell.silent" if silent else "cell.answering",
                tenant_id=None,
                subject=cell.name,
                key=f"{cell.name}:{since:%Y%m%d%H%M%S%f}",
                data={"cell": cell.name, **({"error": cell.status_error} if silent else {})},
            )
    return told
