"""The requests of pull workers. Pure, like `calls.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from controlplane.client.errors import UnexpectedAnswer
from controlplane.client.wire import Answer, Call, path, without_none

#: Beyond the time that the server holds a poll open.
_POLL_SLACK_SECONDS = 15.0
_ANSWER_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """How long a claim holds from the moment of the answer on, in seconds."""

    seconds: float
    cancel_requested: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Claimed:
    """A task as a poll handed it out. The last four are of a workflow's step."""

    run_id: str
    epoch: int
    idempotency_key: str
    payload: Any
    lease: Lease
    heartbeat_every_seconds: float
    attempt: int | None
    traceparent: str | None = None
    tracestate: str | None = None
    type: str | None
    workflow_id: str | None
    step: str | None
    compensates: str | None


def poll(queue: str, *, worker_id: str, wait_seconds: int, max_tasks: int) -> Call[Sequence[Claimed]]:
    """Ask for tasks, and wait for the first one."""
    return Call(
        method="POST",
        path=path("/v1/task-queues/{queue}/tasks", queue=queue) + ":poll",
        read=_read_poll,
        body={"worker_id": worker_id, "wait_seconds": wait_seconds, "max_tasks": max_tasks},
        timeout=wait_seconds + _POLL_SLACK_SECONDS,
    )


def _read_poll(answer: Answer) -> Sequence[Claimed]:
    document = answer.document()
    # One task as itself, several in a list, none as a list without any (or no body at all).
    tasks = document.get("tasks", [document] if "run_id" in document else [])
    if not isinstance(tasks, list):
        raise UnexpectedAnswer("the tasks of a poll are no list")
    return tuple(_claimed(task, answer) for task in tasks)


def _claimed(task: Mapping[str, Any], answer: Answer) -> Claimed:
    try:
        lease = _lease(task, answer)
        return Claimed(
            run_id=str(task["run_id"]),
            epoch=int(task["epoch"]),
            idempotency_key=str(task.get("idempotency_key") or task["run_id"]),
            payload=task.get("payload"),
            lease=lease,
            heartbeat_every_seconds=float(task.get("heartbeat_every_seconds") or lease.seconds / 3),
            attempt=task.get("attempt"),
            traceparent=task.get("traceparent"),
            tracestate=task.get("tracestate"),
            type=task.get("activity_type"),
            workflow_id=task.get("workflow_id"),
            step=task.get("step"),
            compensates=task.get("compensates"),
        )
    except (KeyError, TypeError, ValueError) as fault:
        raise UnexpectedAnswer(f"a task of a poll cannot be read: {fault!r}") from None


def _lease(document: Mapping[str, Any], answer: Answer) -> Lease:
    """The lease in an answer, measured on the clock of who wrote it: ours may be off."""
    expires = datetime.fromisoformat(document["lease_expires_at"])
    try:
        now = parsedate_to_datetime(answer.headers["date"])
    except (KeyError, ValueError):
        now = datetime.now(UTC)
    return Lease(
        seconds=(expires - now.replace(tzinfo=now.tzinfo or UTC)).total_seconds(),
        cancel_requested=bool(document.get("cancel_requested", False)),
    )


def heartbeat(run_id: str, *, epoch: int, progress: Any = None) -> Call[Lease]:
    """Extend the lease, and hear whether the run was cancelled."""

    def read(answer: Answer) -> Lease:
        try:
            return _lease(answer.document(), answer)
        except (KeyError, TypeError, ValueError) as fault:
            raise UnexpectedAnswer(f"a heartbeat's answer cannot be read: {fault!r}") from None

    return Call(
        method="POST",
        path=path("/v1/runs/{run_id}", run_id=run_id) + ":heartbeat",
        read=read,
        body=without_none(epoch=epoch, progress=progress),
        repeatable=True,
        timeout=_ANSWER_SECONDS,
    )


def complete(
    run_id: str,
    *,
    epoch: int,
    outcome: str,
    result: Any = None,
    error: str | None = None,
    retryable: bool | None = None,
) -> Call[None]:
    """Say how it ended: SUCCEEDED, FAILED or CANCELLED. Counts only under the newest epoch, so that
    saying it twice is saying it once."""
    return Call(
        method="POST",
        path=path("/v1/runs/{run_id}", run_id=run_id) + ":complete",
        read=lambda answer: None,
        body=without_none(epoch=epoch, outcome=outcome, result=result, error=error, retryable=retryable),
        repeatable=True,
        timeout=_ANSWER_SECONDS,
    )


def release(run_id: str, *, epoch: int) -> Call[None]:
    """Give a claim back: others may have the task at once."""
    return Call(
        method="POST",
        path=path("/v1/runs/{run_id}", run_id=run_id) + ":release",
        read=lambda answer: None,
        body={"epoch": epoch},
        repeatable=True,
        timeout=_ANSWER_SECONDS,
    )


def leave(queue: str, *, worker_id: str) -> Call[int]:
    """Say goodbye to a queue: what the worker holds of it goes back at once; how many tasks that were."""

    def read(answer: Answer) -> int:
        return int(answer.document().get("returned") or 0)

    return Call(
        method="POST",
        path=path("/v1/task-queues/{queue}/workers", queue=queue) + ":leave",
        read=read,
        body={"worker_id": worker_id},
        repeatable=True,
        timeout=_ANSWER_SECONDS,
    )
