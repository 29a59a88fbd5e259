"""Runs that wait, as the queue knows them."""

from __future__ import annotations

import uuid

from cells.domain import ids
from cells.domain.run import run_generation
from cells.ports import Member


def waiting_run(run_id: str, tenant: uuid.UUID, *, series: int = 1) -> Member:
    """A run that waits for its first attempt of a series, as the queue knows it."""
    key = ids.parse_run_id(run_id)
    assert key is not None
    return Member(
        tenant_id=tenant,
        parent_id=key.parent_id,
        scheduled_for=int(key.scheduled_for.timestamp()),
        ordinal=key.ordinal,
        is_run=True,
        generation=run_generation(series, 0),
        priority=2,
        due_ms=0,
        shard=ids.shard_of(key.parent_id),
    )
