"""Task queues and their workers as people see them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from cells.domain.ids import RunKey
from cells.ports import Fence
from cells.pulling import (
    COUNT_LIMIT,
    WORKER_SEEN_SECONDS,
    LeaseRow,
    QueueRow,
    WorkerRow,
    WorkerSeen,
)
from cells.store.arrays import bools, texts, uuids
from cells.store.base import StoreBase
from cells.store.database import fetch_all, fetch_one, run
from cells.store.journal import Entry


class TaskQueues(StoreBase):
    """The registry of queues and workers."""

    async def saw_workers(self, seen: Sequence[WorkerSeen], *, host_id: int) -> None:
        """See `pulling.PullStore.saw_workers`."""
        if not seen:
            return
        polled = sorted({(s.tenant_id, s.task_queue) for s in seen if not s.left})
        queues = {
            "tenants": uuids([tenant for tenant, _ in polled]),
            "queues": texts([name for _, name in polled]),
        }
        async with self._database.transaction() as connection:
            entry = Entry()
            rows = await fetch_all(connection, "pull_saw_queues", queues) if polled else []
            starved = [(tenant, name) for tenant, name, was in rows if was]
            if starved:
                those = {
                    "tenants": uuids([tenant for tenant, _ in starved]),
                    "queues": texts([name for _, name in starved]),
                }
                for tenant, name in await fetch_all(connection, "pull_recovered", those):
                    entry.event(tenant, "task_queue.recovered", name, None)
            async with connection.pipeline():
                await run(
                    connection,
                    "pull_saw_workers",
                    {
                        "tenants": uuids([s.tenant_id for s in seen]),
                        "queues": texts([s.task_queue for s in seen]),
                        "workers": texts([s.worker_id for s in seen]),
                        "gone": bools([s.left for s in seen]),
                    },
                )
                await self._journal.append(connection, host_id, entry)
                await connection.commit()

    async def task_queues(self, tenant_id: uuid.UUID, *, name: str | None = None) -> Sequence[QueueRow]:
        """See `pulling.PullStore.task_queues`."""
        parameters = {
            "tenant": tenant_id,
            "name": name,
            "limit": COUNT_LIMIT,
            "seen": WORKER_SEEN_SECONDS,
        }
        async with self._database.transaction() as connection:
            return [
                QueueRow(
                    task_queue=row[0],
                    backlog=row[1],
                    oldest_due_at=row[2],
                    leases=row[3],
                    workers=row[4],
                    last_polled_at=row[5],
                    paused_at=row[6],
                    created_at=row[7],
                    now=row[8],
                )
                for row in await fetch_all(connection, "pull_queues", parameters)
            ]

    async def queue_workers(self, tenant_id: uuid.UUID, name: str, *, limit: int) -> Sequence[WorkerRow]:
        """See `pulling.PullStore.queue_workers`."""
        parameters = {"tenant": tenant_id, "queue": name, "limit": limit}
        async with self._database.transaction() as connection:
            return [
                WorkerRow(
                    worker_id=row[0],
                    first_seen_at=row[1],
                    last_seen_at=row[2],
                    left_at=row[3],
                    leases=row[4],
                )
                for row in await fetch_all(connection, "pull_workers", parameters)
            ]

    async def queue_leases(self, tenant_id: uuid.UUID, name: str, *, limit: int) -> Sequence[LeaseRow]:
        """See `pulling.PullStore.queue_leases`."""
        parameters = {"tenant": tenant_id, "queue": name, "limit": limit}
        async with self._database.transaction() as connection:
            return [
                LeaseRow(
                    key=RunKey(parent_id=row[0], scheduled_for=row[1], ordinal=row[2]),
                    worker=row[3],
                    attempt=row[4],
                    claimed_at=row[5],
                    heartbeat_at=row[6],
                    lease_expires_at=row[7],
                    progress=None if row[8] is None else row[8].encode(),
                )
                for row in await fetch_all(connection, "pull_leases", parameters)
            ]

    async def pause_queue(self, fence: Fence, name: str, *, paused: bool, actor: str, host_id: int) -> None:
        """See `pulling.PullStore.pause_queue`."""
        async with self._write(fence, host_id) as (connection, entry):
            parameters = {"tenant": fence.tenant_id, "queue": name, "paused": paused}
            if await fetch_one(connection, "pull_pause", parameters) is not None:
                entry.event(
                    fence.tenant_id, "task_queue.paused" if paused else "task_queue.resumed", name, actor
                )

    async def tell_silent(self, *, mode: str, host_id: int) -> int:
        """See `pulling.PullStore.tell_silent`."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "pull_silent")
            if not rows:
                return 0
            entry = Entry()
            for tenant, name, count in rows:
                entry.event(tenant, "task_queue.workers_silent", name, None, mode=mode, count=count)
            await self._journal.append(connection, host_id, entry)
        return len(rows)

    async def tell_starved(self, *, after_seconds: int, host_id: int) -> int:
        """See `pulling.PullStore.tell_starved`."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "pull_starved", {"after": after_seconds})
            if not rows:
                return 0
            entry = Entry()
            for tenant, name, polled in rows:
                last = None if polled is None else polled.isoformat()
                entry.event(tenant, "task_queue.no_worker", name, None, last_polled_at=last)
            await self._journal.append(connection, host_id, entry)
        return len(rows)
