"""Frozen selections of jobs, and the operations that were started over them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from psycopg import errors

from cells.bulk import JOB_ACTIONS
from cells.domain import ids
from cells.domain.job import JobState
from cells.domain.transitions import JOB_TRANSITIONS
from cells.ports import (
    BulkAction,
    Conflict,
    Fence,
    JobFilter,
    JobRow,
    OperationRow,
    QuotaExceeded,
    Retryable,
    SelectionRow,
    Terminal,
)
from cells.store.arrays import texts, uuids
from cells.store.base import StoreBase
from cells.store.database import Row, fetch_all, fetch_one, fetch_row, run
from cells.store.idempotency import Keyed, keep, made_before
from cells.store.jobs import facet_terms, job_row
from cells.store.journal import Entry

#: Jobs in one selection at most.
SELECTION_LIMIT = 1_000_000
#: Selections of a tenant that can be applied and have not been; each may hold a million ids.
SELECTIONS_OPEN = 50
SAMPLE = 10
_VERBS = {"pause": "pause", "resume": "resume", "cancel": "cancel"}
_SOURCES = {
    t.name: frozenset(s for s in t.sources if s is not None)
    for t in JOB_TRANSITIONS
    if t.name in _VERBS.values()
}


class Selections(StoreBase):
    """Freezing, applying, watching, stopping."""

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
        """See `ports.Store.create_selection`."""
        states = _SOURCES[action.value]
        if where.state is not None:
            states &= {where.state}
        parameters = {
            "tenant": fence.tenant_id,
            "selection": selection_id,
            "action": action.value,
            "filter": described,
            "actor": actor,
            "expires": expires_at,
            "limit": SELECTION_LIMIT + 1,
            "states": texts(sorted(state.value for state in states)),
            "ids": None if job_ids is None else uuids(job_ids),
            **facet_terms(where),
        }
        try:
            return await self._freeze(fence, selection_id, parameters, idempotency, host_id)
        except errors.UniqueViolation as taken:
            if idempotency is None:
                raise
            # Another request with this key was faster; the next one finds what it stored.
            raise Retryable("the idempotency key is in use") from taken

    async def _freeze(
        self,
        fence: Fence,
        selection_id: uuid.UUID,
        parameters: Mapping[str, object],
        idempotency: Keyed | None,
        host_id: int,
    ) -> tuple[SelectionRow, bool]:
        tenant = fence.tenant_id
        async with self._write(fence, host_id) as (connection, entry):
            if idempotency is not None:
                known = await made_before(connection, tenant, idempotency)
                if known is not None:
                    first = {"tenant": tenant, "selection": uuid.UUID(bytes=known)}
                    made = await fetch_one(connection, "selection_get", first)
                    if made is None:
                        raise Conflict("the selection that was made under this key has expired")
                    entry.intent(tenant, "selection.replay", first["selection"].hex, 0, 0)
                    return selection_row(made), True
            (still_open,) = await fetch_row(
                connection, "selection_count_open", {"tenant": tenant, "most": SELECTIONS_OPEN}
            )
            if still_open >= SELECTIONS_OPEN:
                raise QuotaExceeded("open_selections", SELECTIONS_OPEN)
            row = await fetch_row(connection, "selection_freeze", parameters)
            if row[3] > SELECTION_LIMIT:
                raise Terminal(f"the filter finds more than {SELECTION_LIMIT} jobs; narrow it")
            if idempotency is not None:
                await keep(connection, tenant, idempotency, selection_id.bytes, status=201)
            entry.intent(tenant, "selection.create", selection_id.hex, 0, 1)
            return selection_row(row), False

    async def get_selection(self, tenant_id: uuid.UUID, selection_id: uuid.UUID) -> SelectionRow | None:
        """One selection, or None."""
        parameters = {"tenant": tenant_id, "selection": selection_id}
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "selection_get", parameters)
            return None if row is None else selection_row(row)

    async def selection_sample(self, tenant_id: uuid.UUID, selection_id: uuid.UUID) -> Sequence[JobRow]:
        """Its first jobs, as they are now."""
        parameters = {"tenant": tenant_id, "selection": selection_id, "size": SAMPLE}
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "selection_sample", parameters)
            return [job_row(tenant_id, row) for row in rows]

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
        """See `ports.Store.start_operation`."""
        try:
            return await self._start_operation(
                fence, selection_id, operation_id, max_per_second, actor, host_id, idempotency
            )
        except errors.UniqueViolation as taken:
            if idempotency is None:
                raise
            raise Retryable("the idempotency key is in use") from taken

    async def _start_operation(
        self,
        fence: Fence,
        selection_id: uuid.UUID,
        operation_id: uuid.UUID,
        max_per_second: int,
        actor: str,
        host_id: int,
        idempotency: Keyed | None,
    ) -> tuple[OperationRow, bool]:
        tenant = fence.tenant_id
        key: dict[str, object] = {"tenant": tenant, "selection": selection_id}
        async with self._write(fence, host_id) as (connection, entry):
            if idempotency is not None and await made_before(connection, tenant, idempotency) is None:
                await keep(connection, tenant, idempotency, selection_id.bytes, status=202)
            parameters = {**key, "operation": operation_id, "rate": max_per_second, "actor": actor}
            started = (await run(connection, "operation_start", parameters)).rowcount == 1
            row = await fetch_one(connection, "operation_of", key)
            if row is None:
                raise Terminal("no such selection")
            entry.intent(tenant, "operation.start", operation_id.hex, 0, int(started))
            found = operation_row(tenant, row)
            if started:
                tell_operation(entry, "operation.started", found, actor)
            return found, started

    async def get_operation(self, tenant_id: uuid.UUID, operation_id: uuid.UUID) -> OperationRow | None:
        """One operation, or None."""
        parameters = {"tenant": tenant_id, "operation": operation_id}
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "operation_get", parameters)
            return None if row is None else operation_row(tenant_id, row)

    async def list_operations(
        self,
        tenant_id: uuid.UUID,
        *,
        state: str | None,
        after: tuple[datetime, uuid.UUID] | None,
        limit: int,
        actions: Sequence[BulkAction] = JOB_ACTIONS,
    ) -> Sequence[OperationRow]:
        """Newest first."""
        parameters = {
            "tenant": tenant_id,
            "actions": texts([action.value for action in actions]),
            "state": state,
            "after_at": None if after is None else after[0],
            "after_id": None if after is None else after[1],
            "limit": limit,
        }
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "operation_list", parameters)
            return [operation_row(tenant_id, row) for row in rows]

    async def stop_operation(
        self, fence: Fence, *, operation_id: uuid.UUID, actor: str, host_id: int
    ) -> OperationRow:
        """See `ports.Store.stop_operation`."""
        tenant = fence.tenant_id
        key: dict[str, object] = {"tenant": tenant, "operation": operation_id}
        async with self._write(fence, host_id) as (connection, entry):
            stopped = (await run(connection, "operation_stop", {**key, "actor": actor})).rowcount == 1
            row = await fetch_one(connection, "operation_get", key)
            if row is None:
                raise Terminal("no such operation")
            found = operation_row(tenant, row)
            if not stopped and found.state != "STOPPED":
                raise Conflict(f"the operation is {found.state}")
            entry.intent(tenant, "operation.stop", operation_id.hex, 0, int(stopped))
            if stopped:
                tell_operation(entry, "operation.stopped", found, actor)
            return found


def tell_operation(entry: Entry, type_: str, row: OperationRow, actor: str | None) -> None:
    """A bulk operation began or ended; its jobs tell nothing of their own."""
    subject = ids.encode(ids.OPERATION, row.operation_id)
    counts = {"done": row.done, "unchanged": row.unchanged, "failed": row.failed}
    why = {} if row.stop_reason is None else {"reason": row.stop_reason}
    entry.event(
        row.tenant_id, type_, subject, actor, action=row.action.value, total=row.total, **counts, **why
    )


def selection_row(row: Row) -> SelectionRow:
    """From the columns of `selection_get`."""
    selection_id, action, described, count, digest, created_by, created_at, expires_at = row
    return SelectionRow(
        selection_id=selection_id,
        action=BulkAction(action),
        described=described,
        count=count,
        hash=digest.hex(),
        created_by=created_by,
        created_at=created_at,
        expires_at=expires_at,
    )


def operation_row(tenant_id: uuid.UUID, row: Row) -> OperationRow:
    """From the columns of `operation_get`."""
    return OperationRow(
        tenant_id=tenant_id,
        operation_id=row[0],
        selection_id=row[1],
        action=BulkAction(row[2]),
        state=row[3],
        total=row[4],
        position=row[5],
        done=row[6],
        unchanged=row[7],
        failed=row[8],
        reasons=msgspec.json.decode(row[9], type=dict[str, int]),
        failures=msgspec.json.decode(row[10], type=list[tuple[str, str]]),
        max_per_second=row[11],
        created_by=row[12],
        created_at=row[13],
        finished_at=row[14],
        stopped_by=row[15],
        stages=row[16],
        stop_reason=row[17],
    )


TARGETS: dict[BulkAction, JobState] = {
    BulkAction.PAUSE: JobState.PAUSED,
    BulkAction.RESUME: JobState.ACTIVE,
    BulkAction.CANCEL: JobState.CANCELLED,
}
