"""What the API shows, typed. Instants are aware datetimes in UTC; money is `Decimal`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from controlplane.client.decoding import Document


@dataclass(frozen=True, kw_only=True, slots=True)
class RecentRun(Document):
    """A run of a job, in short."""

    run_id: str
    scheduled_for: datetime
    attempt: int
    state: str
    outcome: str | None
    finished_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Job(Document):
    """A job. `schedule`, `target` and `retry_policy` are as the API shows them, and may be sent back."""

    job_id: str
    status: str  # SCHEDULED, PAUSED, CANCELLED, COMPLETED
    version: int  # what an edit may be made conditional on
    schedule: Mapping[str, Any]
    target: Mapping[str, Any]
    next_run_at: datetime | None
    next_run_local: str | None
    due_at: datetime | None
    key: str | None
    name: str | None
    tags: Sequence[str] = ()
    headers: Mapping[str, Any] = field(default_factory=dict)
    payload: Any = None  # None where it is not shown (`payload_hidden`), too
    payload_hidden: bool = False
    retry_policy: Mapping[str, Any] = field(default_factory=dict)
    priority: str = "DEFAULT"
    dispatch_window_seconds: int | None
    misfire_policy: str | None
    misfire_grace_seconds: int | None
    region_policy: str | None
    created_at: datetime | None
    updated_at: datetime | None
    recent_runs: Sequence[RecentRun] = ()  # of a job that was read by its id
    last_run: RecentRun | None = None  # of a list that was asked to include it
    notes: Sequence[str] = ()  # of a job just created: what not to expect


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStatus(Document):
    """A job's id and status."""

    job_id: str
    status: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Occurrence(Document):
    """A coming occurrence. `local` is in the schedule's zone; `note`: what daylight saving did."""

    at: datetime
    local: str | None
    note: str | None
    due_at: datetime | None  # of a job's: its place in the dispatch window


@dataclass(frozen=True, kw_only=True, slots=True)
class Transition(Document):
    """A jump of the zone's clock: `kind` is gap or overlap."""

    at: datetime
    from_offset: str
    to_offset: str
    kind: str
    local: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview(Document):
    """What a schedule would do."""

    occurrences: Sequence[Occurrence]
    transitions: Sequence[Transition] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt(Document):
    """One try of a run."""

    number: int
    epoch: int
    outcome: str | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    host: str | None
    status: int | None  # HTTP status
    error: str | None
    retry_in_ms: int | None
    series: int | None = None  # `number` counts from 1 in each: a redrive begins another
    body: str | None = None
    body_hidden: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeSplit(Document):
    """Where a run's time went, in milliseconds; None for what has not happened."""

    window_ms: int | None
    retries_ms: int | None
    quota_ms: int | None
    queue_ms: int | None
    slot_ms: int | None
    run_ms: int | None
    dead_letter_ms: int | None = None


#: States in which a run stays.
FINAL_STATES = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "SUCCEEDED_AFTER_CANCEL", "SKIPPED", "UNKNOWN"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Run(Document):
    """The execution of one occurrence. `outcome` is the state once it is final."""

    run_id: str
    job_id: str
    scheduled_for: datetime
    state: str
    outcome: str | None
    attempt: int
    series: int | None
    epoch: int | None
    version: int | None  # of the job, that it ran
    priority: str | None
    target_id: str | None
    http_status: int | None
    reason: str | None
    skipped: int | None  # SKIPPED: how many occurrences this stands for
    due_at: datetime | None
    released_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    next_attempt_at: datetime | None
    worker_id: str | None = None  # who polled it last, of runs that workers poll
    heartbeat_at: datetime | None = None
    lease_expires_at: datetime | None = None
    progress: Any = None
    cancel_requested: bool = False
    attempts: Sequence[Attempt] = ()
    idempotency_key: str | None
    where_the_time_went: TimeSplit | None

    @property
    def finished(self) -> bool:
        """Whether its state is final."""
        return self.outcome is not None or self.state in FINAL_STATES

    @property
    def succeeded(self) -> bool:
        """Whether it did its work."""
        return self.state in ("SUCCEEDED", "SUCCEEDED_AFTER_CANCEL")


@dataclass(frozen=True, kw_only=True, slots=True)
class Target(Document):
    """A registered place to call. `secret` is there once: when it was made."""

    target_id: str
    state: str  # PENDING, APPROVED, DISABLED, GONE
    version: int
    base_url: str
    owner_team: str | None
    description: str | None
    max_concurrency: int | None
    initial_concurrency: int | None
    latency_slo_ms: int | None
    auth: Mapping[str, Any] = field(default_factory=dict)
    created_by: str | None
    created_at: datetime | None
    updated_at: datetime | None
    approved_by: str | None
    approved_at: datetime | None
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter(Document):
    """A run that failed for good."""

    run_id: str
    job_id: str
    series: int | None
    fingerprint: str
    reason: str | None
    target_id: str | None
    http_status: int | None
    error: str | None
    attempt: int | None
    failed_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetterGroup(Document):
    """Dead letters that failed alike."""

    fingerprint: str
    target_id: str | None
    http_status: int | None
    error: str | None
    count: int
    first_failed_at: datetime | None
    last_failed_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Minute(Document):
    """One minute of runs. Lag is start minus due time."""

    minute: datetime
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    cancelled: int = 0
    skipped: int = 0
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    lag_max_ms: float | None
    lag_mean_ms: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stats(Document):
    """Minutes that had runs, oldest first, and all of them together."""

    since: datetime
    until: datetime
    minutes: Sequence[Minute]
    total: Minute | None


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaUse(Document):
    """What is used of a quota now; `used` None: not known."""

    name: str
    quota: int
    used: float | None
    at_least: bool = False
    share: float | None
    measured: str | None
    unknown_since: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Tenant(Document):
    """Who the key belongs to: quotas, defaults, placement."""

    tenant_id: str
    slug: str
    name: str
    state: str
    home_region: str | None
    default_region_policy: str | None
    default_window_seconds: int | None
    default_once_window_seconds: int | None
    quotas: Mapping[str, Any] = field(default_factory=dict)
    usage: Sequence[QuotaUse] = ()
    usage_unknown: str | None
    placement: Mapping[str, Any] | None
    version: int | None
    created_at: datetime | None
    updated_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Member(Document):
    """A person of the tenant."""

    member_id: str
    user_id: str | None
    email: str
    name: str | None
    role: str
    may_see_payloads: bool = False
    version: int | None
    created_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiKey(Document):
    """A key. `api_key`, its text, is there once: when it was made."""

    key_id: str
    name: str
    scopes: Sequence[str] = ()
    state: str  # LIVE, ROTATED, EXPIRED, REVOKED
    created_by: str | None
    created_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    successor: str | None
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageItem(Document):
    """The sum of a metric; what it is not by is None."""

    day: date | None = None
    job_id: str | None = None
    metric: str
    region_policy: str | None = None
    quantity: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage(Document):
    """A page of usage; first and last day included."""

    from_: date
    to: date
    by: str = "day"
    items: Sequence[UsageItem]
    without_cells: Sequence[str] = ()  # by job: cells that are gone, whose runs are not counted here
    next_cursor: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CostLine(Document):
    """What one metric of one day costs."""

    metric: str
    region_policy: str
    quantity: int
    unit_price: Decimal | None
    per: int | None
    cost: Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class CostDay(Document):
    """What one day costs."""

    day: date
    currency: str
    price_book: str | None
    total: Decimal
    lines: Sequence[CostLine] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CostReport(Document):
    """Cost by day; totals are the exact sums of their lines."""

    from_: date
    to: date
    total: Decimal
    items: Sequence[CostDay]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event(Document):
    """Something people should hear of; what it is about is in `raw`."""

    event_id: str | None
    type: str | None
    at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PastOccurrence(Document):
    """An occurrence whose time has come. `verdict`: ran, failed, unknown, cancelled, running, retrying,
    waiting, due, late, or `skipped:` and why; `sentence` says it to people."""

    run_id: str | None  # None: it has no run (yet)
    scheduled_for: datetime
    local: str | None
    verdict: str
    sentence: str | None
    state: str | None
    reason: str | None
    count: int = 1  # how many occurrences it stands for
    by_hand: bool = False
    attempt: int | None
    due_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    late_ms: int | None
