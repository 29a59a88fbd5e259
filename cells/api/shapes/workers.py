"""Task queues and what workers are answered."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, JsonValue

from cells.api.shapes.base import ListShape, Problem, Shape
from cells.domain.run import RunState


class PolledTask(Shape):
    """A task, claimed."""

    run_id: str
    job_id: str
    epoch: int = Field(description="The fencing token: it is higher for each claim.")
    attempt: int
    lease_expires_at: datetime
    heartbeat_every_seconds: float
    idempotency_key: str = Field(description="The same for each attempt of the run.")
    traceparent: str = Field(description="W3C trace context, for what the worker calls.")
    tracestate: str | None
    payload: JsonValue
    activity_type: str | None = Field(None, description="Of a workflow's step: what is to be done.")
    workflow_id: str | None = None
    step: str | None = None
    compensates: str | None = Field(
        None, description="Of a compensation: the idempotency key of what it undoes. Refuse that from now on."
    )


class PolledTasks(Shape):
    """What a poll got; empty if nothing came in time."""

    tasks: list[PolledTask]


class HeartbeatTaken(Shape):
    """The lease as it is now."""

    lease_expires_at: datetime
    heartbeat_every_seconds: float
    cancel_requested: bool = Field(description="Somebody cancelled the run: stop, and say CANCELLED.")


class CompleteTaken(Shape):
    """What became of the run."""

    run_id: str
    epoch: int
    state: RunState
    attempt: int
    next_attempt_at: datetime | None


class ReleaseTaken(Shape):
    """A claim that went back."""

    run_id: str


class HeartbeatResult(Shape):
    """What became of one heartbeat."""

    run_id: str
    status: int = Field(description="As a request for this run alone would have been answered.")
    lease_expires_at: datetime | None = None
    heartbeat_every_seconds: float | None = None
    cancel_requested: bool | None = None
    problem: Problem | None = None


class HeartbeatResults(Shape):
    """One result per heartbeat, in order."""

    results: list[HeartbeatResult]


class CompleteResult(Shape):
    """What became of one end."""

    run_id: str
    status: int = Field(description="As a request for this run alone would have been answered.")
    epoch: int | None = None
    state: RunState | None = None
    attempt: int | None = None
    next_attempt_at: datetime | None = None
    problem: Problem | None = None


class CompleteResults(Shape):
    """One result per end, in order."""

    results: list[CompleteResult]


class TaskQueue(Shape):
    """A queue that workers poll."""

    task_queue: str
    state: str = Field(
        description="OK, PAUSED, IDLE (nothing waits) or NO_WORKER (tasks wait and nobody polls)."
    )
    reason: str | None = Field(description="The state for people, where there is something to say.")
    backlog: int = Field(description="READY tasks, counted up to 10,000.")
    oldest_due_at: datetime | None
    leases: int = Field(description="Tasks under way, counted up to 10,000.")
    workers: int = Field(description="Workers that polled within the last minute.")
    last_polled_at: datetime | None
    paused_at: datetime | None
    created_at: datetime


class TaskQueues(ListShape):
    """All queues of the tenant."""

    items: list[TaskQueue]
    next_cursor: str | None


class QueueWorker(Shape):
    """A worker of a queue."""

    worker_id: str
    first_seen_at: datetime
    last_seen_at: datetime
    left_at: datetime | None
    leases: int


class QueueLease(Shape):
    """A task under way."""

    run_id: str
    job_id: str
    worker_id: str | None
    attempt: int
    claimed_at: datetime
    heartbeat_at: datetime | None
    lease_expires_at: datetime
    progress: JsonValue = None


class TaskQueueRead(TaskQueue):
    """A queue with its workers and what they hold."""

    seen: list[QueueWorker] = Field(description="The latest 200.")
    held: list[QueueLease] = Field(description="The oldest 200.")


class Goodbye(Shape):
    """What a worker held when it left."""

    returned: int
