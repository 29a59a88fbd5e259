"""What the API shows of task queues, typed; see `documents.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.client.decoding import Document


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueWorker(Document):
    """A worker that polled a queue, and how many tasks of it it holds."""

    worker_id: str
    first_seen_at: datetime | None
    last_seen_at: datetime | None
    left_at: datetime | None
    leases: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueLease(Document):
    """A task of a queue that is under way. `progress` is None where it is not shown, too."""

    run_id: str
    job_id: str
    worker_id: str | None
    attempt: int
    claimed_at: datetime | None
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    progress: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskQueue(Document):
    """A queue that workers poll. `backlog` and `leases` are counted up to 10,000; `seen` and `held` are
    there of a queue that was read by its name."""

    task_queue: str
    state: str  # OK, PAUSED, IDLE, NO_WORKER
    reason: str | None
    backlog: int
    oldest_due_at: datetime | None
    leases: int
    workers: int  # that polled within the last minute
    last_polled_at: datetime | None
    paused_at: datetime | None
    created_at: datetime | None
    seen: Sequence[QueueWorker] = ()
    held: Sequence[QueueLease] = ()
