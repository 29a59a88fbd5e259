"""Jobs, their occurrences, batches, previews."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue

from cells.api.shapes.base import ListShape, Problem, Shape, Waiting
from cells.api.shapes.calendars import ExcludedShown
from cells.api.texts import PriorityName
from cells.domain.calendars import Roll
from cells.domain.job import Delivery, Dialect, Gap, Misfire, Overlap, OverlapPolicy, ScheduleType
from cells.domain.run import RunState


class Dst(Shape):
    """The daylight-saving policy."""

    gap: Gap
    overlap: Overlap


class Schedule(Shape):
    """When a job runs."""

    type: ScheduleType
    run_at: str | None = None
    cron: str | None = None
    dialect: Dialect | None = Field(None, description="UNIX, if absent.")
    every_seconds: int | None = None
    time_zone: str | None = None
    start_at: str | None = None
    end_at: str | None = None
    dst: Dst | None = None
    calendar: str | None = None
    roll: Roll | None = None


class JobHttpTarget(Shape):
    """What a run calls."""

    type: Literal["HTTP"]
    target_id: str
    path: str
    method: str
    timeout_seconds: int


class JobTaskQueueTarget(Shape):
    """The queue that workers poll for its runs."""

    type: Literal["TASK_QUEUE"]
    task_queue: str
    lease_seconds: int


class JobWorkflowTarget(Shape):
    """The workflow that its runs start; the job's payload is its input."""

    type: Literal["WORKFLOW"]
    definition: str
    version: int | None = Field(description="null: the newest when a run begins.")
    wait: bool


JobTarget: TypeAlias = Annotated[
    JobHttpTarget | JobTaskQueueTarget | JobWorkflowTarget, Field(discriminator="type")
]


class Callback(Shape):
    """A target that is told how a run ended."""

    target_id: str
    path: str


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
    payload_hidden: bool | None = Field(
        None, description="true: left out, as in the answer to a creation or without payloads:read."
    )
    retry_policy: RetryPolicy
    priority: PriorityName
    dispatch_window_seconds: int
    misfire_policy: Misfire
    misfire_grace_seconds: int
    overlap_policy: OverlapPolicy
    region_policy: str
    delivery: Delivery
    concurrency_key: str | None
    max_concurrent: int | None
    on_success: Callback | None
    on_failure: Callback | None
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
    waiting: Waiting | None = Field(description="Why what is due has not begun, where that is known.")


class JobListed(Job):
    """A job in a list."""

    last_run: RecentRun | None = Field(None, description="Only with `include=last_run`.")


class JobPage(ListShape):
    """A page of jobs."""

    items: list[JobListed]
    next_cursor: str | None


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
    note: str = Field(description="What it does to the schedule.")


class Preview(Shape):
    """What a schedule would do."""

    occurrences: list[OccurrenceShown]
    excluded: list[ExcludedShown] = Field(description="What its calendar excludes up to the last of them.")
    transitions: list[TransitionShown]
