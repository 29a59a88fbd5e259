"""What a job is: its definition (versioned, immutable) and its state.

Definitions are stored as JSON and decoded with msgspec; the field names are those of the
public API. Limits and cross-field rules are in `validate.py`; here are only the shapes.
"""

from __future__ import annotations

import enum

import msgspec

from cells.domain.calendars import Calendar, Roll


class Priority(enum.IntEnum):
    """Four classes, each with its own queue and its own executor slots."""

    CRITICAL = 0  # strict jobs inside an allowance
    HIGH = 1  # work somebody waits for
    DEFAULT = 2  # everything else
    LOW = 3  # may be delayed first


class JobState(enum.StrEnum):
    """The life of a job. `due_at` is set exactly while it is ACTIVE."""

    ACTIVE = "ACTIVE"  # waits for its next occurrence
    PAUSED = "PAUSED"  # keeps its place, has no timer
    CANCELLED = "CANCELLED"  # ended by somebody
    DONE = "DONE"  # has no further occurrence


#: What users are shown as `status`.
STATUS: dict[JobState, str] = {
    JobState.ACTIVE: "SCHEDULED",
    JobState.PAUSED: "PAUSED",
    JobState.CANCELLED: "CANCELLED",
    JobState.DONE: "COMPLETED",
}


class ScheduleType(enum.StrEnum):
    """How a job's occurrences are found."""

    ONCE = "ONCE"  # one local wall time or instant
    CRON = "CRON"  # wall-clock recurrence
    RATE = "RATE"  # elapsed-time recurrence, anchored at its start
    NOW = "NOW"  # due at once, ad hoc


class Dialect(enum.StrEnum):
    """How a cron text is to be read."""

    UNIX = "UNIX"  # five fields
    QUARTZ = "QUARTZ"  # seconds first, perhaps a year last
    EVENTBRIDGE = "EVENTBRIDGE"  # a year last


class Gap(enum.StrEnum):
    """A local time that does not exist."""

    SHIFT = "SHIFT"  # once, at the first instant after the gap
    SKIP = "SKIP"  # not at all; recorded


class Overlap(enum.StrEnum):
    """A local time that happens twice."""

    FIRST = "FIRST"  # the earlier instant
    SECOND = "SECOND"  # the later instant
    BOTH = "BOTH"  # twice


class Misfire(enum.StrEnum):
    """What to do with occurrences that were missed."""

    RUN_ONCE = "RUN_ONCE"  # run the latest one, skip (and record) the others
    RUN_ALL = "RUN_ALL"  # run each, 1,000 at most
    SKIP = "SKIP"  # skip those later than the grace


class Delivery(enum.StrEnum):
    """What happens to a run whose outcome nobody knows."""

    AT_LEAST_ONCE = "AT_LEAST_ONCE"  # it is tried again, under the same idempotency key
    AT_MOST_ONCE = "AT_MOST_ONCE"  # it ends UNKNOWN; only what was never sent is tried again


#: The policy of what is kept in one region and never copied to another.
SINGLE_REGION = "SINGLE_REGION"
#: The policy under which nothing is acknowledged or called that only one region has.
STRICT = "STRICT"
#: Region policies under which a run has one place to be claimed in: elsewhere a lost region's runs
#: may run again.
ONE_REGION = frozenset({SINGLE_REGION, STRICT})
HOME_ASYNC = "HOME_ASYNC"


class OverlapPolicy(enum.StrEnum):
    """What an occurrence does while the one before it has not ended."""

    ALLOW = "ALLOW"  # it runs beside it
    SKIP = "SKIP"  # it does not run; recorded
    BUFFER_ONE = "BUFFER_ONE"  # one waits for the end, others are skipped
    CANCEL_PREVIOUS = "CANCEL_PREVIOUS"  # the one before is asked to stop


class Dst(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The daylight-saving policy of a ONCE or CRON schedule."""

    gap: Gap = Gap.SHIFT
    overlap: Overlap = Overlap.FIRST


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a job runs. Which fields are set depends on `type` (see data-plane docs)."""

    type: ScheduleType
    run_at: str | None = None  # ONCE: as the client wrote it, local or with an offset
    cron: str | None = None  # CRON
    dialect: Dialect = Dialect.UNIX  # CRON
    every_seconds: int | None = None  # RATE
    time_zone: str | None = None  # ONCE, CRON: IANA name
    start_at: str | None = None  # CRON, RATE: RFC 3339; for RATE always set once stored
    end_at: str | None = None  # CRON, RATE: no occurrence at or after it
    dst: Dst = Dst()
    calendar: str | None = None  # CRON: the id of a calendar of the tenant
    calendar_version: int = 0  # the one this definition was made with
    roll: Roll = Roll.SKIP
    excluded: Calendar | None = None  # what that version excludes; filled in on reading, never stored


class TargetType(enum.StrEnum):
    """How a run reaches whoever does the work."""

    HTTP = "HTTP"  # we call a registered target
    TASK_QUEUE = "TASK_QUEUE"  # a worker polls the queue for it
    WORKFLOW = "WORKFLOW"  # it starts a durable workflow


#: Run ids of ad hoc jobs end in `:1`: their only occurrence is their first trigger.
NOW_ORDINAL = 1
#: Bounds of `lease_seconds`.
MIN_LEASE_SECONDS, MAX_LEASE_SECONDS = 5, 86_400
#: What a queue is called where a target's id is expected.
QUEUE_LABEL = "queue:"
#: What a workflow's definition is called there.
WORKFLOW_LABEL = "workflow:"


class TargetRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a run goes. Which fields are set depends on `type`."""

    type: str = TargetType.HTTP.value
    target_id: str = ""  # HTTP
    path: str = ""  # HTTP: appended to the target's base URL; begins with `/` or is empty
    method: str = "POST"  # HTTP
    timeout_seconds: int = 30  # HTTP
    task_queue: str = ""  # TASK_QUEUE
    lease_seconds: int = 60  # TASK_QUEUE: how long a claim holds without a heartbeat
    definition: str = ""  # WORKFLOW
    definition_version: int | None = None  # WORKFLOW; None: the newest when it starts
    wait: bool = True  # WORKFLOW: the run ends when the workflow does, not when it has begun

    @property
    def label(self) -> str:
        """What lists, filters and dead letters call it: a target's id, `queue:<name>` or
        `workflow:<definition>`."""
        if self.definition:
            return WORKFLOW_LABEL + self.definition
        return QUEUE_LABEL + self.task_queue if self.task_queue else self.target_id


class Activity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What makes a run a step of a workflow."""

    workflow_id: str
    step: str  # its key in the execution
    key: str  # the idempotency key, the same for all attempts
    type: str = ""  # what a worker is to do
    forward_key: str = ""  # of a compensation: the key of what it undoes


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Exponential backoff with full jitter."""

    max_attempts: int = 3  # 0: without end
    initial_backoff_seconds: float = 10.0
    max_backoff_seconds: float = 600.0


class JobDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One immutable version of a job. The payload is stored beside it, as bytes."""

    schedule: Schedule
    target: TargetRef
    name: str | None = None
    key: str | None = None
    tags: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    retry_policy: RetryPolicy = RetryPolicy()
    priority: Priority = Priority.DEFAULT
    dispatch_window_seconds: int = 0  # always set once stored; 0 is strict (or undelayed: NOW)
    misfire_policy: Misfire = Misfire.RUN_ONCE
    misfire_grace_seconds: int = 0
    overlap_policy: OverlapPolicy = OverlapPolicy.ALLOW
    region_policy: str = "HOME_ASYNC"
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    activity: Activity | None = None  # of a run that is a step of a workflow
    concurrency_key: str | None = None  # at most `max_concurrent` runs of the tenant's jobs with it
    max_concurrent: int = 1
    on_success: TargetRef | None = None  # told when a run has succeeded
    on_failure: TargetRef | None = None  # told when a run is FAILED or UNKNOWN

    @property
    def answers_workflow(self) -> bool:
        """Whether a workflow reads what it answers: of a step, not of what undoes one."""
        return self.activity is not None and not self.activity.forward_key
