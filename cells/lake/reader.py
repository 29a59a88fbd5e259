"""Reading runs that are in the lake only (`ports.History`)."""

from __future__ import annotations

import time as clock
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import msgspec

from cells.domain.ids import RunKey
from cells.domain.run import Attempt, RunState
from cells.history import LakeDay
from cells.lake.cache import Cache
from cells.lake.engine import Engine
from cells.lake.files import LakeFiles
from cells.lake.workflows import WorkflowReader
from cells.ports import FoundRuns, RunFilter, RunRow, Store
from cells.workflow_ports import FoundWorkflows, StoredEvent, WorkflowFilter, WorkflowRow

_DAY = timedelta(days=1)
_LOWEST = uuid.UUID(int=0)
#: One request looks for so long (seconds), and its caller may go on from where it ended.
PATIENCE = 5.0
#: A day leaves the store once; until this is over somebody may not know it yet (seconds).
_CALENDAR_KEPT = 5.0

_attempts = msgspec.json.Decoder(list[Attempt]).decode


class LakeReader:
    """Every question is about one tenant: its id is part of each statement."""

    def __init__(self, store: Store, files: LakeFiles, scratch: Path, *, patience: float = PATIENCE) -> None:
        self._store, self._scratch, self._patience = store, scratch, patience
        self._cache = Cache(files, scratch)
        self._engine: Engine | None = None
        self._workflows = WorkflowReader(store, self._cache, self._made_engine, patience=patience)
        self._calendar: tuple[float, list[LakeDay]] = (float("-inf"), [])

    async def newest_day(self) -> date | None:
        """See `ports.History`; so everywhere here."""
        days = await self._dropped()
        return days[-1].day if days else None

    async def get_run(self, tenant_id: uuid.UUID, key: RunKey) -> RunRow | None:
        wanted = key.scheduled_for.astimezone(UTC).date()
        parameters = _parameters(tenant_id, RunFilter(job_id=key.parent_id), at=key, limit=1, exact=True)
        for day in await self._dropped():
            if day.day == wanted:
                for row in await self._rows(day, parameters, self._patience):
                    return run_row(tenant_id, row)
        return None

    async def find_runs(
        self, tenant_id: uuid.UUID, where: RunFilter, *, after: RunKey | None, limit: int
    ) -> FoundRuns:
        until = clock.monotonic() + self._patience
        found: list[RunRow] = []
        for day in reversed(await self._dropped()):
            start = datetime.combine(day.day, time(), UTC)
            if where.scheduled_from is not None and start + _DAY <= where.scheduled_from:
                break
            if where.scheduled_until is not None and start >= where.scheduled_until:
                continue
            if after is not None and start > after.scheduled_for:
                continue
            left = until - clock.monotonic()
            if left <= 0:
                return FoundRuns(runs=found, reached=_before(start + _DAY))
            parameters = _parameters(tenant_id, where, at=after, limit=limit - len(found))
            try:
                rows = await self._rows(day, parameters, left)
            except TimeoutError:
                if not found and left > self._patience * 0.9:
                    raise  # one day alone takes longer: going on from it would never end
                return FoundRuns(runs=found, reached=_before(start + _DAY))
            found.extend(run_row(tenant_id, row) for row in rows)
            if len(found) >= limit:
                break
        return FoundRuns(runs=found)

    async def _rows(
        self, day: LakeDay, parameters: dict[str, object], seconds: float
    ) -> list[dict[str, Any]]:
        files = await self._store.lake_files(day.day)
        if not files:
            return []
        paths = await self._cache.paths(list(files))
        name = "lake_latest_runs" if day.overlapping else "lake_runs"
        return await self._made_engine().ask(name, paths, parameters, seconds=seconds)

    def _made_engine(self) -> Engine:
        if self._engine is None:
            self._engine = Engine(self._scratch)
        return self._engine

    async def get_workflow(
        self, tenant_id: uuid.UUID, workflow_id: str, run_id: uuid.UUID | None
    ) -> WorkflowRow | None:
        return await self._workflows.get_workflow(tenant_id, workflow_id, run_id)

    async def workflows_began_until(self, tenant_id: uuid.UUID) -> datetime | None:
        return max(
            (of.began_until for of in await self._store.lake_workflow_files_of(tenant_id)), default=None
        )

    async def list_workflows(
        self,
        tenant_id: uuid.UUID,
        where: WorkflowFilter,
        *,
        after: tuple[datetime, uuid.UUID] | None,
        limit: int,
    ) -> FoundWorkflows:
        return await self._workflows.list_workflows(tenant_id, where, after=after, limit=limit)

    async def workflow_history(
        self, tenant_id: uuid.UUID, row: WorkflowRow, *, after: int, limit: int
    ) -> Sequence[StoredEvent]:
        return await self._workflows.workflow_history(tenant_id, row, after=after, limit=limit)

    async def _dropped(self) -> list[LakeDay]:
        read_at, days = self._calendar
        if clock.monotonic() - read_at > _CALENDAR_KEPT:
            days = [day for day in await self._store.lake_calendar() if day.dropped_at is not None]
            self._calendar = (clock.monotonic(), days)
        return days


def _before(at: datetime) -> RunKey:
    """The place before which everything scheduled at `at` or later was looked at."""
    return RunKey(parent_id=_LOWEST, scheduled_for=at, ordinal=-(2**31))


def _parameters(
    tenant_id: uuid.UUID, where: RunFilter, *, at: RunKey | None, limit: int, exact: bool = False
) -> dict[str, object]:
    return {
        "tenant": str(tenant_id),
        "parent": None if where.job_id is None else str(where.job_id),
        "exact": exact,
        "at": None if at is None else at.scheduled_for,
        "after_parent": None if at is None else str(at.parent_id),
        "ordinal": None if at is None else at.ordinal,
        "from": where.scheduled_from,
        "until": where.scheduled_until,
        "due_from": where.due_from,
        "due_until": where.due_until,
        "finished_from": where.finished_from,
        "finished_until": where.finished_until,
        "states": [state.value for state in where.states] or None,
        "target": where.target_id,
        "limit": limit,
    }


def run_row(tenant_id: uuid.UUID, row: Mapping[str, Any]) -> RunRow:
    """From a row of the lake. What belongs to runs under way only is empty, and what was not written yet
    when its file was."""
    value: Callable[[str], Any] = row.get

    return RunRow(
        tenant_id=tenant_id,
        key=RunKey(
            parent_id=uuid.UUID(row["parent_id"]),
            scheduled_for=row["scheduled_for"].astimezone(UTC),
            ordinal=value("ordinal"),
        ),
        kind=value("kind"),
        state=RunState(row["state"]),
        priority=value("priority"),
        version=value("version"),
        epoch=value("epoch"),
        series=value("series"),
        attempt=value("attempt"),
        timer_at=None,
        lease_expires_at=None,
        due_at=row["due_at"].astimezone(UTC),
        released_at=_utc(value("released_at")),
        claimed_at=_utc(value("claimed_at")),
        started_at=_utc(value("started_at")),
        finished_at=_utc(value("finished_at")),
        cancel_requested=value("cancel_requested"),
        target_id=value("target_id"),
        http_status=value("http_status"),
        reason=value("reason"),
        skipped=value("skipped"),
        attempts=_attempts(row["attempts"]),
    )


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)
