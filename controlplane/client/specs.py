"""What a client sends about jobs: schedules, targets, whole jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from controlplane.client.wire import Json, instant, without_none

Priority = Literal["CRITICAL", "HIGH", "DEFAULT", "LOW"]


class Absent:
    """Stands for "not given" where None is a value (JSON's null)."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


@dataclass(frozen=True, slots=True)
class Dst:
    """What happens to local times that the clock jumps over (`gap`: SHIFT to the first instant after
    it, or SKIP) or passes twice (`overlap`: FIRST, SECOND or BOTH)."""

    gap: Literal["SHIFT", "SKIP"] = "SHIFT"
    overlap: Literal["FIRST", "SECOND", "BOTH"] = "FIRST"

    def body(self) -> Json:
        """As it is sent."""
        return {"gap": self.gap, "overlap": self.overlap}


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a job runs. Use `Schedule.cron`, `.once`, `.every` or `.now`."""

    members: Mapping[str, Any]

    @classmethod
    def cron(
        cls,
        expression: str,
        *,
        time_zone: str = "UTC",
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        dst: Dst | None = None,
        dialect: Literal["UNIX", "QUARTZ", "EVENTBRIDGE"] | None = None,
        calendar: str | None = None,
        roll: Literal["SKIP", "NEXT", "PREVIOUS"] | None = None,
    ) -> Schedule:
        """Five Unix fields, or `@daily` and the like, on the wall clock of a time zone; or an expression of
        another dialect. A run on a day that the `calendar` (an id) excludes does not take place, or
        moves to the same time on the next or previous open day (`roll`)."""
        return cls(
            without_none(
                type="CRON",
                cron=expression,
                dialect=dialect,
                time_zone=time_zone,
                start_at=_instant(start_at),
                end_at=_instant(end_at),
                calendar=calendar,
                roll=roll,
                dst=dst.body() if dst else None,
            )
        )

    @classmethod
    def once(
        cls, run_at: datetime | str, *, time_zone: str | None = None, dst: Dst | None = None
    ) -> Schedule:
        """At an instant (an aware datetime), or at a local time (a naive one) of `time_zone`."""
        if isinstance(run_at, datetime):
            if run_at.tzinfo is None and time_zone is None:
                raise ValueError("a local time needs a time_zone")
            run_at = run_at.isoformat(timespec="seconds")
        return cls(
            without_none(type="ONCE", run_at=run_at, time_zone=time_zone, dst=dst.body() if dst else None)
        )

    @classmethod
    def every(
        cls,
        period: timedelta | int,
        *,
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
    ) -> Schedule:
        """Each time that many whole seconds have elapsed since `start_at` (the creation, if absent)."""
        if isinstance(period, timedelta):
            seconds, rest = divmod(period, timedelta(seconds=1))
            if rest:
                raise ValueError(f"{period} is no whole number of seconds")
        else:
            seconds = period
        return cls(
            without_none(
                type="RATE", every_seconds=seconds, start_at=_instant(start_at), end_at=_instant(end_at)
            )
        )

    @classmethod
    def now(cls) -> Schedule:
        """At once, one time."""
        return cls({"type": "NOW"})

    def body(self) -> Json:
        """As it is sent."""
        return dict(self.members)


def _instant(value: datetime | str | None) -> str | None:
    return instant(value) if isinstance(value, datetime) else value


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A registered target and a path below it, or a `url` that lies under a registered one."""

    target_id: str | None = None
    path: str | None = field(default=None, kw_only=True)
    url: str | None = field(default=None, kw_only=True)
    method: str | None = field(default=None, kw_only=True)
    timeout_seconds: int | None = field(default=None, kw_only=True)

    def body(self) -> Json:
        """As it is sent."""
        return without_none(
            type="HTTP",
            target_id=self.target_id,
            url=self.url,
            path=self.path,
            method=self.method,
            timeout_seconds=self.timeout_seconds,
        )


@dataclass(frozen=True, slots=True)
class TaskQueueTarget:
    """A queue that workers poll. A worker that sends no heartbeat for `lease_seconds` has lost the task."""

    task_queue: str
    lease_seconds: int | None = field(default=None, kw_only=True)

    def body(self) -> Json:
        """As it is sent."""
        return without_none(type="TASK_QUEUE", task_queue=self.task_queue, lease_seconds=self.lease_seconds)


@dataclass(frozen=True, slots=True)
class Callback:
    """Who is told how a run ended: a registered target and a path below it, or a `url` under one."""

    target_id: str | None = None
    path: str | None = field(default=None, kw_only=True)
    url: str | None = field(default=None, kw_only=True)

    def body(self) -> Json:
        """As it is sent."""
        return without_none(target_id=self.target_id, path=self.path, url=self.url)


@dataclass(frozen=True, slots=True)
class WorkflowTarget:
    """A workflow that each run starts; the job's payload is its input. Without a version the newest one when
    the run begins. `wait`: whether the run ends with its workflow, or as soon as that has begun."""

    definition: str
    version: int | None = field(default=None, kw_only=True)
    wait: bool | None = field(default=None, kw_only=True)

    def body(self) -> Json:
        """As it is sent."""
        return without_none(type="WORKFLOW", definition=self.definition, version=self.version, wait=self.wait)


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """How failed attempts of a run are repeated: exponential backoff with full jitter."""

    max_attempts: int | None = None
    initial_backoff_seconds: float | None = None
    max_backoff_seconds: float | None = None

    def body(self) -> Json:
        """As it is sent."""
        return without_none(
            max_attempts=self.max_attempts,
            initial_backoff_seconds=self.initial_backoff_seconds,
            max_backoff_seconds=self.max_backoff_seconds,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class NewJob:
    """A job to be created. What is None is left to the tenant's defaults."""

    schedule: Schedule
    target: HttpTarget | TaskQueueTarget | WorkflowTarget
    payload: Any = ABSENT
    headers: Mapping[str, str] | None = None
    name: str | None = None
    key: str | None = None
    tags: Sequence[str] | None = None
    retry_policy: Retry | None = None
    priority: Priority | None = None
    dispatch_window_seconds: int | None = None
    misfire_policy: Literal["RUN_ONCE", "RUN_ALL", "SKIP"] | None = None
    misfire_grace_seconds: int | None = None
    overlap_policy: Literal["ALLOW", "SKIP", "BUFFER_ONE", "CANCEL_PREVIOUS"] | None = None
    region_policy: str | None = None
    delivery: Literal["AT_LEAST_ONCE", "AT_MOST_ONCE"] | None = None
    #: Of all runs of jobs with this key, at most `max_concurrent` (1, if None) are under way.
    concurrency_key: str | None = None
    max_concurrent: int | None = None
    on_success: Callback | None = None
    on_failure: Callback | None = None
    paused: bool | None = None

    def body(self) -> Json:
        """As it is sent."""
        body = without_none(
            schedule=self.schedule.body(),
            target=self.target.body(),
            headers=dict(self.headers) if self.headers is not None else None,
            name=self.name,
            key=self.key,
            tags=list(self.tags) if self.tags is not None else None,
            retry_policy=self.retry_policy.body() if self.retry_policy else None,
            priority=self.priority,
            dispatch_window_seconds=self.dispatch_window_seconds,
            misfire_policy=self.misfire_policy,
            misfire_grace_seconds=self.misfire_grace_seconds,
            overlap_policy=self.overlap_policy,
            region_policy=self.region_policy,
            delivery=self.delivery,
            concurrency_key=self.concurrency_key,
            max_concurrent=self.max_concurrent,
            on_success=self.on_success.body() if self.on_success else None,
            on_failure=self.on_failure.body() if self.on_failure else None,
            paused=self.paused,
        )
        if self.payload is not ABSENT:
            body["payload"] = self.payload
        return body


def as_body(value: Any) -> Any:
    """A spec, or a plain mapping with specs in it, as it is sent."""
    if isinstance(
        value, (NewJob, Schedule, HttpTarget, TaskQueueTarget, WorkflowTarget, Callback, Retry, Dst)
    ):
        return value.body()
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, Mapping):
        return {name: as_body(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_body(inner) for inner in value]
    return value
