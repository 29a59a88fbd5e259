"""Durable workflows: what the store does for them (a part of `ports.Store`), and the values it speaks in."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from cells.domain.ids import RunKey
from cells.domain.job import JobDefinition
from cells.domain.workflow.events import Event
from cells.job_workflows import JobEnd, JobStart
from cells.pulling import PullStore
from cells.records import Completion, Conflict, Fence, Member, TenantConfig

#: Executions that a page of a list looks at, at most.
WORKFLOWS_LOOKED_AT = 20_000
#: Characters of a result or an error kept at the pointer; the history has them whole.
SUMMARY_LIMIT = 4096


class WorkflowIdInUse(Conflict):
    """Another execution is open under that workflow id (409)."""


class SignalsWait(Conflict):
    """So many signals wait for that execution that it takes no more for a moment (429)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DefinitionRow:
    """A registered version."""

    name: str
    version: int
    source: str
    created_by: str
    created_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowRow:
    """Where one execution stands."""

    tenant_id: uuid.UUID
    run_id: uuid.UUID
    workflow_id: str
    shard: int
    status: str
    definition: str
    version: int
    input_hash: bytes
    region_policy: str
    next_seq: int
    epoch: int
    takeovers: Sequence[Sequence[int]]
    decide_at: datetime | None
    timer_at: datetime | None
    history_bytes: int
    parent: Mapping[str, Any] | None
    started_at: datetime
    closed_at: datetime | None
    result: bytes | None
    error: str | None
    previous: WorkflowRow | None = None  # of one that a start has just begun: which had the id before


@dataclass(frozen=True, kw_only=True, slots=True)
class NewExecution:
    """An execution that begins. `first_events` are encoded; the last sequence is their number."""

    run_id: uuid.UUID
    workflow_id: str
    definition: str
    version: int
    input_hash: bytes
    region_policy: str
    parent: Mapping[str, Any] | None
    events: Sequence[tuple[str, int, bytes]]  # type, epoch ms, data
    signals: Sequence[bytes] = ()  # to be recorded next
    follows: uuid.UUID | None = None  # the execution that goes on in it: they are one chain
    reuse: bool = True  # of the id, once whatever had it is closed


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxItem:
    """What waits to be recorded."""

    position: int
    kind: str
    data: bytes
    at_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """An execution that is locked, with what waits for it."""

    row: WorkflowRow
    holds_id: bool
    ownership_epoch: int
    config: TenantConfig
    now_ms: int
    inbox: Sequence[InboxItem]


@dataclass(frozen=True, kw_only=True, slots=True)
class NewActivity:
    """A run of a step. The instant is the second in which it was scheduled; it is due then, or later."""

    at_ms: int
    due_ms: int
    seq: int
    version: int
    spec: JobDefinition
    input: bytes


@dataclass(kw_only=True, slots=True)
class Turn:
    """What one execution does in one transaction. All instants are epoch milliseconds."""

    taken: Taken
    events: list[tuple[int, str, int, bytes]] = field(default_factory=list)  # seq, type, at, data
    status: str = ""
    open: bool = True
    version: int = 0
    decide_at: int | None = None
    timer_at: int | None = None
    result: bytes | None = None
    error: str | None = None
    steps: int = 0  # that ended
    begun: int = 0  # that began
    size: int = 0  # bytes appended
    activities: list[NewActivity] = field(default_factory=list)
    stopped: list[tuple[int, int]] = field(default_factory=list)  # second, seq of activities
    started: list[tuple[NewExecution, int]] = field(default_factory=list)  # children, and their events
    successor: NewExecution | None = None  # of the same workflow id
    told: list[tuple[uuid.UUID, str, bytes]] = field(default_factory=list)  # run, kind, data
    told_ids: list[tuple[str, str, bytes]] = field(default_factory=list)  # workflow id, kind, data
    forwarded: list[tuple[str, bytes]] = field(default_factory=list)  # kind, data: to who goes on instead
    unsure: bool = False  # it undoes what may not have happened
    ends_run: RunKey | None = None  # of the job that waits for it
    letters: list[tuple[int, int, str, str]] = field(default_factory=list)  # at, seq, step, error
    letters_closed: bool = False
    happened: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)  # events people hear of


class Planner(Protocol):
    """Decides for locked executions. Pure but for what it remembers."""

    def knows(self, row: WorkflowRow) -> bool:
        """Whether it needs no history for this one."""

    def wanted(self, taken: Taken) -> Sequence[tuple[str, int]]:
        """Definitions (name, version; 0: the newest) that it does not know."""

    def learn(self, tenant_id: uuid.UUID, name: str, asked: int, version: int, source: str) -> None:
        """The text of a definition."""

    def remember(self, row: WorkflowRow, events: Sequence[Event]) -> None:
        """A whole history."""

    def plan(self, taken: Taken) -> Turn | None:
        """What this one does now; None where nothing at all is to be written."""

    def put_off(self, taken: Taken, fault: Exception) -> Turn:
        """What is written instead where that went wrong: nothing is recorded, it is looked at later."""

    def forget(self, keys: Iterable[tuple[int, int]]) -> None:
        """Executions (tenant, run) that were not written as they were decided."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stepped:
    """What one round of the engine did."""

    taken: int  # executions that were due
    turns: Sequence[Turn]
    members: Sequence[Member]  # HTTP activities, to be added to buckets
    offered: Sequence[tuple[uuid.UUID, str]]  # task queues that got tasks
    more: bool  # there is more at once


@dataclass(frozen=True, kw_only=True, slots=True)
class Signalled:
    """What became of a signal."""

    run_id: uuid.UUID
    status: str  # accepted | duplicate | late


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundWorkflows:
    """A page. `reached`: it looked as far as it may, there is more behind."""

    rows: Sequence[WorkflowRow]
    reached: tuple[datetime, uuid.UUID] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredEvent:
    """An event as it is kept."""

    seq: int
    epoch: int
    type: str
    at: datetime
    data: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivityRun:
    """When an activity's run did what."""

    seq: int
    scheduled_for: datetime
    state: str
    attempt: int
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    next_attempt_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowFilter:
    """Which executions a list shows. All given conditions hold."""

    to_reconcile: bool = False  # stuck, or undid what may not have happened; alone, without the others
    status: str | None = None
    definition: str | None = None
    version: int | None = None
    prefix: str | None = None  # of the workflow id


class WorkflowStore(PullStore, Protocol):
    """Definitions, executions and their histories; and the tasks that many of their steps are."""

    async def put_definition(
        self, fence: Fence, *, name: str, version: int, source: str, actor: str, host_id: int
    ) -> tuple[DefinitionRow, bool]:
        """Register a version; False with what is there, whatever it says."""
        ...

    async def get_definition(
        self, tenant_id: uuid.UUID, name: str, version: int | None
    ) -> DefinitionRow | None:
        """One version, or the newest."""
        ...

    async def list_definitions(
        self, tenant_id: uuid.UUID, *, name: str | None, after: tuple[str, int] | None, limit: int
    ) -> Sequence[DefinitionRow]:
        """By name, the newest version first."""
        ...

    async def start_workflow(
        self, fence: Fence, new: NewExecution, *, host_id: int
    ) -> tuple[WorkflowRow, bool]:
        """Begin an execution; False with the one that the same start began before. `WorkflowIdInUse`
        where another one is open under the id, `QuotaExceeded` past the tenant's timers."""
        ...

    async def start_workflows(
        self, asked: Sequence[tuple[Fence, NewExecution]], *, host_id: int
    ) -> Sequence[tuple[WorkflowRow, bool] | Exception]:
        """The same for many, in one transaction. For each what `start_workflow` answers, or raises."""
        ...

    async def get_workflow(
        self, tenant_id: uuid.UUID, workflow_id: str, run_id: uuid.UUID | None = None
    ) -> WorkflowRow | None:
        """The execution a workflow id means: the open one, else the latest; or one of its others."""
        ...

    async def workflow_has_left(self, tenant_id: uuid.UUID, workflow_id: str) -> bool:
        """Whether executions of that id are in the lake."""
        ...

    async def list_workflows(
        self,
        tenant_id: uuid.UUID,
        where: WorkflowFilter,
        *,
        after: tuple[datetime, uuid.UUID] | None,
        limit: int,
        looks: int = WORKFLOWS_LOOKED_AT,
    ) -> FoundWorkflows:
        """The latest start first."""
        ...

    async def workflow_history(
        self, tenant_id: uuid.UUID, run_id: uuid.UUID, *, after: int, limit: int
    ) -> Sequence[StoredEvent]: ...
    async def workflow_runs(self, tenant_id: uuid.UUID, run_id: uuid.UUID) -> Sequence[ActivityRun]: ...

    async def signal_workflow(
        self,
        fence: Fence,
        *,
        workflow_id: str,
        signal_id: str,
        name: str,
        payload: bytes,
        actor: str,
        host_id: int,
        again_only: bool = False,
    ) -> Signalled | None:
        """Put a signal into the inbox, once per `signal_id` (`again_only`: or not now); what the history will
        say of it is settled by then. `Conflict` where the id came with something else, or the history is
        full, `SignalsWait` where too many wait; None: no such workflow, or nothing came before."""
        ...

    async def tell_workflow(
        self,
        fence: Fence,
        *,
        workflow_id: str,
        kind: str,
        data: bytes,
        actor: str,
        host_id: int,
        run_id: uuid.UUID | None = None,
    ) -> WorkflowRow | None:
        """Put CANCEL, TERMINATE or RESOLVE into the inbox of the execution that the id means, or of another
        one of it. None: no such workflow; `Conflict` where its state does not allow it."""
        ...

    async def change_workflow(
        self,
        fence: Fence,
        *,
        workflow_id: str,
        change: Callable[[Taken, Sequence[Event]], Turn],
        host_id: int,
        idempotency: tuple[str, str, bytes] | None = None,
    ) -> tuple[WorkflowRow, bool] | None:
        """Append to a history at once what `change` says of it; the execution that the workflow id means
        then, and whether that was done before under the key (route, key, fingerprint of the body): then it
        is the one of then. What `change` raises changes nothing."""
        ...

    async def engine_hosts(self) -> Sequence[int]:
        """Live hosts with the role `engine`, the oldest first."""
        ...

    async def workflow_step_rates(self, tenants: Sequence[uuid.UUID]) -> Mapping[uuid.UUID, float]:
        """How many steps a second the workflows of some tenants may begin."""
        ...

    async def step_workflows(
        self,
        planner: Planner,
        *,
        shards: Sequence[int],
        but_not: Sequence[uuid.UUID],
        limit: int,
        host_id: int,
        anew: bool = True,
        also: Sequence[tuple[uuid.UUID, uuid.UUID]] = (),
    ) -> Stepped:
        """One transaction: lock executions that are due (and `also` some), have the planner decide, write.
        What cannot be decided or written is put off, and keeps nothing else up. `anew`: look at all."""
        ...

    async def job_workflows_todo(self) -> tuple[bool, bool]:
        """Whether workflows of jobs are to start, and whether any have ended. Cheap."""
        ...

    async def start_job_workflows(
        self,
        workflow_id: Callable[[RunKey], str],
        begin: Callable[[JobStart], NewExecution | str],
        *,
        limit: int,
        host_id: int,
    ) -> int:
        """Begin the workflows of claimed runs, in one transaction; how many runs that was. `begin` says
        how, or what is wrong with it: then the run fails. A run that was cancelled begins none."""
        ...

    async def end_job_workflows(
        self, finish: Callable[[JobEnd], Completion], *, limit: int, host_id: int
    ) -> tuple[int, Sequence[Member]]:
        """Complete the runs whose workflows have ended; how many that was, and the timers to add."""
        ...

    async def next_workflow_timer(
        self,
        shards: Sequence[int],
        but_not: Sequence[uuid.UUID] = (),
        *,
        within_ms: int = ...,
        anew: bool = True,
    ) -> datetime | None:
        """Some shards' earliest timer so soon, of active tenants but some. `anew` as in `step_workflows`."""
        ...
