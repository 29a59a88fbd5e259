"""Task queues: polls, and how people see them."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated

import msgspec
from fastapi import Path
from starlette.responses import Response

from cells.api import documents, shapes, tracing
from cells.api.problems import invalid, not_found
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.texts import QUEUE_NAME_PATTERN
from cells.api.worker_models import GoodbyeIn, PollIn
from cells.contract import Scope
from cells.domain import ids
from cells.domain.job import Activity
from cells.pulling import Poller, PulledTask, QueueRow, WorkerSeen

routes = Routes("Task queues")

QueueParameter = Annotated[str, Path(description="A queue's name.", examples=["ledger-rebuild"])]

_NAME = re.compile(QUEUE_NAME_PATTERN)
#: Tasks that wait longer than this with nobody polling are a fault that people see (seconds).
NO_WORKER_SECONDS = 60
_SHOWN = 200
_NULL = msgspec.Raw(b"null")


@routes.add(
    "POST",
    "/v1/task-queues/{queue:name}/tasks:poll",
    Rule(scope=Scope.WORKERS, writes=True),
    answers={200: ("The tasks; an empty list if none came in time.", shapes.PolledTasks)},
)
async def poll_tasks(call: Call, queue: QueueParameter, body: PollIn) -> Response:
    """Claim tasks of a queue, and wait for the first one.

    What is due first comes first, class by class. A claim holds until `lease_expires_at`; a heartbeat
    extends it. A client that leaves before the answer loses nothing: what was claimed for it goes
    back at once. Only one poll at a time is of use to a worker.
    """
    name = _queue(queue)
    services = call.services
    gone = asyncio.ensure_future(call.receive())
    try:
        tasks = await services.desk.poll(
            Poller(tenant_id=call.tenant_id, task_queue=name, worker_id=body.worker_id, count=body.max_tasks),
            wait_seconds=body.wait_seconds,
            gone=gone,
        )
    finally:
        gone.cancel()
    return answer({"tasks": [_task(task) for task in tasks]})


@routes.add(
    "POST",
    "/v1/task-queues/{queue:name}/workers:leave",
    Rule(scope=Scope.WORKERS, writes=True),
    answers={200: ("How much it held.", shapes.Goodbye)},
)
async def leave_queue(call: Call, queue: QueueParameter, body: GoodbyeIn) -> Response:
    """A worker says goodbye to a queue: what it holds of it goes back at once, and the attempts
    are not counted. It may come back with another poll."""
    seen = WorkerSeen(tenant_id=call.tenant_id, task_queue=_queue(queue), worker_id=body.worker_id, left=True)
    services = call.services
    returned = await services.store.give_back_of(seen, host_id=services.host.host_id)
    services.desk.saw(seen)
    if returned:
        await services.desk.announce([(seen.tenant_id, seen.task_queue)])
    return answer({"returned": returned})


@routes.add(
    "GET",
    "/v1/task-queues",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("All queues that had a task or a poll.", shapes.TaskQueues)},
)
async def list_task_queues(call: Call) -> Response:
    """List task queues by name: what waits, what is under way, and who polls."""
    rows = await call.services.store.task_queues(call.tenant_id)
    return answer({"items": [_shown(row) for row in rows], "next_cursor": None})


@routes.add(
    "GET",
    "/v1/task-queues/{queue:name}",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The queue.", shapes.TaskQueueRead)},
    problems=(404,),
)
async def read_task_queue(call: Call, queue: QueueParameter) -> Response:
    """Read a task queue with its workers and the tasks they hold."""
    return await _read(call, queue)


@routes.add(
    "POST",
    "/v1/task-queues/{queue:name}:pause",
    Rule(scope=Scope.JOBS_WRITE, writes=True, body_optional=True),
    answers={200: ("The queue.", shapes.TaskQueueRead)},
    problems=(404,),
)
async def pause_task_queue(call: Call, queue: QueueParameter) -> Response:
    """Hand out nothing more of a queue; tasks gather, and what is under way goes on."""
    return await _pause(call, queue, paused=True)


@routes.add(
    "POST",
    "/v1/task-queues/{queue:name}:resume",
    Rule(scope=Scope.JOBS_WRITE, writes=True, body_optional=True),
    answers={200: ("The queue.", shapes.TaskQueueRead)},
    problems=(404,),
)
async def resume_task_queue(call: Call, queue: QueueParameter) -> Response:
    """Hand out tasks of a queue again."""
    return await _pause(call, queue, paused=False)


async def _pause(call: Call, queue: str, *, paused: bool) -> Response:
    services = call.services
    if not await services.store.task_queues(call.tenant_id, name=queue):
        raise not_found("task queue")
    await services.store.pause_queue(
        call.fence, queue, paused=paused, actor=call.caller.actor, host_id=services.host.host_id
    )
    if not paused:
        await services.desk.announce([(call.tenant_id, queue)])
    return await _read(call, queue)


async def _read(call: Call, queue: str) -> Response:
    store = call.services.store
    rows = await store.task_queues(call.tenant_id, name=queue)
    if not rows:
        raise not_found("task queue")
    workers = await store.queue_workers(call.tenant_id, queue, limit=_SHOWN)
    leases = await store.queue_leases(call.tenant_id, queue, limit=_SHOWN)
    shown = call.may(Scope.PAYLOADS_READ)
    return answer(
        {
            **_shown(rows[0]),
            "seen": [
                {
                    "worker_id": worker.worker_id,
                    "first_seen_at": documents.instant(worker.first_seen_at),
                    "last_seen_at": documents.instant(worker.last_seen_at),
                    "left_at": documents.instant(worker.left_at),
                    "leases": worker.leases,
                }
                for worker in workers
            ],
            "held": [
                {
                    "run_id": ids.run_id(lease.key),
                    "job_id": documents.job_text(lease.key.parent_id),
                    "worker_id": lease.worker,
                    "attempt": lease.attempt,
                    "claimed_at": documents.instant(lease.claimed_at),
                    "heartbeat_at": documents.instant(lease.heartbeat_at),
                    "lease_expires_at": documents.instant(lease.lease_expires_at),
                    **({"progress": documents.raw(lease.progress)} if shown else {}),
                }
                for lease in leases
            ],
        }
    )


def _queue(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise invalid(
            [], f"{name[:100]!r} is no name of a task queue: letters, digits, `_`, `.` and `-`, 100 at most."
        )
    return name


def _task(task: PulledTask) -> documents.Document:
    claim = task.claim
    run_id = ids.run_id(claim.key)
    traceparent, tracestate = tracing.of_attempt(claim, run_id)
    return {
        "run_id": run_id,
        "job_id": documents.job_text(claim.key.parent_id),
        "epoch": claim.epoch,
        "attempt": claim.attempt,
        "lease_expires_at": documents.instant(task.lease_expires_at),
        "heartbeat_every_seconds": claim.lease_ms / 3000,
        "idempotency_key": claim.idempotency_key,
        "traceparent": traceparent,
        "tracestate": tracestate,
        **_activity(claim.definition.activity),
        "payload": _NULL if claim.payload is None else msgspec.Raw(claim.payload),
    }


def _activity(activity: Activity | None) -> documents.Document:
    """What makes a task a step of a workflow."""
    if activity is None:
        return {}
    return {
        "activity_type": activity.type,
        "workflow_id": activity.workflow_id,
        "step": activity.step,
        "compensates": activity.forward_key or None,
    }


def _shown(row: QueueRow) -> documents.Document:
    state, reason = queue_state(row)
    return {
        "task_queue": row.task_queue,
        "state": state,
        "reason": reason,
        "backlog": row.backlog,
        "oldest_due_at": documents.instant(row.oldest_due_at),
        "leases": row.leases,
        "workers": row.workers,
        "last_polled_at": documents.instant(row.last_polled_at),
        "paused_at": documents.instant(row.paused_at),
        "created_at": documents.instant(row.created_at),
    }


def queue_state(row: QueueRow) -> tuple[str, str | None]:
    """A queue's state, and what people should know of it."""
    if row.paused_at is not None:
        return "PAUSED", "The queue is paused: nothing is handed out."
    silent = int((row.now - (row.last_polled_at or row.created_at)).total_seconds())
    if row.backlog == 0:
        return ("OK" if row.workers else "IDLE"), None
    if silent < NO_WORKER_SECONDS:
        return "OK", None
    minutes = silent // 60
    unit = "minute" if minutes == 1 else "minutes"
    if row.last_polled_at is None:
        return "NO_WORKER", f"No worker has ever polled this queue; tasks have waited for {minutes} {unit}."
    return "NO_WORKER", f"No worker has polled this queue for {minutes} {unit}."
