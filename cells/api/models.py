"""The bodies that concern schedules and jobs. Unknown fields are errors; nothing is coerced.

These models say what is well formed; `building.py` turns them into domain values. Limits are
here, so that the OpenAPI document states them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, LiteralString, TypeAlias

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic import Tag as Variant
from pydantic_core import PydanticCustomError

from cells.api.headers import header_faults
from cells.api.texts import (
    Body,
    CalendarId,
    Instant,
    Moment,
    Name,
    PriorityName,
    QueueName,
    Tag,
    TargetId,
    ZoneName,
    job_path,
    job_url,
)
from cells.domain.calendars import Roll
from cells.domain.job import (
    MAX_LEASE_SECONDS,
    MIN_LEASE_SECONDS,
    Delivery,
    Dialect,
    Gap,
    Misfire,
    Overlap,
    OverlapPolicy,
)
from cells.domain.schedule import MAX_EVERY_SECONDS
from cells.domain.windows import MAX_WINDOW_SECONDS

#: Bytes of a payload as it was sent.
PAYLOAD_LIMIT = 256 * 1024
TIMEOUT_LIMIT = 900


# --- schedules ---------------------------------------------------------------------------
class DstIn(Body):
    """What to do with local times that do not exist or happen twice."""

    gap: Gap = Gap.SHIFT
    overlap: Overlap = Overlap.FIRST


class OnceIn(Body):
    """One occurrence at a local wall time (with `time_zone`) or at an instant (with an offset)."""

    type: Literal["ONCE"]
    run_at: Instant = Field(examples=["2026-09-28T09:00:00"])
    time_zone: ZoneName | None = Field(default=None, examples=["Europe/Berlin"])
    dst: DstIn = DstIn()


class CronIn(Body):
    """A wall-clock recurrence in an IANA time zone."""

    type: Literal["CRON"]
    cron: str = Field(min_length=1, max_length=256, examples=["0 8 * * *"])
    dialect: Dialect = Field(
        default=Dialect.UNIX,
        description="How `cron` is read. UNIX: five fields. QUARTZ: seconds first, perhaps a year last, "
        "`?` L W #. EVENTBRIDGE: a year last, alone or as `cron(...)`; `rate(...)` and `at(...)` become "
        "RATE and ONCE schedules.",
    )
    time_zone: ZoneName | None = Field(
        default=None, description="UTC, if absent.", examples=["America/New_York"]
    )
    start_at: Instant | None = Field(default=None, description="No occurrence before it.")
    end_at: Instant | None = Field(default=None, description="No occurrence at or after it.")
    dst: DstIn = DstIn()
    calendar: CalendarId | None = Field(
        default=None, description="A calendar of excluded dates, in the schedule's time zone."
    )
    roll: Roll = Field(
        default=Roll.SKIP,
        description="What becomes of an occurrence on an excluded date: it does not run, or it moves to "
        "the same time of day on the next or previous open day.",
    )


class RateIn(Body):
    """An elapsed-time recurrence, anchored at its start."""

    type: Literal["RATE"]
    every_seconds: int = Field(ge=1, le=MAX_EVERY_SECONDS)
    start_at: Instant | None = Field(
        default=None, description="The anchor; the moment of creation by default."
    )
    end_at: Instant | None = Field(default=None, description="No occurrence at or after it.")


class NowIn(Body):
    """Due at once, ad hoc."""

    type: Literal["NOW"]


ScheduleIn: TypeAlias = Annotated[OnceIn | CronIn | RateIn | NowIn, Field(discriminator="type")]


# --- jobs --------------------------------------------------------------------------------
class HttpTargetIn(Body):
    """A registered target and a path below it, or a `url` that lies under one."""

    type: Literal["HTTP"] = "HTTP"
    target_id: TargetId | None = None
    url: Annotated[str, StringConstraints(max_length=3072), AfterValidator(job_url)] | None = None
    path: Annotated[str, AfterValidator(job_path)] | None = Field(
        default=None, description="Appended to the target's base URL; a query may follow."
    )
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    timeout_seconds: int = Field(default=30, ge=1, le=TIMEOUT_LIMIT)

    @model_validator(mode="after")
    def _one_address(self) -> HttpTargetIn:
        if (self.target_id is None) == (self.url is None):
            raise PydanticCustomError("target", _either(self.target_id))
        if self.url is not None and self.path is not None:
            raise PydanticCustomError("target", "takes a path only beside target_id; it is part of url")
        return self


def _either(target_id: str | None) -> LiteralString:
    return (
        "names no target: give target_id (and path), or url"
        if target_id is None
        else "has target_id and url, which may say different things: give one of them"
    )


class CallbackIn(Body):
    """A target that is told how a run ended: a registered one and a path below it, or a `url` that lies
    under one."""

    target_id: TargetId | None = None
    url: Annotated[str, StringConstraints(max_length=3072), AfterValidator(job_url)] | None = None
    path: Annotated[str, AfterValidator(job_path)] | None = None

    @model_validator(mode="after")
    def _one_address(self) -> CallbackIn:
        if (self.target_id is None) == (self.url is None):
            raise PydanticCustomError("target", _either(self.target_id))
        if self.url is not None and self.path is not None:
            raise PydanticCustomError("target", "takes a path only beside target_id; it is part of url")
        return self


class TaskQueueTargetIn(Body):
    """A queue that workers of yours poll."""

    type: Literal["TASK_QUEUE"]
    task_queue: QueueName = Field(examples=["ledger-rebuild"])
    lease_seconds: int = Field(
        default=60,
        ge=MIN_LEASE_SECONDS,
        le=MAX_LEASE_SECONDS,
        description="A worker that sends no heartbeat for so long has lost the task.",
    )


class WorkflowTargetIn(Body):
    """A workflow that each run starts, under an id derived from the run's."""

    type: Literal["WORKFLOW"]
    definition: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")] = Field(
        examples=["order_fulfillment"]
    )
    version: int | None = Field(
        default=None, ge=1, le=2**31 - 1, description="The newest when a run begins, if absent."
    )
    input: JsonValue = Field(default=None, description="Of the workflow. It is kept as the job's payload.")
    wait: bool = Field(
        default=True,
        description="The run ends when its workflow is closed; with false, as soon as that has begun.",
    )


def _target_type(given: Any) -> Any:
    # `type` may be left out: HTTP came first. What is no object has none, and is refused by any variant.
    found = given.get("type", "HTTP") if isinstance(given, dict) else getattr(given, "type", "HTTP")
    return found if isinstance(found, str) else None


TargetIn: TypeAlias = Annotated[
    Annotated[HttpTargetIn, Variant("HTTP")]
    | Annotated[TaskQueueTargetIn, Variant("TASK_QUEUE")]
    | Annotated[WorkflowTargetIn, Variant("WORKFLOW")],
    Discriminator(_target_type),
]


class RetryIn(Body):
    """Exponential backoff with full jitter."""

    max_attempts: int = Field(default=3, ge=1, le=100)
    initial_backoff_seconds: float = Field(default=10.0, ge=0, le=900)
    max_backoff_seconds: float = Field(default=600.0, ge=0, le=900)

    @model_validator(mode="after")
    def _ordered(self) -> RetryIn:
        initial, most = self.initial_backoff_seconds, self.max_backoff_seconds
        if initial > most:
            raise PydanticCustomError(
                "retry",
                "initial_backoff_seconds ({initial}) is above max_backoff_seconds ({most})",
                {"initial": f"{initial:g}", "most": f"{most:g}"},
            )
        return self


class JobIn(Body):
    """A job: what to call, when, and what to do if it fails."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "schedule": {"type": "CRON", "cron": "0 8 * * *", "time_zone": "America/New_York"},
                    "target": {
                        "url": "https://email.internal/v1/digests",
                        "method": "POST",
                        "timeout_seconds": 30,
                    },
                    "payload": {"user_id": 1001, "kind": "daily_digest"},
                    "retry_policy": {
                        "max_attempts": 5,
                        "initial_backoff_seconds": 10,
                        "max_backoff_seconds": 600,
                    },
                    "misfire_policy": "RUN_ONCE",
                },
                {
                    "schedule": {
                        "type": "ONCE",
                        "run_at": "2026-09-28T09:00:00",
                        "time_zone": "Europe/Berlin",
                    },
                    "target": {"type": "HTTP", "target_id": "tgt_reports_rollup", "path": "/v1/rollups"},
                },
            ]
        }
    )

    schedule: ScheduleIn
    target: TargetIn
    payload: JsonValue = Field(
        default=None,
        description=f"The body of each call, as it was sent; at most {PAYLOAD_LIMIT} bytes of JSON.",
    )
    headers: dict[str, str] = Field(default_factory=dict, description="Added to each call.")
    name: Name | None = None
    key: Name | None = Field(default=None, description="Unique among the tenant's jobs.")
    tags: list[Tag] = Field(default_factory=list, max_length=20)
    retry_policy: RetryIn = RetryIn()
    priority: PriorityName = "DEFAULT"
    dispatch_window_seconds: int | None = Field(
        default=None,
        ge=0,
        le=MAX_WINDOW_SECONDS,
        description="The job starts anywhere in [scheduled time, scheduled time + window). The tenant's "
        "default if absent; 0 is strict: only CRITICAL, inside the tenant's allowance.",
    )
    misfire_policy: Misfire = Misfire.RUN_ONCE
    misfire_grace_seconds: int = Field(default=0, ge=0, le=366 * 86_400)
    overlap_policy: OverlapPolicy = Field(
        default=OverlapPolicy.ALLOW,
        description="What an occurrence does while the one before it has not ended: run beside it, not "
        "run, wait for its end (one does, others do not run), or run and ask it to stop.",
    )
    region_policy: Literal["HOME_ASYNC", "STRICT", "SINGLE_REGION"] | None = Field(
        default=None,
        description="Where it is kept: here first, and copied to other regions behind (HOME_ASYNC); "
        "acknowledged and called only once another region has it (STRICT, where the cell has several); in "
        "the home region alone (SINGLE_REGION). The tenant's default if absent; fixed for the job's life.",
    )
    delivery: Delivery = Field(
        default=Delivery.AT_LEAST_ONCE,
        description="AT_MOST_ONCE tries again only what was never sent, and ends a run of which nobody "
        "knows what became of it as UNKNOWN. Only with the region policy SINGLE_REGION or STRICT.",
    )
    paused: bool = Field(
        default=False,
        description="Create it PAUSED: nothing runs before it is resumed. A job that is there already stays "
        "as it is.",
    )
    concurrency_key: Name | None = Field(
        default=None,
        description="Of all runs of the tenant's jobs with this key, at most `max_concurrent` are under way; "
        "the others wait, the oldest due first.",
    )
    max_concurrent: int | None = Field(
        default=None, ge=1, le=10_000, description="With a concurrency_key; 1, if absent."
    )
    on_success: CallbackIn | None = Field(default=None, description="Told when a run has succeeded.")
    on_failure: CallbackIn | None = Field(
        default=None, description="Told when a run has failed for good, or nobody knows how it ended."
    )

    @field_validator("headers")
    @classmethod
    def _headers(cls, headers: dict[str, str]) -> dict[str, str]:
        if faults := header_faults(headers):
            raise PydanticCustomError("headers", "unusable headers", {"faults": faults})
        return headers

    @field_validator("tags")
    @classmethod
    def _tags(cls, tags: list[str]) -> list[str]:
        if len(set(tags)) < len(tags):
            raise PydanticCustomError("tags", "holds a tag twice")
        return tags

    # Of single members, so that they are told beside the faults of others. What is missing in `data` has a
    # fault of its own.
    @field_validator("max_concurrent")
    @classmethod
    def _keyed(cls, most: int | None, others: ValidationInfo) -> int | None:
        if most is not None and others.data.get("concurrency_key", "") is None:
            raise PydanticCustomError(
                "keyed", "is {most}, and means something only beside a concurrency_key",
                {"most": most},
            )  # fmt: skip
        return most

    @field_validator("dispatch_window_seconds")
    @classmethod
    def _strict(cls, window: int | None, others: ValidationInfo) -> int | None:
        schedule, priority = others.data.get("schedule"), others.data.get("priority", "CRITICAL")
        if window == 0 and priority != "CRITICAL" and not isinstance(schedule, NowIn | None):
            raise PydanticCustomError(
                "strict",
                "is 0, a start at the very second, which only jobs of priority CRITICAL may ask for; this"
                " one's is {priority}: make it CRITICAL, or the window 1 or more",
                {"priority": priority},
            )
        return window


class JobPatch(Body):
    """A JSON merge patch (RFC 7396) over the fields of a job. `null` takes a field away; a schedule
    of another type, or a target given by `url`, replaces the old one as a whole."""

    schedule: dict[str, JsonValue] | None = None
    target: dict[str, JsonValue] | None = None
    payload: JsonValue = None
    headers: dict[str, str | None] | None = None
    name: Name | None = None
    key: Name | None = None
    tags: list[Tag] | None = None
    retry_policy: dict[str, JsonValue] | None = None
    priority: PriorityName | None = None
    dispatch_window_seconds: int | None = Field(default=None, ge=0, le=MAX_WINDOW_SECONDS)
    misfire_policy: Misfire | None = None
    misfire_grace_seconds: int | None = Field(default=None, ge=0)
    overlap_policy: OverlapPolicy | None = None
    region_policy: str | None = Field(default=None, description="Fixed for the job's life.")
    delivery: Delivery | None = None
    concurrency_key: Name | None = None
    max_concurrent: int | None = Field(default=None, ge=1, le=10_000)
    on_success: dict[str, JsonValue] | None = None
    on_failure: dict[str, JsonValue] | None = None


class TriggerIn(Body):
    """A run by hand."""

    payload: JsonValue = Field(default=None, description="Instead of the job's own payload, for this run.")


class PreviewIn(Body):
    """A schedule to try out."""

    schedule: ScheduleIn
    after: Moment | None = Field(
        default=None,
        description="The previous scheduled time; occurrences are strictly after it. Now, if absent.",
    )
    count: int = Field(default=10, ge=1, le=100)
