"""What pages show of how things go (a part of `ports.Store`)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from cells.domain.crowding import Began, Waited
from cells.domain.herd import Alike
from cells.domain.ids import RunKey
from cells.domain.job import Priority
from cells.domain.run import RunState
from cells.records import Member, RunRow
from cells.returns import ReturnStore

#: Runs that a page of a list looks at, at most, for those that fit its filters.
RUNS_LOOKED_AT = 20_000
#: Dead letters that are put into groups at most; the newest ones.
LETTERS_GROUPED = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFilter:
    """Which runs a list shows. All given conditions hold; ranges are [from, until)."""

    job_id: uuid.UUID | None = None
    states: Sequence[RunState] = ()  # one of these; empty: any
    target_id: str | None = None
    scheduled_from: datetime | None = None
    scheduled_until: datetime | None = None
    due_from: datetime | None = None
    due_until: datetime | None = None
    finished_from: datetime | None = None
    finished_until: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundRuns:
    """A page. `reached`: it looked as far as it may, there is more behind this run; None: the page is
    full, or there is nothing more."""

    runs: Sequence[RunRow]
    reached: RunKey | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantUse:
    """Counted to one beyond the bound that was asked for."""

    pending_timers: int
    running_runs: int
    strict_in_busiest_second: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A tenant's runs under way, push and pull."""

    runs: int
    told: bool  # that it is at its quota of them


@dataclass(frozen=True, kw_only=True, slots=True)
class Holdups:
    """What holds up a tenant's work: all of it, but for `low_delayed`."""

    paused: bool  # by its own people
    full_since: datetime | None  # at its quota of running runs
    low_delayed: bool  # its budget is spent, and LOW work waits


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeated:
    """A run that was lost after something may have been sent, and was or will be begun again."""

    tenant_id: uuid.UUID
    key: RunKey
    state: str
    lost: int  # attempts


@dataclass(frozen=True, kw_only=True, slots=True)
class Punctuality:
    """How all tenants' runs of a span went; how late they began, in milliseconds (None: none began)."""

    due: int
    began: int
    once: int  # began, and nothing of it was lost
    late_p50_ms: float | None
    late_p99_ms: float | None
    late_max_ms: float | None
    refused: int  # claims of an earlier owner, whose outcome counts no more
    repeated: int
    first_began_at: datetime | None  # under the present owner
    repeats: Sequence[Repeated]  # the first of them


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What a tenant began in some minutes."""

    tenant_id: uuid.UUID
    began: int
    busiest_minute: int  # runs of the busiest of them
    lag_max_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MetersLeft:
    """What a cell has counted and not yet told."""

    unsealed: bool  # something is journalled that no meter counts yet
    unshipped: int  # sealed meters that nobody has acknowledged, to 10,000


class InsightStore(ReturnStore, Protocol):
    """Runs, statistics, dead letters, what is to come."""

    async def list_runs(
        self,
        tenant_id: uuid.UUID,
        *,
        job_id: uuid.UUID | None = None,
        state: RunState | None = None,
        target_id: str | None = None,
        scheduled_from: datetime | None = None,
        scheduled_until: datetime | None = None,
        after: RunKey | None = None,
        limit: int = 50,
    ) -> Sequence[RunRow]:
        """Newest scheduled first. What `find_runs` finds at once."""
        ...

    async def last_runs(
        self, tenant_id: uuid.UUID, job_ids: Sequence[uuid.UUID], *, now: datetime
    ) -> Mapping[uuid.UUID, RunRow]:
        """The latest run of each job that has one."""
        ...

    async def find_runs(
        self,
        tenant_id: uuid.UUID,
        where: RunFilter,
        *,
        after: RunKey | None,
        limit: int,
        looks: int = RUNS_LOOKED_AT,
    ) -> FoundRuns:
        """Newest scheduled first, among the next `looks` runs that the job and the scheduled range
        leave: no filter makes a page dear."""
        ...

    async def stats(
        self, tenant_id: uuid.UUID, *, since: datetime, until: datetime
    ) -> Sequence[dict[str, object]]: ...

    async def target_stats(
        self, tenant_id: uuid.UUID, target_id: str, *, since: datetime, until: datetime
    ) -> Sequence[Mapping[str, Any]]:
        """A target's minutes with calls."""
        ...

    async def tenant_use(
        self, tenant_id: uuid.UUID, *, most_timers: int, most_runs: int, now: datetime
    ) -> TenantUse:
        """What a tenant uses of its quotas now."""
        ...

    async def running(self) -> Mapping[uuid.UUID, Running]:
        """Every tenant with runs under way, or that was told to be at its quota of them. One statement."""
        ...

    async def tell_running(
        self,
        *,
        full: Sequence[tuple[uuid.UUID, int, int]],
        room: Collection[uuid.UUID],
        host_id: int,
    ) -> None:
        """Tenants that have reached their quota of running runs (with it, and the runs): each is told once.
        Those in `room` have left it, and will be told the next time."""
        ...

    async def tell_delayed(self, tenants: Collection[uuid.UUID], *, host_id: int) -> None:
        """The LOW work of these tenants may have begun to wait for their budget, or ended to: those it is
        news to are told, once."""
        ...

    async def holdups(self, tenant_id: uuid.UUID) -> Holdups:
        """Why work of a tenant that this cell knows may not begin."""
        ...

    async def waits(
        self, tenant_id: uuid.UUID, *, since: datetime, until: datetime, most: int = ...
    ) -> tuple[Sequence[Waited], Mapping[datetime, Began]]:
        """What the `most` newest of a tenant's runs that were scheduled in that time waited for, by the
        minute they began in; and what began on the cell in those minutes."""
        ...

    async def load(self, *, since: datetime, until: datetime) -> Sequence[Load]:
        """What each tenant began, the busiest first."""
        ...

    async def meters_left(self) -> MetersLeft:
        """Whether all that the cell counted is sealed and acknowledged."""
        ...

    async def punctuality(self, *, since: datetime, until: datetime, claims: int) -> Punctuality:
        """Of runs due in [since, until). `claims`: the first number of a claim by the present owner."""
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

    async def wake_parked(self, *, host_id: int) -> Sequence[Member]:
        """Make runs due that wait for a place of a concurrency key although there is one: after a
        holder's death, or when a limit was raised. Looks at a bounded number of keys, going around."""
        ...

    async def dlq_groups(
        self, tenant_id: uuid.UUID, *, limit: int, looks: int = LETTERS_GROUPED
    ) -> tuple[Sequence[dict[str, object]], bool]:
        """The newest `looks` open dead letters by fingerprint, biggest group first: fingerprint, target_id,
        http_status, error (of the newest), count, first_failed_at, last_failed_at. And whether there are
        more letters than these, or more groups."""
        ...

    async def callbacks_of(self, tenant_id: uuid.UUID, key: RunKey) -> Sequence[RunRow]:
        """The callbacks about a run, those of its latest series first."""
        ...

    async def dead_letters_of(self, tenant_id: uuid.UUID, key: RunKey) -> Sequence[Mapping[str, Any]]:
        """The dead letters of one run, its latest series first."""
        ...
