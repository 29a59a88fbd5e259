"""Calendars, backfills and moved timers: what they are, and what the store does for them (a part of
`ports.Store`)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Protocol

import msgspec

from cells.domain.calendars import Calendar, make_calendar
from cells.domain.job import JobDefinition
from cells.records import Fence, JobRow, Member


class CalendarContent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One version of a calendar as it is stored and shown."""

    dates: list[tuple[str, str | None]]  # ISO date and what it is called, in order
    weekdays: list[int] = []  # 0 is Sunday


@dataclass(frozen=True, kw_only=True, slots=True)
class CalendarRow:
    """A calendar with the version that holds now."""

    tenant_id: uuid.UUID
    calendar_id: str
    version: int
    name: str | None
    content: CalendarContent
    created_by: str
    created_at: datetime
    updated_at: datetime
    pending: bool  # jobs still follow an older version
    moved: int  # jobs whose next occurrence changed with this version

    @property
    def calendar(self) -> Calendar:
        """What it excludes."""
        return calendar_of(self.content)


def calendar_of(content: CalendarContent) -> Calendar:
    """What a stored version excludes."""
    return make_calendar([date.fromisoformat(day) for day, _ in content.dates], content.weekdays)


@dataclass(frozen=True, kw_only=True, slots=True)
class BackfillRow:
    """A stretch of a job's past being run."""

    tenant_id: uuid.UUID
    backfill_id: uuid.UUID
    job_id: uuid.UUID
    from_at: datetime
    until_at: datetime
    cursor_at: datetime
    state: str  # RUNNING | STOPPED | DONE
    total: int
    started: int
    replaced: int
    present: int
    reason: str | None
    max_per_second: int
    created_by: str
    created_at: datetime
    finished_at: datetime | None
    stopped_by: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Retimed:
    """Timers that a transaction moved."""

    removed: Sequence[Member]
    added: Sequence[Member]
    more: bool = True  # there may be more to do at once


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengthened:
    """What lengthening the windows of some minutes did."""

    jobs: int
    tenants: int
    removed: Sequence[Member]
    added: Sequence[Member]
    after: tuple[uuid.UUID, datetime, uuid.UUID] | None  # where to go on; None: all are done


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingJob:
    """A job that has a next occurrence, as a look over all of them finds it."""

    tenant_id: uuid.UUID
    job_id: uuid.UUID
    next_run_at: datetime
    definition: JobDefinition


@dataclass(frozen=True, kw_only=True, slots=True)
class BehindTenant:
    """A tenant at home here whose stored instants follow other time-zone data than was asked about."""

    tenant_id: uuid.UUID
    version: str | None  # None: nobody has said, it is new here
    newer: bool
    sealed: bool  # its timers can be moved only once it is known where it lives


class SchedulingStore(Protocol):
    """Calendars, backfills, moved timers."""

    async def put_calendar(
        self,
        fence: Fence,
        *,
        calendar_id: str,
        name: str | None,
        content: CalendarContent,
        base_version: int | None,
        actor: str,
        host_id: int,
    ) -> tuple[CalendarRow, bool]:
        """Create a calendar or make a new version of it; whether it was created. `Conflict` where
        `base_version` (0: there must be none yet) is not what holds. The jobs that refer to it follow
        in `step_calendar`. The same content makes no version."""
        ...

    async def get_calendar(self, tenant_id: uuid.UUID, calendar_id: str) -> CalendarRow | None: ...
    async def list_calendars(
        self, tenant_id: uuid.UUID, *, after: str | None, limit: int
    ) -> Sequence[CalendarRow]: ...
    async def delete_calendar(
        self, fence: Fence, calendar_id: str, *, base_version: int | None, actor: str, host_id: int
    ) -> None:
        """`Terminal` if there is none, `Conflict` while ACTIVE or PAUSED jobs refer to it."""
        ...

    async def step_calendar(self, *, host_id: int, now: datetime) -> Retimed | None:
        """Let a page of jobs follow a calendar that has changed, of any tenant; None if there is
        nothing to do. One transaction: the jobs, and how far they are."""
        ...

    async def backfill_facts(
        self, tenant_id: uuid.UUID, job_id: uuid.UUID, from_at: datetime, until_at: datetime
    ) -> tuple[int, int]:
        """How many occurrences of a stretch have a run, and how many rows of SKIPPED ones lie in it."""
        ...

    async def start_backfill(
        self,
        fence: Fence,
        *,
        backfill_id: uuid.UUID,
        job: JobRow,
        from_at: datetime,
        until_at: datetime,
        total: int,
        max_per_second: int,
        actor: str,
        host_id: int,
        idempotency: tuple[str, str, bytes] | None = None,
    ) -> BackfillRow:
        """Begin one, unless it was begun under this id. `idempotency`: (route, key, fingerprint of the body);
        `KeyReused` if another body came under it."""
        ...

    async def get_backfill(self, tenant_id: uuid.UUID, backfill_id: uuid.UUID) -> BackfillRow | None: ...
    async def list_backfills(
        self,
        tenant_id: uuid.UUID,
        *,
        job_id: uuid.UUID | None,
        after: tuple[datetime, uuid.UUID] | None,
        limit: int,
    ) -> Sequence[BackfillRow]: ...
    async def stop_backfill(
        self, fence: Fence, *, backfill_id: uuid.UUID, actor: str, host_id: int
    ) -> BackfillRow:
        """RUNNING to STOPPED. Stopping it again changes nothing; `Conflict` when it is DONE."""
        ...

    async def step_backfill(self, *, host_id: int, now: datetime, kept: timedelta) -> Retimed | None:
        """Start the next few runs of one backfill whose turn has come, of any tenant; None if there
        is none. One that has come no further than what is not `kept` here any more ends: what ran
        then could run a second time."""
        ...

    async def tenants_behind(self, version: str) -> Sequence[BehindTenant]:
        """Tenants at home here whose stored instants do not follow this time-zone data. None: the cell is
        said to follow it."""
        ...

    async def retime_page(
        self,
        tenant_id: uuid.UUID,
        *,
        after: uuid.UUID | None,
        limit: int,
        old_version: str | None,
        host_id: int,
        now: datetime,
    ) -> tuple[Retimed, uuid.UUID | None] | None:
        """Compute the next instants of a page of a tenant's jobs anew, under this process's time-zone data,
        and move those that changed. Where to go on; None at the end, and with the last page the tenant is
        said to follow this data. None at all where it is sealed or away: begin anew when it is back."""
        ...

    async def waiting_jobs(
        self, *, after: tuple[uuid.UUID, uuid.UUID] | None, limit: int
    ) -> tuple[Sequence[WaitingJob], tuple[uuid.UUID, uuid.UUID] | None]:
        """A page of all waiting jobs, of any tenant, and where to go on; None at the end."""
        ...

    async def lengthen_windows(
        self,
        *,
        since: datetime,
        until: datetime,
        extra_ms: int,
        tenant_id: uuid.UUID | None,
        after: tuple[uuid.UUID, datetime, uuid.UUID] | None,
        actor: str,
        host_id: int,
        operation: str | None = None,
    ) -> Lengthened:
        """Move a page of LOW timers due in [since, until) later, each by its own share of
        `extra_ms`; never earlier, and never to the next occurrence. Pages go from the latest timer to
        the earliest: what moved lies behind, so none moves twice however many pages there are. A page of
        an `operation` that was done is not done again: what it did is told."""
        ...
