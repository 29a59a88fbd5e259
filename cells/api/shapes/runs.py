"""Runs, dead letters, statistics."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue

from cells.api.shapes.base import ListShape, Shape, Waiting
from cells.api.texts import PriorityName
from cells.domain.run import AttemptOutcome, RunState


class Attempt(Shape):
    """One try."""

    number: int = Field(description="Within its series: each redrive begins a new one at 1.")
    series: int = Field(description="1, and one more for each time that the run was redriven.")
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
    dead_letter_ms: int | None = Field(
        description="Lay in the dead-letter queue until it was redriven; null where it never was."
    )
    quota_ms: int | None = Field(description="Waited for the tenant's job_runs_per_second.")
    queue_ms: int | None = Field(description="Waited for an executor.")
    slot_ms: int | None = Field(description="Waited for a slot at the target.")
    run_ms: int | None = Field(description="The call.")


class RunCallback(Shape):
    """A run that tells a target how another one ended."""

    run_id: str
    target_id: str | None
    state: RunState
    attempt: int
    http_status: int | None
    finished_at: datetime | None


class Run(Shape):
    """The execution of one occurrence."""

    run_id: str
    job_id: str
    scheduled_for: datetime
    kind: Literal["JOB", "ACTIVITY", "CALLBACK"]
    callback_of: str | None = Field(description="CALLBACK: the run whose end it tells of.")
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
    worker_id: str | None = Field(description="Who polled it last; of runs that workers poll.")
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None = Field(description="RUNNING: until when its holder has it.")
    progress: JsonValue = Field(None, description="As its worker last told it; only with payloads:read.")
    next_attempt_at: datetime | None
    attempts: list[Attempt]
    idempotency_key: str
    where_the_time_went: TimeSplit
    callbacks: list[RunCallback] | None = Field(
        None, description="Where a run is read: who was told how it ended, the latest series first."
    )


class RunRead(Run):
    """A run, and why it waits."""

    waiting: Waiting | None = Field(description="Why what is due has not begun, where that is known.")


class RunPage(ListShape):
    """A page of runs."""

    items: list[Run]
    next_cursor: str | None = Field(
        description="Where to go on. There may be one behind a short or even empty page: a page looks at "
        "20,000 runs at most for those that fit."
    )
    looked_back_to: datetime | None = Field(
        description="Runs scheduled before that were not looked at for this page; null: all there are."
    )


class PastOccurrence(Shape):
    """An occurrence whose time has come, with its verdict."""

    run_id: str | None = Field(description="null: it has no run (yet).")
    scheduled_for: datetime
    local: str
    verdict: str = Field(
        description="ran, failed, unknown, cancelled, running, retrying, waiting, due, late, or `skipped:` "
        "and the reason: misfire, overlap, paused, edited, cancelled, dst_gap, calendar."
    )
    sentence: str = Field(description="The same for people.")
    state: RunState | None
    reason: str | None = Field(
        description="Of the run's state; of what waits or is late: target, quota (of running runs), paused "
        "(all of the tenant's work), concurrency, overlap."
    )
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


class DeadLetterSeries(DeadLetter):
    """One time a run failed for good."""

    state: Literal["OPEN", "REDRIVEN", "PURGED"]


class DeadLetterRead(DeadLetterSeries):
    """A dead letter with its run."""

    earlier: list[DeadLetterSeries] = Field(description="When it was tried again before.")
    run: Run | None = Field(description="null: it is no longer kept.")


class DeadLetterGroup(Shape):
    """Dead letters that failed alike."""

    fingerprint: str
    target_id: str | None
    http_status: int | None
    error: str | None
    count: int
    first_failed_at: datetime
    last_failed_at: datetime


class Dlq(ListShape):
    """A page of dead letters."""

    groups: list[DeadLetterGroup] = Field(description="The first page's: by how many runs they hold.")
    truncated: bool = Field(
        description="The groups are made of the newest 10,000 dead letters alone, or are the biggest 50."
    )
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
    call_p50_ms: float | None = Field(None, description="How long calls took; of a job or target only.")
    call_p95_ms: float | None = None
    call_max_ms: int | None = None


class Stats(ListShape):
    """Minutes that had runs, oldest first, and all of them together."""

    since: datetime
    until: datetime
    minutes: list[Minute]
    total: Minute


class HerdMinute(Shape):
    """A minute that has something due."""

    minute: datetime
    count: int


class Herd(Shape):
    """What will be due, minute by minute."""

    since: datetime
    until: datetime
    minutes: list[HerdMinute] = Field(description="Minutes without anything due are left out.")
    total: int
    peak: HerdMinute | None
    jobs: int = Field(description="Jobs that wait for something before `until`.")
    jobs_left_out: int = Field(description="Of them, those counted with their next occurrence only.")
    truncated: bool
    method: str = Field(description="How it is counted, and its bounds.")
