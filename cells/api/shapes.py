"""The shapes of the answers, for the OpenAPI document only: answers are built in `documents.py`,
and a test holds them against these."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from cells.api.texts import PriorityName
from cells.domain.job import Gap, Misfire, Overlap, ScheduleType
from cells.domain.run import AttemptOutcome, RunState


class Shape(BaseModel):
    """An answer. Members may be added to it later; clients ignore what they do not know."""

    model_config = ConfigDict(extra="allow")


class Fault(Shape):
    """One fault, at a place of the body, the query or the headers."""

    pointer: str | None = Field(None, description="JSON pointer (RFC 6901) into the body.")
    parameter: str | None = Field(None, description="Name of a query parameter.")
    header: str | None = Field(None, description="Name of a header.")
    detail: str


class Problem(Shape):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:clockhouse:problem:invalid",
                    "title": "The request is not valid",
                    "status": 422,
                    "detail": "1 fault; see errors.",
                    "code": "INVALID",
                    "errors": [{"pointer": "/schedule/cron", "detail": "minute: 61 is above 59"}],
                }
            ]
        },
    )

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="What programs decide by.")
    errors: list[Fault] | None = None


# --- jobs --------------------------------------------------------------------------------
class Dst(Shape):
    """The daylight-saving policy."""

    gap: Gap
    overlap: Overlap


class Schedule(Shape):
    """When a job runs."""

    type: ScheduleType
    run_at: str | None = None
    cron: str | None = None
    every_seconds: int | None = None
    time_zone: str | None = None
    start_at: str | None = None
    end_at: str | None = None
    dst: Dst | None = None


class JobTarget(Shape):
    """What a run calls."""

    type: Literal["HTTP"]
    target_id: str
    path: str
    method: str
    timeout_seconds: int


class RetryPolicy(Shape):
    """Exponential backoff with full jitter."""

    max_attempts: int
    initial_backoff_seconds: float
    max_backoff_seconds: float


class JobStatus(Shape):
    """A job's id and status."""

    job_id: str
    status: Literal["SCHEDULED", "PAUSED", "CANCELLED", "COMPLETED"]


class Job(JobStatus):
    """A job."""

    version: int = Field(description="Of its definition; also the ETag.")
    next_run_at: datetime | None
    next_run_local: str | None = Field(description="next_run_at in the schedule's time zone.")
    due_at: datetime | None = Field(description="next_run_at and the job's place in its dispatch window.")
    key: str | None
    name: str | None
    tags: list[str]
    schedule: Schedule
    target: JobTarget
    headers: dict[str, str]
    payload: JsonValue = Field(None, description="Only for callers with payloads:read.")
    payload_hidden: bool | None = Field(None, description="true: it is not shown to this caller.")
    retry_policy: RetryPolicy
    priority: PriorityName
    dispatch_window_seconds: int
    misfire_policy: Misfire
    misfire_grace_seconds: int
    region_policy: str
    created_at: datetime
    updated_at: datetime


class JobDeclared(Job):
    """A job as it was declared."""

    changed: bool = Field(description="Whether anything differed from what was there.")


class JobCreated(Job):
    """A job just created."""

    notes: list[str] | None = None


class BatchResult(Shape):
    """What became of one job of a batch."""

    status: int = Field(description="As a request for this job alone would have been answered.")
    job_id: str | None = Field(None, description="If the job is there.")
    next_run_at: datetime | None = None
    due_at: datetime | None = None
    replayed: bool | None = Field(None, description="true: it was there under its idempotency key.")
    problem: Problem | None = Field(None, description="Why it was refused.")


class BatchResults(Shape):
    """One result per job, in order."""

    results: list[BatchResult]
    created: int
    failed: int


class RecentRun(Shape):
    """A run of a job, in short."""

    run_id: str
    scheduled_for: datetime
    attempt: int
    outcome: RunState | None
    finished_at: datetime | None
    state: RunState


class JobRead(Job):
    """A job with its latest runs."""

    recent_runs: list[RecentRun]


class JobPage(Shape):
    """A page of jobs."""

    items: list[Job]
    next_cursor: str | None


# --- runs --------------------------------------------------------------------------------
class Attempt(Shape):
    """One try."""

    number: int
    epoch: int
    outcome: AttemptOutcome
    claimed_at: datetime
    started_at: datetime | None
    finished_at: datetime
    host: str
    status: int | None = Field(description="HTTP status.")
    error: str | None
    retry_in_ms: int | None
    body: str | None = Field(None, description="Of the target's answer; only with payloads:read.")
    body_hidden: bool | None = None


class TimeSplit(Shape):
    """Where a run's time went, in milliseconds. The last four concern its last attempt."""

    window_ms: int | None = Field(description="Spread on purpose, inside the dispatch window.")
    retries_ms: int | None = Field(description="Earlier attempts, and the waits between them.")
    quota_ms: int | None = Field(description="Waited for the tenant's job_runs_per_second.")
    queue_ms: int | None = Field(description="Waited for an executor.")
    slot_ms: int | None = Field(description="Waited for a slot at the target.")
    run_ms: int | None = Field(description="The call.")


class Run(Shape):
    """The execution of one occurrence."""

    run_id: str
    job_id: str
    scheduled_for: datetime
    state: RunState
    outcome: RunState | None = Field(description="The state, once it is final.")
    attempt: int
    series: int
    epoch: int
    version: int = Field(description="Of the job, that it ran.")
    priority: PriorityName
    target_id: str | None
    http_status: int | None
    reason: str | None
    skipped: int = Field(description="SKIPPED: the occurrences this row stands for.")
    due_at: datetime
    released_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested: bool
    next_attempt_at: datetime | None
    attempts: list[Attempt]
    idempotency_key: str
    where_the_time_went: TimeSplit


class RunPage(Shape):
    """A page of runs."""

    items: list[Run]
    next_cursor: str | None


class PastOccurrence(Shape):
    """An occurrence whose time has come, with its verdict."""

    run_id: str | None = Field(description="null: it has no run (yet).")
    scheduled_for: datetime
    local: str
    verdict: str = Field(
        description="ran, failed, unknown, cancelled, running, retrying, waiting, due, late, or `skipped:` "
        "and the reason: misfire, paused, edited, cancelled, dst_gap."
    )
    sentence: str = Field(description="The same for people.")
    state: RunState | None
    reason: str | None
    count: int = Field(description="How many occurrences it stands for, from scheduled_for on.")
    by_hand: bool = Field(description="It was started by hand.")
    attempt: int
    due_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    late_ms: int | None = Field(description="Start (or now) minus due_at; earlier attempts included.")


class ComingOccurrence(Shape):
    """An occurrence to come."""

    at: datetime
    local: str
    note: str | None = Field(description="What daylight saving did to it.")
    due_at: datetime = Field(description="When it starts: its place in the dispatch window.")


class Ledger(Shape):
    """Occurrences of a job: past ones newest first, coming ones soonest first."""

    job_id: str
    status: str
    past: list[PastOccurrence]
    next: list[ComingOccurrence]
    next_cursor: str | None = Field(description="Of the past ones.")


# --- schedules ---------------------------------------------------------------------------
class OccurrenceShown(Shape):
    """A coming occurrence."""

    at: datetime
    local: str
    note: str | None = Field(description="What daylight saving did to it.")


class TransitionShown(Shape):
    """A jump of the zone's clock."""

    at: datetime
    from_offset: str
    to_offset: str
    kind: Literal["gap", "overlap"]
    local: str


class Preview(Shape):
    """What a schedule would do."""

    occurrences: list[OccurrenceShown]
    transitions: list[TransitionShown]


# --- targets -----------------------------------------------------------------------------
class Target(Shape):
    """A registered target."""

    target_id: str
    state: Literal["PENDING", "APPROVED", "DISABLED", "GONE"]
    version: int
    base_url: str
    owner_team: str | None
    description: str | None
    max_concurrency: int
    initial_concurrency: int
    latency_slo_ms: int
    auth: dict[str, Any]
    created_by: str
    created_at: datetime
    updated_at: datetime
    approved_by: str | None
    approved_at: datetime | None


class TargetCreated(Target):
    """A target with a signing secret that is not shown again."""

    secret: str | None = Field(None, description="`whsec_…`: verifies the calls (Standard Webhooks).")


class TargetPage(Shape):
    """A page of targets."""

    items: list[Target]
    next_cursor: str | None


# --- dead letters and statistics ---------------------------------------------------------
class DeadLetter(Shape):
    """A run that failed for good."""

    run_id: str
    job_id: str
    series: int
    fingerprint: str
    reason: str
    target_id: str | None
    http_status: int | None
    error: str | None
    attempt: int
    failed_at: datetime


class DeadLetterGroup(Shape):
    """Dead letters that failed alike."""

    fingerprint: str
    target_id: str | None
    http_status: int | None
    error: str | None
    count: int
    first_failed_at: datetime
    last_failed_at: datetime


class Dlq(Shape):
    """A page of dead letters."""

    groups: list[DeadLetterGroup]
    items: list[DeadLetter]
    next_cursor: str | None


class Minute(Shape):
    """One minute of a tenant's runs."""

    minute: datetime
    started: int
    succeeded: int
    failed: int
    retried: int
    cancelled: int
    skipped: int
    lag_p50_ms: float | None = Field(description="Start minus due time, of first attempts.")
    lag_p99_ms: float | None
    lag_max_ms: int | None
    lag_mean_ms: float | None


class Stats(Shape):
    """Minutes that had runs, oldest first, and all of them together."""

    since: datetime
    until: datetime
    minutes: list[Minute]
    total: Minute
