"""What pages show of how things go (a part of `ports.Store`)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from cells.domain.herd import Alike
from cells.domain.ids import RunKey
from cells.domain.job import Priority


class InsightStore(Protocol):
    """Statistics, dead letters, what is to come."""

    async def stats(
        self, tenant_id: uuid.UUID, *, since: datetime, until: datetime
    ) -> Sequence[dict[str, object]]: ...

    async def target_stats(
        self, tenant_id: uuid.UUID, target_id: str, *, since: datetime, until: datetime
    ) -> Sequence[Mapping[str, Any]]:
        """A target's minutes with calls."""
        ...

    async def target_in_flight(self, tenant_id: uuid.UUID, target_id: str) -> int: ...
    async def job_stats(
        self, tenant_id: uuid.UUID, job_id: uuid.UUID, *, since: datetime, until: datetime
    ) -> Sequence[Mapping[str, Any]]:
        """A job's minutes, and last of all the item without a minute: all of them together."""
        ...

    async def herd(
        self,
        tenant_id: uuid.UUID,
        *,
        since: datetime,
        until: datetime,
        target_id: str | None,
        priority: Priority | None,
    ) -> tuple[Mapping[datetime, int], Sequence[Alike]]:
        """Jobs due before `until` by minute (overdue ones in the first), and the recurring ones among
        the soonest of them, those alike together."""
        ...

    async def list_dlq(
        self,
        tenant_id: uuid.UUID,
        *,
        target_id: str | None,
        fingerprint: str | None,
        after: tuple[datetime, RunKey] | None,
        limit: int,
        job_id: uuid.UUID | None = None,
        reason: str | None = None,
        failed_from: datetime | None = None,
        failed_until: datetime | None = None,
    ) -> Sequence[dict[str, object]]:
        """Open dead letters, newest first."""
        ...

    async def dlq_groups(self, tenant_id: uuid.UUID, *, limit: int) -> Sequence[dict[str, object]]: ...

    async def dead_letters_of(self, tenant_id: uuid.UUID, key: RunKey) -> Sequence[Mapping[str, Any]]:
        """The dead letters of one run, its latest series first."""
        ...
