"""Sites that a takeover was decided without: what only they have is waited for."""

from __future__ import annotations

from cells.ownership.cell_row import CellRow
from cells.standby.cluster import Cluster, Look, NotThere
from cells.standby.lines import line_of
from controlplane.ownership import OwnershipStore
from controlplane.ownership.store import CellOwnership
from controlplane.regions.deciding import promotion_of
from controlplane.regions.settings import Settings
from controlplane.regions.wishes import OPERATOR


def passed_over(settings: Settings, store: OwnershipStore, *, epoch: int, lost: str) -> list[str]:
    """The sites whose votes for the takeover of `epoch` an operator gave up. Nobody needs them where the
    `lost` owner voted itself: it has all that they have."""
    told = store.votes(settings.cell, epoch=epoch, regions=[*settings.databases, OPERATOR])
    if not lost or OPERATOR not in told or lost in told:
        return []
    return sorted(set(settings.databases) - {lost} - told.keys())


def follow_owner(
    settings: Settings, store: OwnershipStore, cluster: Cluster, row: CellOwnership, look: Look | None
) -> None:
    """Has this site stream from the owner under `row`. Where its vote was given up, the owner is told first
    that it has nothing more."""
    if look is not None and not (look.follows and look.followed == f"{row.region}@{row.epoch}"):
        _has_nothing_more(settings, store, cluster, row, look)
    cluster.follow(settings.databases[row.region], primary=row.region, epoch=row.epoch)


def _has_nothing_more(
    settings: Settings, store: OwnershipStore, cluster: Cluster, row: CellOwnership, look: Look
) -> None:
    """Said once it has replayed all that it has, and that lies on the owner's line. Only where its vote was
    given up since the last one it cast: a copy of the owner has nothing of its own, and knows a later epoch.
    `NotThere` where it turns out to have more."""
    records = store.promotions(settings.cell)
    missed = [one.epoch for one in records if one.epoch > look.voted_epoch]
    if any(store.votes(settings.cell, epoch=epoch, regions=[OPERATOR]) for epoch in missed):
        place = cluster.vote(row.epoch, seconds=settings.timing.lease)
        if not place.lies_on(line_of([promotion_of(record) for record in records])):
            raise NotThere(f"{settings.region} has more than the owner: it is at {place.text()}")
        CellRow(settings.databases[row.region]).was_read(settings.region, voted=look.voted_epoch)
