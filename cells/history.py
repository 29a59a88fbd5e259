"""The history lake: what the store gives it, and what reads it (parts of `ports`).

A day of finished runs is written to Parquet while it is still in the store; once it is old, verified
and metered it is in the lake only.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Protocol

from cells.domain.ids import RunKey
from cells.insight import FoundRuns, RunFilter
from cells.records import RunRow
from cells.workflow_ports import FoundWorkflows, StoredEvent, WorkflowFilter, WorkflowRow

#: What the lake keeps of a run, in this order; `attempts` is JSON (`domain.run.Attempt`).
COLUMNS = (
    *("tenant_id", "parent_id", "scheduled_for", "ordinal", "kind", "state", "priority", "version", "epoch"),
    *("series", "attempt", "due_at", "released_at", "claimed_at", "started_at", "finished_at"),
    *("cancel_requested", "target_id", "http_status", "reason", "skipped", "attempts"),
    *("task_queue", "worker", "at_most_once"),
)
#: One row in that order. The ids are texts.
LakeRow = tuple[Any, ...]
#: A place among a day's runs: tenant, instant, parent, ordinal.
LakePlace = tuple[uuid.UUID, datetime, uuid.UUID, int]
#: A closed execution with all of its events.
OldWorkflow = tuple[WorkflowRow, Sequence[StoredEvent]]


@dataclass(frozen=True, kw_only=True, slots=True)
class LakeFile:
    """A Parquet file of the lake."""

    name: str  # below the lake's root
    rows: int
    size: int  # bytes
    sha256: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantsFile:
    """A file that may hold executions of a tenant."""

    day: date  # on which they were closed
    file: LakeFile
    began_until: datetime  # none of them began later


@dataclass(frozen=True, kw_only=True, slots=True)
class LakeDay:
    """A day of runs, by `scheduled_for` in UTC."""

    day: date
    partitioned: bool  # its partition is in the store
    generation: int = 0  # 0: never written
    rows: int = 0
    unfinished: int = 0  # were not over at the last look
    overlapping: bool = False  # later states of the same runs may be in further files
    looked_at: datetime | None = None
    dropped_at: datetime | None = None  # since then it is in the lake only
    now: datetime  # the database's time


@dataclass(frozen=True, kw_only=True, slots=True)
class DayCheck:
    """A page of a day: what it adds up to, and where the next one begins."""

    rows: int
    unfinished: int
    digest: int  # sum of the rows' fingerprints
    last: LakePlace | None  # None: the page was empty


class WorkflowHistoryStore(Protocol):
    """Closed workflows on their way into the lake; all tenants together."""

    async def lake_old_workflows(self, *, before: datetime, limit: int) -> Sequence[OldWorkflow]:
        """Executions closed before that, the oldest first, as many as fit into memory."""
        ...

    async def lake_workflows_leave(self, day: date, file: LakeFile, workflows: Sequence[OldWorkflow]) -> int:
        """Make a file part of the lake, and delete what is in it, if all of that is still as it was
        written; how many, else 0."""
        ...

    async def lake_workflow_files_of(self, tenant_id: uuid.UUID) -> Sequence[TenantsFile]:
        """Files that may hold executions of a tenant, those with the latest start first."""
        ...

    async def lake_workflow_files(self) -> Sequence[tuple[date, LakeFile]]:
        """Every file with the day its executions were closed on, the latest first."""
        ...

    async def lake_workflow_expire(self, *, before: date) -> Sequence[str]:
        """Forget files of days before that one; what they were called."""
        ...


class HistoryStore(WorkflowHistoryStore, Protocol):
    """The lake's side of the store. Days, files and deletions; all tenants together."""

    async def lake_take(self, *, host_id: int, seconds: float) -> bool:
        """Become or stay the one who writes the lake, for so long."""
        ...

    async def lake_leave(self, *, host_id: int) -> None:
        """Be it no more."""
        ...

    async def lake_calendar(self) -> Sequence[LakeDay]:
        """Every day that is here or in the lake, oldest first."""
        ...

    async def lake_files(self, day: date) -> Sequence[LakeFile]: ...
    async def lake_file_names(self) -> frozenset[str]: ...

    async def lake_page(
        self, day: date, *, after: LakePlace | None, ended_from: datetime | None, limit: int
    ) -> Sequence[LakeRow]:
        """Runs of a day that are over, in the order of `LakePlace`; only those that ended since."""
        ...

    async def lake_check(self, day: date, *, after: LakePlace | None, limit: int) -> DayCheck: ...

    async def lake_commit(
        self,
        day: date,
        *,
        base: int,
        files: Sequence[LakeFile],
        further: bool,
        unfinished: int,
        looked_at: datetime,
        gone: bool = False,
    ) -> Sequence[str] | None:
        """Make files part of the lake, beside those of the day (`further`) or instead of them; the
        names of files that are no part of it any more. None: the generation is not `base`."""
        ...

    async def watch_runs_day(self, day: date) -> tuple[int, bool]:
        """Count changes of a day from now on: how many there were, and whether all that ended is metered.
        `Retryable` while its writers could not be interrupted."""
        ...

    async def drop_runs_day(self, day: date, *, seen: int) -> bool:
        """Drop a day's partition, unless something changed since `seen` was counted. `Retryable` when
        the table was too busy."""
        ...

    async def lake_strays(self, *, before: date, limit: int) -> Sequence[LakeRow]:
        """Runs of long past days outside of every partition, over and metered."""
        ...

    async def remove_strays(self, rows: Sequence[LakeRow]) -> int:
        """Delete those that still are what was written."""
        ...

    async def lake_expire(self, *, before: date) -> int:
        """Forget days of the lake before that one; how many."""
        ...

    async def runs_horizon(self) -> datetime | None:
        """No run in the store is scheduled before. None: there is none at all."""
        ...

    async def purge_jobs(
        self,
        *,
        ended_before: datetime,
        replaced: tuple[datetime, datetime],
        failed_before: datetime,
        page: int,
    ) -> dict[str, int]:
        """Delete a page each of jobs that ended, versions that were `replaced` between two times, and
        dead letters; how many of each."""
        ...


class History(Protocol):
    """Reads runs that are in the lake only, of one tenant at a time. Raises `Retryable` when the lake
    cannot be read."""

    async def get_run(self, tenant_id: uuid.UUID, key: RunKey) -> RunRow | None: ...

    async def get_workflow(
        self, tenant_id: uuid.UUID, workflow_id: str, run_id: uuid.UUID | None
    ) -> WorkflowRow | None:
        """The latest execution of a workflow id that is in the lake only, or a certain one."""
        ...

    async def workflows_began_until(self, tenant_id: uuid.UUID) -> datetime | None:
        """No execution of a tenant that is in the lake only began later; None where there are none."""
        ...

    async def list_workflows(
        self,
        tenant_id: uuid.UUID,
        where: WorkflowFilter,
        *,
        after: tuple[datetime, uuid.UUID] | None,
        limit: int,
    ) -> FoundWorkflows:
        """The latest start first, as `WorkflowStore.list_workflows`. `reached`: time was up."""
        ...

    async def workflow_history(
        self, tenant_id: uuid.UUID, row: WorkflowRow, *, after: int, limit: int
    ) -> Sequence[StoredEvent]:
        """Its events behind a sequence, in their order."""
        ...

    async def newest_day(self) -> date | None:
        """The last day that is in the lake only. None: there is none."""
        ...

    async def find_runs(
        self, tenant_id: uuid.UUID, where: RunFilter, *, after: RunKey | None, limit: int
    ) -> FoundRuns:
        """Newest scheduled first, as `ports.Store.find_runs`. `reached`: time was up."""
        ...
