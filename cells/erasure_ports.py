"""What the API needs of erasures."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Protocol


class Erasures(Protocol):
    """One cell's part in erasing tenants."""

    async def erase(self, tenant_id: uuid.UUID, erasure_id: uuid.UUID) -> Mapping[str, object]:
        """Does a few seconds of it: `done`, `why` (what it waits for), `removed` (how much of each kind so
        far), `erased_at`. From the first call on nothing of the tenant begins here, and nothing brings it
        back. `Retryable` where an engine is away."""
        ...

    async def erased(self) -> list[tuple[uuid.UUID, bool]]:
        """Every tenant that was erased here, and whether that is over."""
        ...
