"""Meters and usage: what the store gives them (a part of `ports`)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Protocol

from cells.contract import MeterRecord, SealedUntil


@dataclass(frozen=True, kw_only=True, slots=True)
class JobUsage:
    """How many runs of a job ended in some days."""

    job_id: uuid.UUID
    region_policy: str
    runs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageSpan:
    """Since and until when runs are counted by job: complete for days in between."""

    since: datetime
    until: datetime


class MeterStore(Protocol):
    """The journal's readers: statistics, meters, usage."""

    async def fold_stats(self) -> int:
        """Fold committed journal rows past the cursor into run_stats; how many rows."""
        ...

    async def gauge_minute(self, *, host_id: int) -> bool:
        """Count the levels of the present minute (waiting timers, stored bytes), unless somebody has;
        whether it was this call."""
        ...

    async def count_stored(self) -> bool:
        """Add up what tenants store, if it is time; whether it was."""
        ...

    async def seal_minutes(self) -> int:
        """Write meter_minutes of each minute that no open transaction can still change."""
        ...

    async def unshipped_meters(self, *, cell: str, limit: int) -> Sequence[MeterRecord]: ...
    async def mark_shipped(self, records: Sequence[MeterRecord], *, refused: str | None = None) -> None: ...
    async def meters_sealed_until(self) -> SealedUntil:
        """The minute before which every meter is sealed, and acknowledged or refused."""
        ...

    async def fold_job_usage(self, *, step: timedelta = ...) -> bool:
        """Count the ended runs of further sealed minutes by job, in whole steps; whether there were any.
        Call it again while it says so."""
        ...

    async def usage_span(self) -> UsageSpan: ...
    async def runs_of_day(self, day: date) -> Sequence[tuple[uuid.UUID, str, int]]:
        """Runs that ended on a UTC day: (tenant, region policy, how many)."""
        ...

    async def usage_by_job(
        self, tenant_id: uuid.UUID, *, since: date, until: date, after: uuid.UUID | None, limit: int
    ) -> Sequence[JobUsage]:
        """A tenant's runs of the days in [since, until), by job, in order of their ids behind `after`."""
        ...
