"""Open executions of a definition (`cells.open_workflows.OpenWorkflowStore`)."""

from __future__ import annotations

import uuid

from cells.open_workflows import COUNTED, LOOKED_AT, OpenWorkflows, Place
from cells.store.base import StoreBase
from cells.store.database import fetch_all, fetch_one, fetch_row
from cells.store.workflows import workflow_row

_LAST = uuid.UUID(int=2**128 - 1)


class WorkflowsUnderWay(StoreBase):
    """Found by the index of held ids: however many have ended, it reads open ones only."""

    async def open_workflows(
        self,
        tenant_id: uuid.UUID,
        definition: str,
        *,
        after: Place | None,
        limit: int,
        looks: int = LOOKED_AT,
    ) -> OpenWorkflows:
        """See `OpenWorkflowStore`; so everywhere here."""
        parameters = {
            "tenant": tenant_id,
            "definition": definition,
            "after_id": None if after is None else after[0],
            "after_run": None if after is None else after[1],
            "limit": limit,
            "looks": looks,
        }
        reached: Place | None = None
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "workflow_open", parameters)
            if len(rows) == limit:
                reached = rows[-1][1], rows[-1][0]
            elif (end := await fetch_one(connection, "workflow_open_reached", parameters)) is not None:
                reached = end[0], _LAST
        return OpenWorkflows(rows=[workflow_row(tenant_id, row) for row in rows], reached=reached)

    async def count_open_workflows(
        self, tenant_id: uuid.UUID, definition: str, *, looks: int = COUNTED
    ) -> int | None:
        parameters = {"tenant": tenant_id, "definition": definition, "looks": looks}
        async with self._database.transaction() as connection:
            open_, of_it = await fetch_row(connection, "workflow_open_count", parameters)
        return None if open_ >= looks else int(of_it)
