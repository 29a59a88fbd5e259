"""Runs as people and the API see them, and the DLQ."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from cells.domain.ids import RunKey
from cells.domain.run import Attempt, RunState
from cells.domain.transitions import run_allowed
from cells.ports import (
    LETTERS_GROUPED,
    RUNS_LOOKED_AT,
    Conflict,
    Fence,
    FoundRuns,
    RunFilter,
    RunRow,
    Terminal,
)
from cells.store.base import StoreBase, fenced
from cells.store.database import Row, fetch_all, fetch_one, fetch_row, run
from cells.store.journal import Entry, seconds

#: The last run of most jobs lies in these days; only for the others are all days looked at.
_LATELY = timedelta(days=2)
_EVER, _NEVER = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
_attempts = msgspec.json.Decoder(list[Attempt]).decode


class Runs(StoreBase):
    """Reading and cancelling runs."""

    async def get_run(self, tenant_id: uuid.UUID, key: RunKey) -> RunRow | None:
        """One run, or None if the tenant has none of that key."""
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "run_get", _key(tenant_id, key))
            return None if row is None else run_row(tenant_id, row)

    async def list_runs(
        self,
        tenant_id: uuid.UUID,
        *,
        job_id: uuid.UUID | None = None,
        state: RunState | None = None,
        target_id: str | None = None,
        scheduled_from: datetime | None = None,
        scheduled_until: datetime | None = None,
        after: RunKey | None = None,
        limit: int = 50,
    ) -> Sequence[RunRow]:
        """See `ports.Store.list_runs`."""
        where = RunFilter(
            job_id=job_id,
            states=() if state is None else (state,),
            target_id=target_id,
            scheduled_from=scheduled_from,
            scheduled_until=scheduled_until,
        )
        return (await self.find_runs(tenant_id, where, after=after, limit=limit)).runs

    async def find_runs(
        self,
        tenant_id: uuid.UUID,
        where: RunFilter,
        *,
        after: RunKey | None,
        limit: int,
        looks: int = RUNS_LOOKED_AT,
    ) -> FoundRuns:
        """See `ports.Store.find_runs`."""
        name, end = ("run_list", "run_list_reached")
        if where.job_id is not None:
            name, end = ("run_list_of_job", "run_list_of_job_reached")
        parameters = _list_parameters(tenant_id, where, after, limit) | {"looks": looks}
        async with self._database.transaction() as connection:
            runs = [run_row(tenant_id, row) for row in await fetch_all(connection, name, parameters)]
            reached: RunKey | None = None
            if len(runs) < limit and (row := await fetch_one(connection, end, parameters)):
                reached = RunKey(parent_id=row[0], scheduled_for=row[1], ordinal=row[2])
                if runs:
                    # Runs that came in between the two statements must not make this page's be found twice.
                    reached = min(reached, runs[-1].key, key=_place)
            return FoundRuns(runs=runs, reached=reached)

    async def last_runs(
        self, tenant_id: uuid.UUID, job_ids: Sequence[uuid.UUID], *, now: datetime
    ) -> Mapping[uuid.UUID, RunRow]:
        """See `ports.Store.last_runs`."""
        found: dict[uuid.UUID, RunRow] = {}
        lately = now - _LATELY
        async with self._database.transaction() as connection:
            for since, until in ((lately, _NEVER), (_EVER, lately)):
                left = [job_id for job_id in job_ids if job_id not in found]
                if not left:
                    break
                parameters = {"tenant": tenant_id, "jobs": left, "since": since, "until": until}
                for row in await fetch_all(connection, "run_last_of_jobs", parameters):
                    last = run_row(tenant_id, row)
                    found[last.key.parent_id] = last
        return found

    async def cancel_run(self, fence: Fence, *, key: RunKey, actor: str, host_id: int) -> RunRow:
        """See `ports.Store.cancel_run`. `actor` is kept by the control plane's audit log."""
        ids = _key(fence.tenant_id, key)
        async with self._database.transaction() as connection:
            await fenced(connection, fence)
            locked = await fetch_one(connection, "run_lock", ids)
            if locked is None:
                raise Terminal("no such run")
            state, epoch, requested = locked
            if not requested:
                entry = Entry()
                name = f"{key.parent_id.hex}:{seconds(key.scheduled_for)}:{key.ordinal}"
                entry.intent(fence.tenant_id, "run.cancel", name, epoch, epoch)
                if run_allowed("cancel", RunState(state)):
                    await run(connection, "run_cancel", ids)
                    policy = await fetch_one(connection, "run_policy", ids)
                    entry.ended(
                        fence.tenant_id.hex,
                        key.parent_id.hex,
                        seconds(key.scheduled_for),
                        key.ordinal,
                        epoch,
                        "CANCELLED",
                        attempts=0,
                        region_policy="HOME_ASYNC" if policy is None else policy[0],
                    )
                elif run_allowed("stop", RunState(state)):
                    await run(connection, "run_cancel_request", ids)
                else:
                    raise Conflict(f"the run has ended: {state}", epoch=epoch)
                await self._journal.append(connection, host_id, entry)
            return run_row(fence.tenant_id, await fetch_row(connection, "run_get", ids))

    async def list_dlq(
        self,
        tenant_id: uuid.UUID,
        *,
        target_id: str | None,
        fingerprint: str | None,
        after: tuple[datetime, RunKey] | None,
        limit: int,
        job_id: uuid.UUID | None = None,
        reason: str | None = None,
        failed_from: datetime | None = None,
        failed_until: datetime | None = None,
    ) -> Sequence[dict[str, object]]:
        """Open dead letters, newest first: key (RunKey), series, fingerprint, reason, target_id,
        http_status, error, attempt, failed_at."""
        failed_at, key = after if after is not None else (None, None)
        parameters = {
            "tenant": tenant_id,
            "target": target_id,
            "fingerprint": fingerprint,
            "job": job_id,
            "reason": reason,
            "failed_from": failed_from,
            "failed_until": failed_until,
            "after_at": failed_at,
            "after_parent": None if key is None else key.parent_id,
            "after_scheduled": None if key is None else key.scheduled_for,
            "after_ordinal": None if key is None else key.ordinal,
            "limit": limit,
        }
        names = (
            "series",
            "fingerprint",
            "reason",
            "target_id",
            "http_status",
            "error",
            "attempt",
            "failed_at",
        )
        async with self._database.transaction() as connection:
            return [
                {
                    "key": RunKey(parent_id=row[0], scheduled_for=row[1], ordinal=row[2]),
                    **dict(zip(names, row[3:], strict=True)),
                }
                for row in await fetch_all(connection, "dlq_list", parameters)
            ]

    async def dlq_groups(
        self, tenant_id: uuid.UUID, *, limit: int, looks: int = LETTERS_GROUPED
    ) -> tuple[Sequence[dict[str, object]], bool]:
        """See `ports.Store.dlq_groups`."""
        names = (
            "fingerprint",
            "target_id",
            "http_status",
            "error",
            "count",
            "first_failed_at",
            "last_failed_at",
        )
        parameters = {"tenant": tenant_id, "limit": limit + 1, "looks": looks}
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "dlq_groups", parameters)
        truncated = len(rows) > limit or any(more for *_, more in rows)
        return [dict(zip(names, row[:-1], strict=True)) for row in rows[:limit]], truncated


def _place(key: RunKey) -> tuple[datetime, uuid.UUID, int]:
    return key.scheduled_for, key.parent_id, key.ordinal


def _list_parameters(
    tenant_id: uuid.UUID, where: RunFilter, after: RunKey | None, limit: int
) -> dict[str, object]:
    return {
        "tenant": tenant_id,
        "parent": where.job_id,
        "states": [state.value for state in where.states] or None,
        "target": where.target_id,
        "from": where.scheduled_from,
        "until": where.scheduled_until,
        "due_from": where.due_from,
        "due_until": where.due_until,
        "finished_from": where.finished_from,
        "finished_until": where.finished_until,
        "after_at": None if after is None else after.scheduled_for,
        "after_parent": None if after is None else after.parent_id,
        "after_ordinal": None if after is None else after.ordinal,
        "limit": limit,
    }


def _key(tenant_id: uuid.UUID, key: RunKey) -> dict[str, object]:
    return {"tenant": tenant_id, "parent": key.parent_id, "at": key.scheduled_for, "ordinal": key.ordinal}


def run_row(tenant_id: uuid.UUID, row: Row) -> RunRow:
    """From the columns of `run_get` and `run_list…`."""
    return RunRow(
        tenant_id=tenant_id,
        key=RunKey(parent_id=row[0], scheduled_for=row[1], ordinal=row[2]),
        kind=row[3],
        state=RunState(row[4]),
        priority=row[5],
        version=row[6],
        epoch=row[7],
        series=row[8],
        attempt=row[9],
        timer_at=row[10],
        lease_expires_at=row[11],
        due_at=row[12],
        released_at=row[13],
        claimed_at=row[14],
        started_at=row[15],
        finished_at=row[16],
        cancel_requested=row[17],
        target_id=row[18],
        http_status=row[19],
        reason=row[20],
        skipped=row[21],
        attempts=_attempts(row[22]),
        worker=row[23],
        heartbeat_at=row[24],
        progress=None if row[25] is None else row[25].encode(),
    )
