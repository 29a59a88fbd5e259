"""What STRICT needs from the store."""

from __future__ import annotations

from typing import Protocol


class ConfirmStore(Protocol):
    """Part of `ports.Store`."""

    async def confirm(self) -> None:
        """Returns once a standby in another region has flushed all that was committed here before this
        call; at once where the cell has no other region. `Unconfirmed` if none has in time: then it is
        committed here, and may be nowhere else."""
        ...
