"""Open executions of a definition, page by page: what a candidate version is checked against (a part of
`ports`)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cells.workflow_ports import WorkflowRow, WorkflowStore

#: Open executions, of any definition, that one page looks at at most; and that are counted.
LOOKED_AT = 20_000
COUNTED = 100_000
#: A place in the walk: workflow id, run.
Place = tuple[str, uuid.UUID]


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenWorkflows:
    """A page of them. `reached`: the place behind which there may be more; None: the end."""

    rows: Sequence[WorkflowRow]
    reached: Place | None


class OpenWorkflowStore(WorkflowStore, Protocol):
    """The store's side of a check."""

    async def open_workflows(
        self,
        tenant_id: uuid.UUID,
        definition: str,
        *,
        after: Place | None,
        limit: int,
        looks: int = LOOKED_AT,
    ) -> OpenWorkflows:
        """By workflow id, behind one of them; what had closed and is open again among them."""
        ...

    async def count_open_workflows(
        self, tenant_id: uuid.UUID, definition: str, *, looks: int = COUNTED
    ) -> int | None:
        """How many are open; None where the tenant has more open ones than are counted."""
        ...
