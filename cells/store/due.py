"""Finding what waits: keyset pages over (shard, due), never from the beginning.

A due index is full of dead entries where work has just been claimed; a scan that starts at the
oldest walks all of them. So ranges are narrow, and only deep sweeps leave `since` open.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

from cells.domain.run import run_generation
from cells.ports import Member
from cells.store.arrays import int2s
from cells.store.base import StoreBase
from cells.store.database import fetch_all

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_NOBODY = uuid.UUID(int=0)


class DueWork(StoreBase):
    """`due_members`."""

    async def due_members(
        self, *, shards: Sequence[int], since: datetime | None, until: datetime, page: int = 5000
    ) -> AsyncIterator[Sequence[Member]]:
        """See `ports.Store.due_members`."""
        if not shards:
            return
        span: dict[str, object] = {
            "shards": int2s(sorted(shards)),
            "since": _BEGINNING if since is None else since,
            "until": until,
            "page": page,
        }
        async for members in self._due_jobs(span, page):
            yield members
        async for members in self._due_runs(span, page):
            yield members

    async def _due_jobs(self, span: dict[str, object], page: int) -> AsyncIterator[Sequence[Member]]:
        place: dict[str, object] = {"shard": 0, "due": _BEGINNING, "tenant": _NOBODY, "job": _NOBODY}
        while True:
            async with self._database.transaction() as connection:
                rows = await fetch_all(connection, "due_jobs", {**span, **place})
            if rows:
                yield [
                    Member(
                        tenant_id=tenant,
                        parent_id=job,
                        scheduled_for=scheduled_s,
                        generation=version,
                        priority=priority,
                        due_ms=-(-due // 1000),
                        shard=shard,
                    )
                    for tenant, job, scheduled_s, version, priority, due, shard in rows
                ]
            if len(rows) < page:
                return
            tenant, job, _, _, _, due, shard = rows[-1]
            place = {"shard": shard, "due": _instant(due), "tenant": tenant, "job": job}

    async def _due_runs(self, span: dict[str, object], page: int) -> AsyncIterator[Sequence[Member]]:
        place: dict[str, object] = {
            "shard": 0,
            "due": _BEGINNING,
            "tenant": _NOBODY,
            "parent": _NOBODY,
            "at": _BEGINNING,
            "ordinal": -1,
        }
        while True:
            async with self._database.transaction() as connection:
                rows = await fetch_all(connection, "due_runs", {**span, **place})
            if rows:
                yield [
                    Member(
                        tenant_id=tenant,
                        parent_id=parent,
                        scheduled_for=scheduled_s,
                        ordinal=ordinal,
                        is_run=True,
                        generation=run_generation(series, attempt),
                        priority=priority,
                        due_ms=-(-due // 1000),
                        shard=shard,
                    )
                    for (
                        tenant,
                        parent,
                        scheduled_s,
                        ordinal,
                        series,
                        attempt,
                        priority,
                        due,
                        shard,
                    ) in rows
                ]
            if len(rows) < page:
                return
            tenant, parent, scheduled_s, ordinal, _, _, _, due, shard = rows[-1]
            place = {
                "shard": shard,
                "due": _instant(due),
                "tenant": tenant,
                "parent": parent,
                "at": datetime.fromtimestamp(scheduled_s, UTC),
                "ordinal": ordinal,
            }


def _instant(micros: int) -> datetime:
    return _BEGINNING + timedelta(microseconds=micros)
