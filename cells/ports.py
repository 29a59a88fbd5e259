"""What the engine needs from the outside: the store, the queue, secrets, the clock.

The engine (timers, execution, metering, api) speaks only to these protocols, in domain
transitions and in batches. `cells.store` implements `Store` on PostgreSQL, `cells.timers`
implements `Queue` on Valkey. Every write is conditional on ownership inside its own transaction:
the tenant ACTIVE here, the leases of cell and writing host not ended by the database's clock.

What they speak in (`cells.records`) is imported from here, too.

All instants are aware datetimes in UTC; durations are milliseconds unless a name says else.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from cells.bulk import BulkAction, BulkStore, OperationRow, OperationStep, SelectionRow
from cells.confirming import ConfirmStore
from cells.domain.ids import RunKey
from cells.domain.job import JobState
from cells.happenings import EVENTS_LOOKED_AT, EventRow, EventStore, FoundEvents
from cells.history import History, HistoryStore
from cells.insight import LETTERS_GROUPED, RUNS_LOOKED_AT, FoundRuns, InsightStore, RunFilter
from cells.limits import LimitBoard, LimitStore
from cells.metered import JobUsage, MeterStore, UsageSpan
from cells.open_workflows import OpenWorkflowStore
from cells.pulling import QueueId
from cells.records import (
    LAG_BOUNDS_MS,
    AllowanceExceeded,
    Applied,
    CellStatus,
    Claim,
    ClaimResult,
    Completion,
    Conflict,
    Created,
    Fence,
    HostLease,
    HostStatus,
    JobFilter,
    JobRow,
    JournalBody,
    KeyReused,
    LeaseLost,
    Member,
    NewJob,
    NotOwner,
    QuotaExceeded,
    Reaped,
    Retryable,
    RunRow,
    TenantConfig,
    TenantPlacement,
    Terminal,
    Vitals,
)
from cells.scheduling import SchedulingStore
from cells.target_records import SealedSecret, TargetRow, TrialOutcome

__all__ = [
    "EVENTS_LOOKED_AT",
    "LAG_BOUNDS_MS",
    "LETTERS_GROUPED",
    "RUNS_LOOKED_AT",
    "AllowanceExceeded",
    "Applied",
    "BulkAction",
    "BulkStore",
    "CellStatus",
    "Claim",
    "ClaimResult",
    "Clock",
    "Completion",
    "Conflict",
    "Created",
    "EventRow",
    "EventStore",
    "Fence",
    "FoundEvents",
    "FoundRuns",
    "History",
    "HistoryStore",
    "HostLease",
    "HostStatus",
    "InsightStore",
    "JobFilter",
    "JobRow",
    "JobUsage",
    "JournalBody",
    "KeyReused",
    "LeaseLost",
    "Member",
    "MeterStore",
    "NewJob",
    "NotOwner",
    "OperationRow",
    "OperationStep",
    "Queue",
    "QuotaExceeded",
    "Retryable",
    "RunFilter",
    "RunRow",
    "SealedSecret",
    "Secrets",
    "SelectionRow",
    "Store",
    "TargetRow",
    "TargetTrial",
    "TenantConfig",
    "TenantPlacement",
    "Terminal",
    "TrialOutcome",
    "UsageSpan",
    "Vitals",
]


class Store(
    BulkStore,
    ConfirmStore,
    EventStore,
    HistoryStore,
    InsightStore,
    LimitStore,
    MeterStore,
    SchedulingStore,
    OpenWorkflowStore,
    Protocol,
):
    """The truth. Raises `Retryable` when the engine is away, `NotOwner` when a fence fails."""

    # tenants and the cell's own ownership
    async def put_tenant(self, tenant: TenantPlacement) -> bool: ...
    async def get_tenant(self, tenant_id: uuid.UUID) -> TenantPlacement | None: ...
    async def list_tenants(self) -> Sequence[TenantPlacement]: ...
    async def is_erased(self, tenant_id: uuid.UUID) -> bool: ...

    # hosts and shards
    async def register_host(self, *, name: str, roles: Sequence[str], lease_ms: int) -> HostLease: ...
    async def renew_host(self, *, host_id: int, lease_ms: int) -> HostLease | None: ...
    async def retire_host(self, *, host_id: int) -> None: ...
    async def share_shards(self, *, host_id: int) -> frozenset[int]:
        """Take free or orphaned shards and give back those above this host's fair share among
        live dispatchers; the shards held afterwards. An idle call writes nothing."""

    # jobs
    async def create_jobs(
        self, fences: Sequence[Fence], jobs: Sequence[NewJob], *, host_id: int
    ) -> Sequence[Created | Exception]:
        """Write jobs of several tenants in one group commit. Per job: Created, or the error
        (`NotOwner`, `AllowanceExceeded`, `QuotaExceeded`, `Conflict` for a job key in use,
        `Terminal`) that concerns it alone. `fences[i]` is the
        ownership under which `jobs[i]` is written."""

    async def get_job(self, tenant_id: uuid.UUID, job_id: uuid.UUID) -> JobRow | None: ...
    async def list_jobs(
        self, tenant_id: uuid.UUID, where: JobFilter, *, after: tuple[datetime, uuid.UUID] | None, limit: int
    ) -> Sequence[JobRow]:
        """Newest first; `after` is (created_at, job_id) of the page before's last one."""

    async def get_job_by_key(self, tenant_id: uuid.UUID, key: str) -> JobRow | None: ...

    async def edit_job(
        self,
        fence: Fence,
        *,
        base_version: int,
        seen_next_run_at: datetime | None,
        job: NewJob,
        host_id: int,
        now: datetime | None = None,
        revive: bool = False,
    ) -> JobRow:
        """A new version of the definition, only if version and next occurrence are still what
        the editor saw. `Conflict` otherwise (with the version that holds now). Another schedule
        passes over what the old one had due by `now`: that is recorded as SKIPPED. `revive`: the
        job is CANCELLED or DONE, and is to run again."""

    async def set_job_state(
        self,
        fence: Fence,
        *,
        job_id: uuid.UUID,
        state: JobState,
        base_version: int | None,
        next_run_at: datetime | None,
        due_at: datetime | None,
        actor: str,
        host_id: int,
        now: datetime | None = None,
    ) -> JobRow:
        """Pause, resume, cancel. `Terminal` if there is no such job, `Conflict` if the state
        does not allow it, `AllowanceExceeded` if a strict job has no room where it would be due.
        Same state again is a no-op that returns the row. Cancelling a job also cancels its
        waiting runs (DUE, RETRY_WAIT). Occurrences that are passed over (while paused; on a
        cancel those due by `now`) are recorded as SKIPPED."""
        ...

    async def trigger_job(
        self,
        fence: Fence,
        *,
        job_id: uuid.UUID,
        now: datetime,
        payload: bytes | None,
        actor: str,
        traceparent: str | None,
        idempotency: tuple[str, str, bytes] | None,
        host_id: int,
    ) -> tuple[RunRow, Member | None, bool]:
        """A run by hand, DUE at once, with the next ordinal. `idempotency` is (route, key,
        fingerprint). Answers the run, its member, and whether it was replayed; `KeyReused` if
        the key came with another body."""
        ...

    # finding due work
    def due_members(
        self, *, shards: Sequence[int], since: datetime | None, until: datetime, page: int = 5000
    ) -> AsyncIterator[Sequence[Member]]:
        """All waiting members (jobs and runs) with since <= due < until, in pages. `since`
        None begins at the oldest: only for deep sweeps."""
        ...

    # the life of a run
    async def claim(self, members: Sequence[Member], *, host_id: int, host_name: str) -> ClaimResult:
        """One transaction: lock the due jobs and runs that still are what the members say
        (SKIP LOCKED), let `cells.domain.claiming` decide, write runs RUNNING (and SKIPPED),
        advance the jobs, append to the journal."""
        ...

    async def complete(self, completions: Sequence[Completion], *, host_id: int) -> Applied: ...
    async def release(self, claims: Sequence[Claim], *, host_id: int, after_ms: int = 0) -> Sequence[Member]:
        """Give claims back uncalled: RETRY_WAIT due now or `after_ms` later, the attempt not counted."""
        ...

    async def reap(self, *, host_id: int, limit: int = 1000, back_ms: int | None = None) -> Reaped:
        """Reclaim runs of dead hosts and runs whose lease ended 5 s ago (and within `back_ms`): RETRY_WAIT
        due now with a LOST attempt, or FAILED as poison after POISON_DEATHS. The members to add."""
        ...

    async def reap_orphans(
        self, *, host_id: int, held: Sequence[Claim], older_than_ms: int
    ) -> Sequence[Member]:
        """Reclaim runs of this very host that it does not know of (not among `held`), claimed longer
        ago than that: the answer to their claim was lost. Treated as in `reap`."""
        ...

    async def get_run(self, tenant_id: uuid.UUID, key: RunKey) -> RunRow | None: ...
    async def cancel_run(self, fence: Fence, *, key: RunKey, actor: str, host_id: int) -> RunRow:
        """CANCELLED at once when it waits; `cancel_requested` when it is RUNNING. `Terminal` if
        there is none, `Conflict` if it has ended."""

    # targets
    async def create_target(
        self, fence: Fence, target: TargetRow, secrets: Sequence[SealedSecret], *, host_id: int
    ) -> TargetRow: ...
    async def get_target(self, tenant_id: uuid.UUID, target_id: str) -> TargetRow | None: ...
    async def list_targets(
        self, tenant_id: uuid.UUID, *, state: str | None, after: str | None, limit: int
    ) -> Sequence[TargetRow]: ...
    async def update_target(
        self,
        fence: Fence,
        target: TargetRow,
        *,
        base_version: int,
        host_id: int,
        actor: str | None = None,
        credentials: Sequence[SealedSecret] | None = None,
    ) -> TargetRow:
        """Any field and the state (approve, disable), if the version is still `base_version`. With
        `credentials` they replace those there are, at once; none at all leaves none."""
        ...

    async def delete_target(
        self,
        fence: Fence,
        target_id: str,
        *,
        host_id: int,
        actor: str | None = None,
        base_version: int | None = None,
    ) -> None:
        """`Conflict` while ACTIVE or PAUSED jobs name it, or if it has another version."""

    async def rotate_secret(
        self,
        fence: Fence,
        target_id: str,
        secret: SealedSecret,
        *,
        overlap_seconds: int,
        host_id: int,
        actor: str | None = None,
        base_version: int | None = None,
    ) -> TargetRow:
        """Add a generation; the older ones of that purpose expire after the overlap."""
        ...

    async def target_secrets(self, tenant_id: uuid.UUID, target_id: str) -> Sequence[SealedSecret]:
        """Live generations, newest first."""
        ...

    async def call_targets(
        self, wanted: Sequence[tuple[uuid.UUID, str]]
    ) -> Sequence[tuple[TargetRow, Sequence[SealedSecret]]]:
        """Targets with their live secrets (newest first), for calling them; those that do not
        exist are left out. One round trip for all."""
        ...

    async def find_target_by_url(self, tenant_id: uuid.UUID, url: str) -> TargetRow | None:
        """The approved target with the longest base_url that the url lies under (whole path
        segments), or None."""
        ...

    # the cell
    async def status(self) -> CellStatus:
        """How the cell is; cheap at any size."""
        ...

    async def vitals(self) -> Vitals: ...

    # upkeep
    async def ensure_partitions(self, *, days_ahead: int) -> None: ...
    async def purge(self, *, page: int) -> Mapping[str, int]:
        """Forget at most `page` rows of each kind whose time is over; how many of each went."""
        ...

    async def drop_journal_day(self) -> bool:
        """Drop one day of the journal that nobody needs any more; whether there was one."""
        ...


class Queue(LimitBoard, Protocol):
    """The rebuildable cache: buckets, the release gate, fair queues. Losing it loses nothing."""

    async def add(self, members: Sequence[Member]) -> None:
        """Put members into their buckets if due inside the loaded horizon (NX: a second add
        never moves one). A member that is overdue goes to the current minute's bucket with its
        own due time as score. Wakes the dispatcher if it became the head."""

    async def remove(self, members: Sequence[Member]) -> None:
        """Courtesy removal after a cancel or edit."""

    async def pop(
        self, *, priority: int, limit: int, but_not: Collection[uuid.UUID] = ()
    ) -> Sequence[Member]:
        """Up to `limit` released members, fair between tenants. Tenants in `but_not` (few: those
        whose claims already wait in the popper for slow targets) keep their place and are passed
        over."""

    async def refund(self, members: Sequence[Member]) -> None:
        """These did nothing: their tenants are not charged for them."""

    async def depths(self) -> tuple[list[int], int]:
        """Members queued per class, and how many tenants and classes are past their quota. Cheap."""

    async def announce(self, queues: Sequence[QueueId]) -> None:
        """Task queues that got tasks: whoever polls them is woken, in every process."""

    def on_tasks(self, tell: Callable[[Sequence[QueueId] | None], None]) -> None:
        """`tell(queues)` when tasks were announced; None after an interruption: look everywhere."""

    async def wait_ready(self, *, timeout: float) -> None:
        """Return when something was released since the last call, or after `timeout` seconds."""


class TargetTrial(Protocol):
    """Calls a target by hand, as a run would call it."""

    async def call(
        self,
        row: TargetRow,
        secrets: Sequence[SealedSecret],
        *,
        test_id: str,
        method: str,
        path: str,
        payload: bytes | None,
        timeout_seconds: int,
    ) -> TrialOutcome:
        """One call, in bounded time; nothing of the network is raised."""


class Clock(Protocol):
    """Wall and monotonic time of this machine."""

    def now_ms(self) -> int: ...
    def monotonic(self) -> float: ...


class Secrets(Protocol):
    """Seals what must not lie in the clear. `context` binds a secret to its place."""

    def seal(self, plain: bytes, *, context: bytes) -> bytes: ...
    def open(self, sealed: bytes, *, context: bytes) -> bytes: ...
