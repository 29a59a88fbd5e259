"""Bulk changes of jobs and dead letters: what they are, and what the store does for them (a part of
`ports.Store`)."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from cells.domain.ids import RunKey
from cells.records import Fence, JobFilter, JobRow, Member


class BulkAction(enum.StrEnum):
    """What is done to the jobs, or the dead letters, of a selection."""

    PAUSE = "pause"  # ACTIVE ones
    RESUME = "resume"  # PAUSED ones
    CANCEL = "cancel"  # ACTIVE and PAUSED ones
    REDRIVE = "redrive"  # open letters: their runs begin anew
    PURGE = "purge"  # open letters: done with


#: What is done to jobs, and what to dead letters.
JOB_ACTIONS = (BulkAction.PAUSE, BulkAction.RESUME, BulkAction.CANCEL)
LETTER_ACTIONS = (BulkAction.REDRIVE, BulkAction.PURGE)


@dataclass(frozen=True, kw_only=True, slots=True)
class LetterFilter:
    """Which open dead letters. All given conditions hold."""

    target_id: str | None = None
    fingerprint: str | None = None
    job_id: uuid.UUID | None = None
    reason: str | None = None
    failed_from: datetime | None = None
    failed_until: datetime | None = None
    runs: Sequence[RunKey] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectionRow:
    """Jobs or letters that were chosen at one moment: exactly these, whatever the filter finds later."""

    selection_id: uuid.UUID
    action: BulkAction
    described: bytes  # the filter, JSON
    count: int
    hash: str  # hex; of the action and the ids
    created_by: str
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationRow:
    """A selection being worked through. position = done + unchanged + failed."""

    tenant_id: uuid.UUID
    operation_id: uuid.UUID
    selection_id: uuid.UUID
    action: BulkAction
    state: str  # RUNNING | STOPPED | DONE
    total: int
    position: int
    done: int
    unchanged: int
    failed: int
    reasons: dict[str, int]  # why items failed
    failures: Sequence[tuple[str, str]]  # the first few: job (uuid hex) or run id, and reason
    max_per_second: int
    created_by: str
    created_at: datetime
    finished_at: datetime | None
    stopped_by: str | None
    stages: Sequence[int] = ()  # positions at which it waits to see how those before did
    stop_reason: str | None = None  # why it stopped by itself

    @property
    def stage(self) -> str | None:
        """Where a redrive is: at the `first` of each fingerprint, at `ten` more of each, or at the
        `rest`; None when it is over or has no stages."""
        if self.state != "RUNNING" or not self.stages:
            return None
        first, ten = self.stages
        return "first" if self.position <= first else "ten" if self.position <= ten else "rest"


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationStep:
    """A slice of an operation that was committed, and the timers that changed with it."""

    operation: OperationRow
    removed: Sequence[Member]
    added: Sequence[Member]


class BulkStore(Protocol):
    """Selections and the operations over them."""

    async def create_selection(
        self,
        fence: Fence,
        *,
        selection_id: uuid.UUID,
        action: BulkAction,
        where: JobFilter,
        job_ids: Sequence[uuid.UUID] | None,
        described: bytes,
        expires_at: datetime,
        actor: str,
        host_id: int,
        idempotency: tuple[str, str, bytes] | None = None,
    ) -> tuple[SelectionRow, bool]:
        """Freeze the ids of the jobs that the filter finds now (among `job_ids`, if given), in the
        states the action can change. `Terminal` when they are too many, `QuotaExceeded` when the tenant
        has as many selections open as it may. True with what was made before under `idempotency` (route,
        key, fingerprint of the body); `KeyReused` if that was something else."""
        ...

    async def get_selection(self, tenant_id: uuid.UUID, selection_id: uuid.UUID) -> SelectionRow | None: ...
    async def selection_sample(self, tenant_id: uuid.UUID, selection_id: uuid.UUID) -> Sequence[JobRow]: ...
    async def start_operation(
        self,
        fence: Fence,
        *,
        selection_id: uuid.UUID,
        operation_id: uuid.UUID,
        max_per_second: int,
        actor: str,
        host_id: int,
        idempotency: tuple[str, str, bytes] | None = None,
    ) -> tuple[OperationRow, bool]:
        """Begin to work through a selection; False with the operation that was begun before. `KeyReused` if
        another body came under `idempotency` (as in `create_selection`)."""
        ...

    async def get_operation(self, tenant_id: uuid.UUID, operation_id: uuid.UUID) -> OperationRow | None: ...
    async def list_operations(
        self,
        tenant_id: uuid.UUID,
        *,
        state: str | None,
        after: tuple[datetime, uuid.UUID] | None,
        limit: int,
        actions: Sequence[BulkAction] = JOB_ACTIONS,
    ) -> Sequence[OperationRow]: ...
    async def stop_operation(
        self, fence: Fence, *, operation_id: uuid.UUID, actor: str, host_id: int
    ) -> OperationRow:
        """RUNNING to STOPPED. Stopping it again changes nothing; `Conflict` when it is DONE."""
        ...

    async def step_operation(self, *, host_id: int, now: datetime) -> OperationStep | None:
        """Work on the next slice of one operation whose turn has come, of any tenant; None if there
        is none. One transaction: the jobs and the position after them."""
        ...

    async def select_letters(
        self,
        fence: Fence,
        *,
        selection_id: uuid.UUID,
        action: BulkAction,
        where: LetterFilter,
        described: bytes,
        expires_at: datetime,
        actor: str,
        host_id: int,
        idempotency: tuple[str, str, bytes] | None = None,
    ) -> SelectionRow:
        """Freeze the open dead letters that the filter finds now. `Terminal` when they are too many. What was
        made before under `idempotency` (as in `create_selection`); `KeyReused` if that was something else."""
        ...

    async def letter_sample(
        self, tenant_id: uuid.UUID, selection_id: uuid.UUID
    ) -> Sequence[Mapping[str, Any]]:
        """The first letters of a selection, like `list_dlq`."""
        ...

    async def redrive_letter(
        self, fence: Fence, *, key: RunKey, actor: str, host_id: int
    ) -> Sequence[Member]:
        """Begin the run of one open letter anew. `Terminal` if it has none, `Conflict` if somebody was
        faster."""
        ...

    async def redriven_states(self, tenant_id: uuid.UUID, operation_id: uuid.UUID) -> Mapping[str, int]:
        """The states of the runs that an operation redrove; ten thousand are counted."""
        ...
