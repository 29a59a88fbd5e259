"""How a site's server shall start: as the primary that it is, as a copy of the primary, or read-only."""

from __future__ import annotations

import structlog

from cells.standby.folder import CannotPrepare, Folder
from cells.standby.lines import line_of
from controlplane.ownership import OwnershipStore
from controlplane.ownership.store import OwnershipUnavailable
from controlplane.regions.deciding import Act, promotion_of, starts_as
from controlplane.regions.settings import Settings

_LOG = structlog.get_logger(__name__)


def prepare(settings: Settings, store: OwnershipStore, *, sync: bool = True) -> Act:
    """Makes the site's folder ready for its server to start; as what. `CannotPrepare` while it cannot.

    Where the ownership store does not answer, a cluster starts read-only: its keeper ends that once it
    knows better. What this decides protects nothing by itself: the cell's lease does.
    """
    folder = Folder(settings.data, site=settings.region, binaries=settings.binaries)
    try:
        row = store.cell(settings.cell)
        promotions = [promotion_of(record) for record in store.promotions(settings.cell)]
    except OwnershipUnavailable as fault:
        if not folder.exists:
            raise CannotPrepare(f"the ownership store does not say whom to copy: {fault}") from fault
        folder.fence()
        return Act.FENCE
    line = folder.place().line if folder.exists else None
    act = starts_as(me=settings.region, row=row, promotions=promotions, line=line)
    match act:
        case Act.OWN:
            folder.unfence()
        case Act.FENCE if row is not None and folder.wishes_to_rejoin(row.region, row.epoch):
            folder.rejoin(
                settings.databases[row.region],
                primary=row.region,
                epoch=row.epoch,
                sync=sync,
                # Its whole history is the owner's, up to where it was left: else nothing of it is trusted.
                rewind=line is not None and line.leads_to(line_of(promotions)),
            )
            act = Act.FOLLOW
        case Act.FENCE:
            folder.fence()
        case Act.FOLLOW if row is not None:
            folder.clone(settings.databases[row.region], primary=row.region, epoch=row.epoch, sync=sync)
        case _:
            raise CannotPrepare("there is no primary to copy yet")
    _LOG.info("site prepared", cell=settings.cell, region=settings.region, starts_as=act.value)
    return act
