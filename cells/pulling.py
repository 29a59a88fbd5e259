"""Pull workers: what the store does for them (a part of `ports.Store`), and the values it speaks in."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cells.domain.ids import RunKey
from cells.domain.run import Attempt, RunState
from cells.records import Claim, Fence, Reaped

#: A queue: tenant and name.
QueueId = tuple[uuid.UUID, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Poller:
    """A worker that asks for tasks of one queue."""

    tenant_id: uuid.UUID
    task_queue: str
    worker_id: str
    count: int  # at most


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """A claim of a worker, by its epoch."""

    tenant_id: uuid.UUID
    key: RunKey
    epoch: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PulledTask:
    """A task that a poll got."""

    claim: Claim
    lease_expires_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Beat:
    """A heartbeat. `progress` is JSON, None leaves it as it was."""

    held: Held
    progress: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Extended:
    """What a heartbeat did."""

    lease_expires_at: datetime
    lease_ms: int
    cancel_requested: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class PulledRun:
    """A run as its completion needs it; `claim` is as of the last claim."""

    claim: Claim
    state: RunState
    cancel_requested: bool
    worker: str | None
    attempts: Sequence[Attempt]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSeen:
    """A worker asked for tasks, or said goodbye."""

    tenant_id: uuid.UUID
    task_queue: str
    worker_id: str
    left: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueRow:
    """A queue with what waits in it. Counts are exact up to `COUNT_LIMIT`."""

    task_queue: str
    backlog: int
    oldest_due_at: datetime | None
    leases: int
    workers: int  # seen within WORKER_SEEN_SECONDS
    last_polled_at: datetime | None
    paused_at: datetime | None
    created_at: datetime
    now: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRow:
    """A worker of a queue."""

    worker_id: str
    first_seen_at: datetime
    last_seen_at: datetime
    left_at: datetime | None
    leases: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRow:
    """A task under way at a worker."""

    key: RunKey
    worker: str | None
    attempt: int
    claimed_at: datetime
    heartbeat_at: datetime | None
    lease_expires_at: datetime
    progress: bytes | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseLook:
    """All pull leases of the cell at one moment."""

    live: int
    expired: int  # ended longer ago than the margin
    interval_s: float  # the longest heartbeat interval among the expired
    contact_age_s: float | None  # since the last heartbeat or poll; None: there never was one


#: Backlogs and leases are counted up to here.
COUNT_LIMIT = 10_000
#: A worker that polled longer ago is not counted among a queue's workers.
WORKER_SEEN_SECONDS = 60


class PullStore(Protocol):
    """Tasks of pull workers."""

    async def poll(self, pollers: Sequence[Poller], *, host_id: int) -> Sequence[Sequence[PulledTask]]:
        """One transaction for many pollers: READY tasks become RUNNING under the next epoch, by class
        and then by due time, shared evenly among the pollers of a queue. What each one got."""
        ...

    async def give_back(self, held: Sequence[Held], *, host_id: int) -> Sequence[QueueId | None]:
        """Claims whose work was not done become READY at once, the attempt not counted (CANCELLED
        where that was asked for). The queue of each; None where the epoch is not the run's."""
        ...

    async def give_back_of(self, worker: WorkerSeen, *, host_id: int) -> int:
        """All that a worker of a queue holds; how many."""
        ...

    async def heartbeat(self, beats: Sequence[Beat], *, host_id: int) -> Sequence[Extended | None]:
        """Extend leases and keep progress; None where the epoch is not the run's."""
        ...

    async def pulled_runs(self, wanted: Sequence[Held]) -> Sequence[PulledRun | None]:
        """The runs of those keys, whatever their epoch; None where there is none."""
        ...

    async def saw_workers(self, seen: Sequence[WorkerSeen], *, host_id: int) -> None:
        """Keep who polled. Queues that were starved recover, and people hear of it."""
        ...

    async def task_queues(self, tenant_id: uuid.UUID, *, name: str | None = None) -> Sequence[QueueRow]:
        """The queues of a tenant by name, or the one of that name."""
        ...

    async def queue_workers(self, tenant_id: uuid.UUID, name: str, *, limit: int) -> Sequence[WorkerRow]:
        """Who polled a queue, the latest first."""
        ...

    async def queue_leases(self, tenant_id: uuid.UUID, name: str, *, limit: int) -> Sequence[LeaseRow]:
        """What is under way, the oldest claim first."""
        ...

    async def pause_queue(self, fence: Fence, name: str, *, paused: bool, actor: str, host_id: int) -> None:
        """Hand out nothing more, or again. The same again changes nothing."""
        ...

    async def tell_starved(self, *, after_seconds: int, host_id: int) -> int:
        """Tell people of queues with tasks that nobody has polled for that long; how many."""
        ...

    async def tell_silent(self, *, mode: str, host_id: int) -> int:
        """Tell the tenants whose workers are silent what the reaper does about it; how many."""
        ...

    async def look_at_leases(self) -> LeaseLook:
        """How the leases of workers are, over all tenants."""
        ...

    async def reap_pulled(self, *, host_id: int, limit: int) -> Reaped:
        """Take back runs whose worker was silent for its lease and 5 s, the oldest first: as `reap`."""
        ...
