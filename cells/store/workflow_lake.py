"""What the history lake takes of closed workflows (`cells.history.WorkflowHistoryStore`)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import date, datetime

from cells.history import LakeFile, OldWorkflow, TenantsFile
from cells.store.arrays import from_datetime, instants, int4s, uuids
from cells.store.base import StoreBase
from cells.store.database import fetch_all, fetch_row, run
from cells.store.workflows import workflow_row
from cells.workflow_ports import StoredEvent

#: Bytes of histories that are read together, or one history.
_BYTES = 32 << 20


class WorkflowLake(StoreBase):
    """Executions out of the store, once they are in a file."""

    async def lake_old_workflows(self, *, before: datetime, limit: int) -> Sequence[OldWorkflow]:
        """See `WorkflowHistoryStore`; so everywhere here."""
        async with self._database.transaction() as connection:
            parameters = {"before": before, "page": limit, "bytes": _BYTES}
            found = await fetch_all(connection, "lake_old_workflows", parameters)
            rows = [workflow_row(row[0], row[1:]) for row in found]
            keys = {
                "tenants": uuids([row.tenant_id for row in rows]),
                "runs": uuids([row.run_id for row in rows]),
            }
            events: list[list[StoredEvent]] = [[] for _ in rows]
            for i, seq, epoch, type_, at, data in await fetch_all(connection, "lake_workflow_events", keys):
                events[i - 1].append(StoredEvent(seq=seq, epoch=epoch, type=type_, at=at, data=data))
        return list(zip(rows, events, strict=True))

    async def lake_workflows_leave(self, day: date, file: LakeFile, workflows: Sequence[OldWorkflow]) -> int:
        rows = [row for row, _ in workflows]
        keys: dict[str, object] = {
            "tenants": uuids([row.tenant_id for row in rows]),
            "runs": uuids([row.run_id for row in rows]),
        }
        nexts = int4s([row.next_seq for row in rows])
        async with self._database.transaction() as connection:
            # Deleted by a later statement than the lock: what was put into an inbox before is seen.
            if len(await fetch_all(connection, "lake_workflow_lock", keys)) < len(rows):
                return 0
            gone, _ = await fetch_row(connection, "lake_workflow_leave", {**keys, "nexts": nexts})
            if gone < len(rows):
                await connection.rollback()
                return 0
            about = {"name": file.name, "rows": file.rows, "bytes": file.size, "sha256": file.sha256}
            await run(connection, "lake_workflow_file_add", {"day": day, **about})
            begun = instants([from_datetime(row.started_at) for row in rows])
            of = {"name": file.name, "tenants": keys["tenants"], "begun": begun}
            await run(connection, "lake_workflow_tenants_add", of)
        return int(gone)

    async def lake_workflow_files_of(self, tenant_id: uuid.UUID) -> Sequence[TenantsFile]:
        async with self._database.transaction() as connection:
            return [
                TenantsFile(
                    day=day,
                    file=LakeFile(name=name, rows=rows, size=size, sha256=bytes(sha256)),
                    began_until=until,
                )
                for day, name, rows, size, sha256, until in await fetch_all(
                    connection, "lake_workflow_files_of", {"tenant": tenant_id}
                )
            ]

    async def lake_workflow_files(self) -> Sequence[tuple[date, LakeFile]]:
        async with self._database.transaction() as connection:
            return [
                (day, LakeFile(name=name, rows=rows, size=size, sha256=bytes(sha256)))
                for day, name, rows, size, sha256 in await fetch_all(connection, "lake_workflow_files")
            ]

    async def lake_workflow_expire(self, *, before: date) -> Sequence[str]:
        async with self._database.transaction() as connection:
            await run(connection, "lake_workflow_ids_expire", {"before": before})
            return [
                name for (name,) in await fetch_all(connection, "lake_workflow_expire", {"before": before})
            ]
