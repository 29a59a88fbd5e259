"""Definitions and executions of workflows: registering, starting, reading."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from cells.ports import Fence, TenantConfig
from cells.store.arrays import uuids
from cells.store.base import StoreBase
from cells.store.database import Connection, Row, fetch_all, fetch_one, fetch_row, run
from cells.workflow_ports import (
    WORKFLOWS_LOOKED_AT,
    ActivityRun,
    DefinitionRow,
    FoundWorkflows,
    StoredEvent,
    WorkflowFilter,
    WorkflowRow,
)

_encode = msgspec.json.Encoder().encode
_decode: Any = msgspec.json.Decoder().decode


class Workflows(StoreBase):
    """Everything but appending to what has begun."""

    async def put_definition(
        self, fence: Fence, *, name: str, version: int, source: str, actor: str, host_id: int
    ) -> tuple[DefinitionRow, bool]:
        """See `workflow_ports.WorkflowStore.put_definition`."""
        key = {"tenant": fence.tenant_id, "name": name, "version": version}
        async with self._write(fence, host_id) as (connection, entry):
            put = await run(connection, "definition_put", {**key, "source": source, "actor": actor})
            created = put.rowcount == 1
            entry.intent(fence.tenant_id, "workflow_definition.put", name, version, version)
            if created:
                entry.event(fence.tenant_id, "workflow_definition.created", name, actor, version=version)
            return DefinitionRow(**_definition(await fetch_row(connection, "definition_get", key))), created

    async def get_definition(
        self, tenant_id: uuid.UUID, name: str, version: int | None
    ) -> DefinitionRow | None:
        """See `workflow_ports.WorkflowStore.get_definition`."""
        parameters = {"tenant": tenant_id, "name": name, "version": version}
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "definition_get", parameters)
        return None if row is None else DefinitionRow(**_definition(row))

    async def list_definitions(
        self, tenant_id: uuid.UUID, *, name: str | None, after: tuple[str, int] | None, limit: int
    ) -> Sequence[DefinitionRow]:
        """See `workflow_ports.WorkflowStore.list_definitions`."""
        after_name, after_version = (None, None) if after is None else after
        parameters = {
            "tenant": tenant_id,
            "name": name,
            "after_name": after_name,
            "after_version": after_version,
            "limit": limit,
        }
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "definition_list", parameters)
        return [DefinitionRow(**_definition(row)) for row in rows]

    async def get_workflow(
        self, tenant_id: uuid.UUID, workflow_id: str, run_id: uuid.UUID | None = None
    ) -> WorkflowRow | None:
        """See `workflow_ports.WorkflowStore.get_workflow`."""
        parameters = {"tenant": tenant_id, "workflow": workflow_id, "run": run_id}
        name = "workflow_latest" if run_id is None else "workflow_get"
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, name, parameters)
        if row is None or row[1] != workflow_id:
            return None
        return workflow_row(tenant_id, row)

    async def workflow_has_left(self, tenant_id: uuid.UUID, workflow_id: str) -> bool:
        """See `workflow_ports.WorkflowStore.workflow_has_left`."""
        parameters = {"tenant": tenant_id, "workflow": workflow_id}
        async with self._database.transaction() as connection:
            return await fetch_one(connection, "workflow_has_left", parameters) is not None

    async def list_workflows(
        self,
        tenant_id: uuid.UUID,
        where: WorkflowFilter,
        *,
        after: tuple[datetime, uuid.UUID] | None,
        limit: int,
        looks: int = WORKFLOWS_LOOKED_AT,
    ) -> FoundWorkflows:
        """See `workflow_ports.WorkflowStore.list_workflows`."""
        after_at, after_run = (None, None) if after is None else after
        parameters = {
            "tenant": tenant_id,
            "status": where.status,
            "definition": where.definition,
            "version": where.version,
            "prefix": where.prefix,
            "after_at": after_at,
            "after_run": after_run,
            "limit": limit,
            "looks": looks,
        }
        reached: tuple[datetime, uuid.UUID] | None = None
        async with self._database.transaction() as connection:
            if where.to_reconcile:
                rows = await fetch_all(connection, "workflow_list_to_reconcile", parameters)
                return FoundWorkflows(rows=[workflow_row(tenant_id, row) for row in rows])
            rows = await fetch_all(connection, "workflow_list", parameters)
            found = [workflow_row(tenant_id, row) for row in rows]
            if len(found) < limit:
                end = await fetch_one(connection, "workflow_list_reached", parameters)
                if end is not None:
                    reached = (end[0], end[1])
                    if found:
                        reached = min(reached, (found[-1].started_at, found[-1].run_id))
        return FoundWorkflows(rows=found, reached=reached)

    async def workflow_step_rates(self, tenants: Sequence[uuid.UUID]) -> Mapping[uuid.UUID, float]:
        """See `workflow_ports.WorkflowStore.workflow_step_rates`."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "tenant_fences", {"tenants": uuids(tenants)})
        return {
            tenant: msgspec.json.decode(config, type=TenantConfig).workflow_steps_per_second
            for tenant, _, config in rows
        }

    async def workflow_history(
        self, tenant_id: uuid.UUID, run_id: uuid.UUID, *, after: int, limit: int
    ) -> Sequence[StoredEvent]:
        """See `workflow_ports.WorkflowStore.workflow_history`."""
        parameters = {"tenant": tenant_id, "run": run_id, "after": after, "limit": limit}
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "workflow_history", parameters)
        return [StoredEvent(seq=s, epoch=e, type=t, at=at, data=d) for s, e, t, at, d in rows]

    async def workflow_runs(self, tenant_id: uuid.UUID, run_id: uuid.UUID) -> Sequence[ActivityRun]:
        """See `workflow_ports.WorkflowStore.workflow_runs`."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "workflow_runs_of", {"tenant": tenant_id, "run": run_id})
        return [
            ActivityRun(
                seq=seq,
                scheduled_for=at,
                state=state,
                attempt=attempt,
                claimed_at=claimed_at,
                started_at=started_at,
                finished_at=finished_at,
                next_attempt_at=timer_at,
            )
            for seq, at, state, attempt, claimed_at, started_at, finished_at, timer_at in rows
        ]


async def read_workflow(connection: Connection, tenant_id: uuid.UUID, run_id: uuid.UUID) -> WorkflowRow:
    """An execution that is there."""
    return workflow_row(
        tenant_id, await fetch_row(connection, "workflow_get", {"tenant": tenant_id, "run": run_id})
    )


def workflow_row(tenant_id: uuid.UUID, row: Row) -> WorkflowRow:
    """From the columns of `workflow_get`, in their order."""
    return WorkflowRow(
        tenant_id=tenant_id,
        run_id=row[0],
        workflow_id=row[1],
        shard=row[2],
        status=row[3],
        definition=row[4],
        version=row[5],
        input_hash=row[6],
        region_policy=row[7],
        next_seq=row[8],
        epoch=row[9],
        takeovers=_decode(row[10]),
        decide_at=row[11],
        timer_at=row[12],
        history_bytes=row[13],
        parent=None if row[14] is None else _decode(row[14]),
        started_at=row[15],
        closed_at=row[16],
        result=row[17],
        error=row[18],
    )


def _definition(row: Row) -> dict[str, Any]:
    name, version, source, created_by, created_at = row
    return {
        "name": name,
        "version": version,
        "source": source,
        "created_by": created_by,
        "created_at": created_at,
    }
