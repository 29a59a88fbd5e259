"""How targets and jobs have been doing."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from cells.domain.ids import RunKey
from cells.store.base import StoreBase
from cells.store.database import fetch_all, fetch_row

#: Runs that a job's statistics are made of at most; the newest ones.
RUNS_LIMIT = 100_000

_TARGET = ("minute", "succeeded", "failed", "retried", "ms_sum", "ms_max", "ms_le")
_JOB = (
    *("minute", "started", "succeeded", "failed", "retried", "cancelled", "skipped"),
    *("lag_p50_ms", "lag_p99_ms", "lag_max_ms", "lag_mean_ms", "call_p50_ms", "call_p95_ms", "call_max_ms"),
)
_LETTER = (
    *(
        "series",
        "fingerprint",
        "reason",
        "target_id",
        "http_status",
        "error",
        "attempt",
        "failed_at",
        "state",
    ),
)


class Insight(StoreBase):
    """Statistics of one target or one job."""

    async def target_stats(
        self, tenant_id: uuid.UUID, target_id: str, *, since: datetime, until: datetime
    ) -> Sequence[Mapping[str, Any]]:
        """Minutes with calls: minute, succeeded, failed, retried, ms_sum, ms_max, ms_le."""
        parameters = {"tenant": tenant_id, "target": target_id, "since": since, "until": until}
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "target_stats_read", parameters)
            return [dict(zip(_TARGET, row, strict=True)) for row in rows]

    async def target_in_flight(self, tenant_id: uuid.UUID, target_id: str) -> int:
        """Calls to a target that are under way now; at most 10,000 are counted."""
        async with self._database.transaction() as connection:
            row = await fetch_row(connection, "target_in_flight", {"tenant": tenant_id, "target": target_id})
            return int(row[0])

    async def job_stats(
        self, tenant_id: uuid.UUID, job_id: uuid.UUID, *, since: datetime, until: datetime
    ) -> Sequence[Mapping[str, Any]]:
        """A job's occurrences by the minute they were scheduled for; the last item, without a minute,
        is all of them together."""
        parameters = {
            "tenant": tenant_id, "job": job_id, "since": since, "until": until, "most": RUNS_LIMIT,
        }  # fmt: skip
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "job_stats_read", parameters)
            return [dict(zip(_JOB, row, strict=True)) for row in rows]

    async def dead_letters_of(self, tenant_id: uuid.UUID, key: RunKey) -> Sequence[Mapping[str, Any]]:
        """The dead letters of one run, its latest series first; like `list_dlq`, with `state`."""
        parameters = {
            "tenant": tenant_id, "parent": key.parent_id, "at": key.scheduled_for, "ordinal": key.ordinal,
        }  # fmt: skip
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "dlq_get", parameters)
            return [{"key": key, **dict(zip(_LETTER, row[3:], strict=True))} for row in rows]
