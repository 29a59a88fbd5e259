"""A side of a move as it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cells.store.database import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferRow:
    """What this cell knows of a move."""

    attempt: int
    state: str  # see migrations/0050_transfers.sql
    peer: str
    peer_url: str
    tenant_epoch: int
    began_under: int  # the cell's epoch when this attempt began
    link: str
    conninfo: str
    sealed_lsn: str | None
    new_epoch: int | None
    facts: dict[str, Any]
    touched_at: datetime
    cell_epoch: int  # now
    tenant_state: str | None  # None: this cell does not know the tenant
    ownership_epoch: int | None
    barrier_until: datetime | None
    began_at: datetime

    @property
    def taken_over(self) -> bool:
        """Whether another owner took this cell over since the attempt began."""
        return self.cell_epoch != self.began_under


def transfer_row(row: Row) -> TransferRow:
    """From the columns of `transfer_get`."""
    names = (
        *("attempt", "state", "peer", "peer_url", "tenant_epoch", "began_under", "link", "conninfo"),
        *("sealed_lsn", "new_epoch", "facts", "touched_at", "cell_epoch", "tenant_state", "ownership_epoch"),
        *("barrier_until", "began_at"),
    )
    return TransferRow(**dict(zip(names, row, strict=True)))
