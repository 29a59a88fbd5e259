"""Closed workflows: out of the store into the lake, and read there."""

from __future__ import annotations

import asyncio
import time as clock
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta

from cells.history import LakeFile, OldWorkflow
from cells.lake.cache import Cache, fetch_verified
from cells.lake.engine import Engine
from cells.lake.files import LakeFiles
from cells.lake.writer import Place
from cells.ports import Store
from cells.scratch import scratch_folder
from cells.workflow_ports import FoundWorkflows, StoredEvent, WorkflowFilter, WorkflowRow

#: Executions that leave together.
PAGE = 2_000
#: Files of one question: most tenants have a few a day.
_AT_ONCE = 8
_LAST = uuid.UUID(int=2**128 - 1)


class WorkflowArchive:
    """Moves executions. A file is part of the lake, and what is in it no longer in the store, by one
    transaction; a crash before it leaves a file that is nobody's."""

    def __init__(
        self, store: Store, files: LakeFiles, place: Place, *, renew: Callable[[], Awaitable[None]]
    ) -> None:
        self._store, self._files, self._place, self._renew = store, files, place, renew

    async def move_out(self, cut: date, stop: asyncio.Event) -> int:
        """Executions that were closed before a day began; how many left."""
        before = datetime.combine(cut, time(), UTC)
        left = 0
        while not stop.is_set():
            page = await self._store.lake_old_workflows(before=before, limit=PAGE)
            of_day: defaultdict[date, list[OldWorkflow]] = defaultdict(list)
            for row, events in page:
                if row.closed_at is not None:
                    of_day[row.closed_at.astimezone(UTC).date()].append((row, events))
            gone = 0
            for day, some in sorted(of_day.items()):
                gone += await self._move(day, some)
                await self._renew()
            left += gone
            if not gone:
                break
        return left

    async def _move(self, day: date, some: Sequence[OldWorkflow]) -> int:
        from cells.lake.workflow_files import workflows_prefix, write_file

        prefix = workflows_prefix(region=self._place.region, cell=self._place.cell)
        with scratch_folder("lake") as folder:
            file, path = await asyncio.to_thread(write_file, folder, some, prefix=prefix, day=day)
            await asyncio.to_thread(self._files.put, file.name, path)
            # What leaves the store has been read back.
            await asyncio.to_thread(fetch_verified, self._files, file, folder / "read-back")
        gone = await self._store.lake_workflows_leave(day, file, some)
        if gone:
            return gone
        await asyncio.to_thread(self._files.delete, [file.name])
        await self._renew()
        half = len(some) // 2
        # What changed meanwhile stays, and is in no file: it would be found there as it was.
        return await self._move(day, some[:half]) + await self._move(day, some[half:]) if half else 0

    async def expire(self, before: date) -> int:
        """Files of days before that one; how many went."""
        names = list(await self._store.lake_workflow_expire(before=before))
        if names:
            await asyncio.to_thread(self._files.delete, names)
        return len(names)

    async def sweep(self, abandoned: timedelta) -> int:
        """Files of nobody, which a crash left: those that are older than that; how many went."""
        from cells.lake.workflow_files import workflows_prefix

        prefix = workflows_prefix(region=self._place.region, cell=self._place.cell)
        found = await asyncio.to_thread(lambda: list(self._files.list(prefix)))
        known = {file.name for _, file in await self._store.lake_workflow_files()}
        old = datetime.now(UTC) - abandoned
        over = [file.name for file in found if file.name not in known and file.modified < old]
        if over:
            await asyncio.to_thread(self._files.delete, over)
        return len(over)


class WorkflowReader:
    """Reads them. Every question is about one tenant: its id is part of each statement."""

    def __init__(self, store: Store, cache: Cache, engine: Callable[[], Engine], *, patience: float) -> None:
        self._store, self._cache, self._engine, self._patience = store, cache, engine, patience

    async def get_workflow(
        self, tenant_id: uuid.UUID, workflow_id: str, run_id: uuid.UUID | None
    ) -> WorkflowRow | None:
        """The latest execution of an id, or one of the others."""
        from cells.lake.workflow_files import workflow_of

        until = clock.monotonic() + self._patience
        days: defaultdict[date, list[LakeFile]] = defaultdict(list)
        for of in await self._store.lake_workflow_files_of(tenant_id):
            days[of.day].append(of.file)
        wanted = {
            "tenant": str(tenant_id),
            "workflow": workflow_id,
            "run": None if run_id is None else str(run_id),
        }
        for day in sorted(days, reverse=True):
            left = until - clock.monotonic()
            if left <= 0:
                raise TimeoutError("the lake was not looked through in time")
            paths = await self._cache.paths(days[day])
            for row in await self._engine().ask("lake_workflow", paths, wanted, seconds=left):
                return workflow_of(tenant_id, row)
        return None

    async def list_workflows(
        self,
        tenant_id: uuid.UUID,
        where: WorkflowFilter,
        *,
        after: tuple[datetime, uuid.UUID] | None,
        limit: int,
    ) -> FoundWorkflows:
        """Executions, the latest start first. Files are looked through by their latest starts: what began
        later than anything in those that are left is all there."""
        from cells.lake.workflow_files import workflow_of

        until = clock.monotonic() + self._patience
        left = list(await self._store.lake_workflow_files_of(tenant_id))
        wanted = {
            "tenant": str(tenant_id),
            "status": where.status,
            "definition": where.definition,
            "version": where.version,
            "prefix": where.prefix,
            "after_at": None if after is None else after[0],
            "after_run": None if after is None else str(after[1]),
            "limit": limit,
        }
        found: list[WorkflowRow] = []
        looked = False
        while left:
            since = left[0].began_until
            if sum(row.started_at > since for row in found) >= limit:
                break
            seconds = until - clock.monotonic()
            if seconds <= 0:
                return _so_far(found, since, limit, looked=looked)
            some, left = left[:_AT_ONCE], left[_AT_ONCE:]
            paths = await self._cache.paths([of.file for of in some])
            try:
                rows = await self._engine().ask("lake_workflow_list", paths, wanted, seconds=seconds)
            except TimeoutError:
                return _so_far(found, since, limit, looked=looked)
            looked = True
            found += [workflow_of(tenant_id, row) for row in rows]
        return FoundWorkflows(rows=sorted(found, key=place_of, reverse=True)[:limit])

    async def workflow_history(
        self, tenant_id: uuid.UUID, row: WorkflowRow, *, after: int, limit: int
    ) -> Sequence[StoredEvent]:
        """Its events behind a sequence, in their order."""
        from cells.lake.workflow_files import event_of

        if row.closed_at is None:
            return ()
        closed = row.closed_at.astimezone(UTC).date()
        of_tenant = await self._store.lake_workflow_files_of(tenant_id)
        files = [of.file for of in of_tenant if of.day == closed]
        if not files:
            return ()
        wanted = {"tenant": str(tenant_id), "run": str(row.run_id), "after": after, "limit": limit}
        paths = await self._cache.paths(files)
        found = await self._engine().ask("lake_workflow_events", paths, wanted, seconds=self._patience)
        return [event_of(event) for event in found]


def place_of(row: WorkflowRow) -> tuple[datetime, uuid.UUID]:
    """Where it stands in lists."""
    return row.started_at, row.run_id


def _so_far(found: Sequence[WorkflowRow], since: datetime, limit: int, *, looked: bool) -> FoundWorkflows:
    """What is known when time is up: all that began later."""
    if not looked:
        raise TimeoutError("the lake was not looked through in time")
    rows = sorted((row for row in found if row.started_at > since), key=place_of, reverse=True)[:limit]
    return FoundWorkflows(rows=rows, reached=(since, _LAST) if len(rows) < limit else None)
