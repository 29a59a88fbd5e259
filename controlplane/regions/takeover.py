"""What a cell's new owner settles before the cell works under it: whose tenants they are."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from cells.ownership.cell_row import CellRow, Settled
from controlplane.ownership import OwnershipStore, Superseded, TenantOwnership

_PAGE = 500


def settle_tenants(
    store: OwnershipStore,
    row: CellRow,
    *,
    cell: str,
    epoch: int,
    lost: str,
    between: Callable[[], object],
    passed_over: Sequence[str] = (),
) -> Settled:
    """Claims the row of each tenant that is the cell's, and has the cell's database say the same. `epoch` is
    the cell's, `lost` the region that owned it before, `passed_over` whose votes were given up.
    `between` is called after every claim, however slow
    the store is: it keeps the owner's lease. Rows that were claimed under this epoch already (epochs come
    from one counter) are not claimed again, so that whoever begins anew gets further.

    A handoff claims the same rows, each on top of the epoch it saw. Who comes second finds another epoch: a
    tenant that left is not taken back, and a driver that comes late begins its move anew.
    """
    epochs: dict[uuid.UUID, int] = {}
    after: uuid.UUID | None = None
    while page := store.tenants_of(cell, after=after, limit=_PAGE):
        for owned in page:
            claimed = owned if owned.epoch > epoch else _claimed(store, owned)
            if claimed is not None:
                epochs[claimed.tenant_id] = claimed.epoch
            between()
        after = page[-1].tenant_id
    return row.settle(epochs, lost=lost, epoch=epoch, passed_over=passed_over)


def _claimed(store: OwnershipStore, owned: TenantOwnership) -> TenantOwnership | None:
    """The tenant's row under a new epoch; None where it went to another cell meanwhile."""
    try:
        return store.claim_tenant(owned.tenant_id, cell=owned.cell, expected=owned.epoch)
    except Superseded as other:
        current = other.current
        if isinstance(current, TenantOwnership) and current.cell == owned.cell:
            return current
        return None
