"""What limits of targets need of the store: whom members call, and what came of drills."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from cells.limits import Drill, DrillRow
from cells.ports import Member
from cells.store.arrays import int4s, int8s, texts, uuids
from cells.store.base import StoreBase
from cells.store.claim_batch import job_keys, run_keys
from cells.store.database import fetch_all, fetch_one, run
from cells.store.journal import Entry


class TargetLimits(StoreBase):
    """See `cells.limits.LimitStore`."""

    async def member_targets(self, members: Sequence[Member]) -> Sequence[str | None]:
        """See `LimitStore.member_targets`. Definitions that are kept in memory cost no round trip."""
        names: list[str | None] = [None] * len(members)
        jobs: list[int] = []
        runs: list[int] = []
        for i, member in enumerate(members):
            if member.is_run:
                runs.append(i)
                continue
            version = self._definitions.get(member.tenant_id, member.parent_id, member.generation)
            if version is None:
                jobs.append(i)
            else:
                names[i] = version[0].target.target_id or None
        if jobs or runs:
            async with self._database.transaction() as connection:
                for places, block, keys in (
                    (jobs, "member_job_targets", job_keys),
                    (runs, "member_run_targets", run_keys),
                ):
                    if places:
                        asked = keys([members[i] for i in places])
                        for at, name in await fetch_all(connection, block, asked):
                            names[places[at - 1]] = name or None
        return names

    async def add_drills(self, drills: Sequence[Drill], *, host_id: int) -> None:
        """See `LimitStore.add_drills`."""
        async with self._database.transaction() as connection:
            await run(
                connection,
                "drills_add",
                {
                    "tenants": uuids([d.tenant_id for d in drills]),
                    "targets": texts([d.target_id for d in drills]),
                    "sent": int8s([d.sent for d in drills]),
                    "coped": int8s([d.coped for d in drills]),
                    "runs": texts([d.failed_run for d in drills]),
                    "statuses": int4s([d.failed_status for d in drills]),
                    "errors": texts([d.failed_error for d in drills]),
                },
            )
            entry = Entry()
            for drill in drills:
                entry.intent(drill.tenant_id, "target.drill", drill.target_id, 0, 0)
            await self._journal.append(connection, host_id, entry)

    async def drill(self, tenant_id: uuid.UUID, target_id: str) -> DrillRow | None:
        """See `LimitStore.drill`."""
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "drill_get", {"tenant": tenant_id, "target": target_id})
            if row is None:
                return None
            sent, coped, at, failed_run, failed_at, failed_status, failed_error = row
            return DrillRow(
                sent=sent,
                coped=coped,
                at=at,
                failed_run=failed_run,
                failed_at=failed_at,
                failed_status=failed_status,
                failed_error=failed_error,
            )
