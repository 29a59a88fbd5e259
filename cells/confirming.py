"""What STRICT needs from the store."""

from __future__ import annotations

import uuid
from typing import Protocol


class ConfirmStore(Protocol):
    """Part of `ports.Store`."""

    async def confirm(self, *, strict: bool = True) -> None:
        """Returns once a standby in another region has flushed all that was committed here before this
        call; at once where the cell has no other region. `Unconfirmed` if none has in time: then it is
        committed here, and may be nowhere else. Where the cell was taken over without a site that may have
        what was confirmed before, `StrictShut` until that was read; not for what is not `strict`."""
        ...

    async def strict_parent(self, tenant_id: uuid.UUID, parent_id: uuid.UUID) -> bool:
        """Whether a job, or an execution of a workflow, is STRICT; no where nobody confirms anything."""
        ...

    async def strict_selection(self, tenant_id: uuid.UUID, selection_id: uuid.UUID) -> bool:
        """Whether anything in a selection of jobs or dead letters is; no where nobody confirms anything."""
        ...
