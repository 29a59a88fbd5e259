"""How task queues look in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.markup import escape

from controlplane.client.cli.tables import card, state, table
from controlplane.client.cli.wording import moment
from controlplane.client.queue_documents import TaskQueue


def queues_table(queues: Sequence[TaskQueue], now: datetime) -> RenderableType:
    """Queues by name."""
    if not queues:
        return "No task queues. A queue is there from its first task, or its first worker, on."
    numbers = ("waiting", "under way", "workers")
    made = table("queue", "state", *numbers, "oldest due", "last poll", "reason", right=numbers)
    for queue in queues:
        made.add_row(
            escape(queue.task_queue),
            state(queue.state),
            str(queue.backlog),
            str(queue.leases),
            str(queue.workers),
            moment(queue.oldest_due_at, now),
            moment(queue.last_polled_at, now),
            escape(queue.reason or ""),
        )
    return made


def queue_card(queue: TaskQueue, now: datetime) -> RenderableType:
    """One queue with its workers and what they hold."""
    facts = card(
        (
            ("queue", queue.task_queue),
            ("state", state(queue.state)),
            ("reason", queue.reason),
            ("waiting", queue.backlog),
            ("oldest due", moment(queue.oldest_due_at, now)),
            ("under way", queue.leases),
            ("last poll", moment(queue.last_polled_at, now)),
        )
    )
    workers = table("worker", "last seen", "left", "holds", right=("holds",))
    for worker in queue.seen:
        workers.add_row(
            escape(worker.worker_id),
            moment(worker.last_seen_at, now),
            moment(worker.left_at, now),
            str(worker.leases),
        )
    held = table("run", "worker", "attempt", "heartbeat", "lease ends", "progress", right=("attempt",))
    for lease in queue.held:
        held.add_row(
            lease.run_id,
            escape(lease.worker_id or "–"),
            str(lease.attempt),
            moment(lease.heartbeat_at, now),
            moment(lease.lease_expires_at, now),
            "–" if lease.progress is None else escape(str(lease.progress)),
        )
    parts: list[RenderableType] = [facts]
    parts += ["", workers] if queue.seen else []
    parts += ["", held] if queue.held else []
    return Group(*parts)
