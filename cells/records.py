"""What passes between the parts of a cell: the engine's errors, and values without behaviour.
All instants are aware datetimes in UTC; durations are milliseconds unless a name says else.
Import them from `cells.ports`, where the protocols are that speak in them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from cells.domain.callbacks import Notify
from cells.domain.claiming import Skip
from cells.domain.ids import RunKey, run_id
from cells.domain.job import JobDefinition, JobState
from cells.domain.run import Attempt, RunState


# --- errors of the engine ----------------------------------------------------------------
class Retryable(Exception):
    """It may work later: a lost connection, a full pool, an engine that restarts."""


class Unconfirmed(Retryable):
    """It is committed here, and no other region is known to have it."""


class StrictShut(Unconfirmed):
    """It is committed here. Nothing STRICT holds in this cell until `regions` were read: its takeover was
    decided without them."""

    def __init__(self, regions: Sequence[str]) -> None:
        super().__init__(f"what only the site in {', '.join(regions)} has was not read yet")
        self.regions = tuple(regions)


class Terminal(Exception):
    """It will never work: the input contradicts what is stored."""


class NotOwner(Terminal):
    """The tenant is not placed here, not active, or under another epoch (421)."""


class LeaseLost(Retryable):
    """The lease of the writing host or cell has ended: nothing was written, the host must stop."""


class Conflict(Exception):
    """The state moved on. `epoch` or `version` is what holds now, where known."""

    def __init__(self, message: str, *, epoch: int | None = None, version: int | None = None):
        super().__init__(message)
        self.epoch = epoch
        self.version = version


class AllowanceExceeded(Conflict):
    """A strict job over its tenant's allowance. `nearest_available` has room."""

    def __init__(self, nearest_available: datetime | None):
        super().__init__("strict allowance exceeded")
        self.nearest_available = nearest_available


class QuotaExceeded(Conflict):
    """Over a quota of the tenant (429). `scope` names the quota, `limit` is its value."""

    def __init__(self, scope: str, limit: int):
        super().__init__(f"{scope} quota of {limit} reached")
        self.scope = scope
        self.limit = limit


class KeyReused(Conflict):
    """The same idempotency key came with another request body (422)."""


# --- tenants -----------------------------------------------------------------------------
class TenantConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Quotas and defaults the control plane has set. Stored in `tenants.config`."""

    job_runs_per_second: int = 100
    strict_jobs_per_second: int = 0
    pending_timers: int = 1_000_000
    running_runs: int = 10_000
    workflow_steps_per_second: int = 100
    compensation_deadline_seconds: int = 86_400  # then a workflow that undoes is stuck
    default_window_seconds: int = 300  # recurring jobs
    default_once_window_seconds: int = 60
    default_region_policy: str = "HOME_ASYNC"
    home_region: str = ""  # where SINGLE_REGION work of it is kept; empty: where the cell began
    paused: bool = False  # by its own people: nothing of it is claimed
    low_delayed: bool = False  # its budget is spent: its LOW work waits


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantPlacement:
    """A tenant as this cell knows it."""

    tenant_id: uuid.UUID
    state: str  # ACTIVE | BARRIER | SEALED | MOVED | SUSPENDED
    ownership_epoch: int
    config_version: int  # of the control plane; an older one never overwrites a newer
    config: TenantConfig  # as it counts in this store
    # As the control plane said it, where less of it counts here.
    said: TenantConfig | None = field(default=None, compare=False)

    @property
    def whole(self) -> TenantConfig:
        """What all stores of the cell have together; local stores have a part of each quota."""
        return self.said or self.config


@dataclass(frozen=True, kw_only=True, slots=True)
class Fence:
    """The ownership a write acts under. It changes nothing where it no longer holds."""

    tenant_id: uuid.UUID
    epoch: int  # the tenant's ownership epoch the writer has seen


# --- hosts -------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class HostLease:
    """One process start. Writers stop before `lease_ms` after the renewal was *sent*."""

    host_id: int
    name: str
    lease_ms: int
    database_time: datetime  # clock_timestamp() at the renewal, for the clock offset
    cell_epoch: int = 1  # of the cell's owner then


@dataclass(frozen=True, kw_only=True, slots=True)
class HostStatus:
    """A process start, as operators see it."""

    name: str
    roles: tuple[str, ...]
    started_at: datetime
    live: bool  # its lease has not ended


@dataclass(frozen=True, kw_only=True, slots=True)
class CellStatus:
    """How a cell is, over all its tenants."""

    database_time: datetime
    oldest_due_at: datetime | None  # the earliest timer; how late the cell is, if it is past
    jobs_estimated: int
    hosts: tuple[HostStatus, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Vitals:
    """What hurts a cell before anybody notices."""

    oldest_snapshot_seconds: float  # open transactions hold back the cleaning of dead rows
    shards_without_dispatcher: int
    dead_letters_open: int  # counted to 100,000
    dead_rows: dict[str, int]  # not yet cleaned, by table
    oldest_timer_late_seconds: float  # 0: nothing is overdue


# --- jobs --------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class NewJob:
    """A validated job, ready to be written."""

    job_id: uuid.UUID
    definition: JobDefinition
    payload: bytes | None
    shard: int
    window_ms: int
    offset_ms: int
    next_run_at: datetime | None  # None: nothing to run (a ONCE in the past that is skipped)
    due_at: datetime | None
    state: JobState
    actor: str
    created_at: datetime | None = None  # None: the time of the transaction that writes it
    passed: tuple[Skip, ...] = ()  # what will not run before next_run_at: DST gaps, excluded dates
    traceparent: str | None = None  # the span that asked for it, with its tracestate
    # Set where the client sent an Idempotency-Key:
    idempotency_route: str | None = None
    idempotency_key: str | None = None
    fingerprint: bytes | None = None  # SHA-256 of the request body
    answer: bytes | None = None  # body of the 201, stored for replays


@dataclass(frozen=True, kw_only=True, slots=True)
class Created:
    """What became of one NewJob."""

    created: bool  # False: replayed
    status: int  # 201, or the stored status of the first answer
    answer: bytes | None  # stored body when replayed
    key_reused: bool = False  # same key, other body: 422


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRow:
    """A job as read, with its current definition."""

    tenant_id: uuid.UUID
    job_id: uuid.UUID
    shard: int
    state: JobState
    version: int
    window_ms: int
    offset_ms: int
    next_run_at: datetime | None
    due_at: datetime | None
    definition: JobDefinition
    payload: bytes | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFilter:
    """Which jobs a list shows. All given conditions hold."""

    state: JobState | None = None
    target_id: str | None = None
    tag: str | None = None
    name_prefix: str | None = None
    due_from: datetime | None = None
    due_until: datetime | None = None


# --- claims and completions --------------------------------------------------------------
class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting thing: one job's next occurrence, or one run's next attempt.

    Packed (`timers/members.py`) it is what buckets and queues hold. It is a hint: the claim
    decides.
    """

    tenant_id: uuid.UUID
    parent_id: uuid.UUID
    scheduled_for: int  # epoch seconds
    ordinal: int = 0
    is_run: bool = False  # False: claim the job's occurrence; True: claim an existing run
    generation: int = 0  # job version, or series * 65536 + attempt: tells timers apart
    priority: int
    due_ms: int  # epoch ms; the score, not part of the packed member
    shard: int
    released_ms: int = 0  # set by the dispatcher's release, carried by the queue


class Reaped(list[Member]):
    """The timers of runs that were taken back. A look that found as many as it may has more behind it,
    even if none of those it took has a timer."""

    def __init__(self, members: Iterable[Member] = (), *, looked: int = 0, taken: int = 0):
        super().__init__(members)
        self.looked = looked
        self.taken = taken


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A run this host holds: everything the call needs."""

    tenant_id: uuid.UUID
    key: RunKey
    epoch: int
    series: int
    attempt: int  # number of this attempt, from 1
    priority: int
    shard: int
    version: int
    definition: JobDefinition
    payload: bytes | None  # the request body; None is `{}`
    due_ms: int
    released_ms: int
    claimed_ms: int
    lease_ms: int  # from the claim's commit
    traceparent: str | None = None  # the span that asked for the run or its job, with its tracestate

    @property
    def idempotency_key(self) -> str:
        """What its target or worker knows it by, the same for all attempts."""
        return a.key if (a := self.definition.activity) else run_id(self.key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """How a claimed attempt ended. Applied only while the run is RUNNING under `epoch`."""

    tenant_id: uuid.UUID
    key: RunKey
    epoch: int
    state: RunState  # SUCCEEDED | FAILED | CANCELLED | SUCCEEDED_AFTER_CANCEL | RETRY_WAIT | UNKNOWN
    attempt: Attempt
    timer_at: datetime | None = None  # RETRY_WAIT
    reason: str | None = None
    fingerprint: str | None = None  # FAILED, UNKNOWN: for the DLQ
    target_id: str | None = None
    started_ms: int | None = None
    finished_ms: int = 0
    first_attempt_lag_ms: int | None = None  # started minus due, on a first attempt
    egress_bytes: int = 0
    region_policy: str = "HOME_ASYNC"
    target_gone: bool = False  # 410: also marks the target
    priority: int = 2
    shard: int = 0
    series: int = 1
    concurrency_key: str | None = None  # whose place it held
    notify: Notify | None = None  # None: the job tells nobody
    result: str | None = None  # what a workflow's step answered, where `attempt.body` is but its beginning


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """Which completions took effect, and the next timers they set."""

    applied: Sequence[bool]  # same order as the completions
    retries: Sequence[Member]  # to be added to buckets
    states: Sequence[RunState | None] = ()  # what each run became; None where it did not take effect


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimResult:
    """What a claim batch won."""

    claims: Sequence[Claim]
    next_members: Sequence[Member]  # next occurrences, to be added to buckets
    stale: Sequence[Member]  # lost or outdated: dropped, their tenants owe nothing
    too_early: Sequence[Member]  # still ahead by the database's clock: put back
    offered: Sequence[tuple[uuid.UUID, str]] = ()  # queues (tenant, name) that got tasks for workers


# --- runs --------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """A run as read."""

    tenant_id: uuid.UUID
    key: RunKey
    kind: int
    state: RunState
    priority: int
    version: int
    epoch: int
    series: int
    attempt: int
    timer_at: datetime | None
    lease_expires_at: datetime | None
    due_at: datetime
    released_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested: bool
    target_id: str | None
    http_status: int | None
    reason: str | None
    skipped: int
    attempts: Sequence[Attempt] = field(default=())
    worker: str | None = None  # of a pull run: who polled it last
    heartbeat_at: datetime | None = None
    progress: bytes | None = None  # JSON, as its worker last told it


# --- targets -----------------------------------------------------------------------------
class JournalBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one committed transaction did (JSON in `journal.body`). Ids are uuid hex.

    counts:   [tenant, metric, region_policy, quantity]
    claimed:  [tenant, parent, scheduled_s, ordinal, epoch]
    finished: [tenant, parent, scheduled_s, ordinal, epoch, state, lag_ms or -1]
              (RETRY_WAIT counts as finished attempt; SKIPPED rows are here too)
    intents:  [tenant, verb, id, version it was based on, version it made]
    calls:    [tenant, target, succeeded, failed, retried, ms in all, most ms, one count per bound of
              LAG_BOUNDS_MS and one beyond]
    """

    counts: list[tuple[str, str, str, int]] = []
    claimed: list[tuple[str, str, int, int, int]] = []
    finished: list[tuple[str, str, int, int, int, str, int]] = []
    intents: list[tuple[str, str, str, int, int]] = []
    calls: list[tuple[str, str, int, int, int, int, int, list[int]]] = []


#: Upper bounds of `run_stats.lag_le`, milliseconds; one more bucket counts the rest.
LAG_BOUNDS_MS = (5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 15000, 60000)
