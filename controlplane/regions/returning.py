"""A site that went on alone comes back: what only it has is handed in to the owner, then it follows.

Each step may be begun again by whoever keeps the site after a crash: the tail lies in a file beside the data,
what was handed in is known to the owner's database, and the wish to rejoin lies in the site's folder.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

import structlog

from cells.ownership.cell_row import CellRow
from cells.ownership.handing_in import HandedIn, hand_in
from cells.ownership.tail import tail_of, was_handed_in
from cells.standby.cluster import Cluster
from cells.standby.folder import Folder
from controlplane.ownership import OwnershipStore
from controlplane.ownership.store import CellOwnership
from controlplane.regions.settings import Settings

_LOG = structlog.get_logger(__name__)
#: Between looks for tails that are needed no longer.
_TAILS_SECONDS = 60.0


class Returning:
    """The return of one site. `look` does what is next, in every round until the site follows."""

    def __init__(
        self, settings: Settings, store: OwnershipStore, folder: Folder, clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._store = store
        self._folder = folder
        self._clock = clock
        self._again_at = self._tails_at = float("-inf")
        self._handed_in: tuple[int, HandedIn, int] | None = (
            None  # under which epoch, what, the owner's place then
        )

    def look(self, row: CellOwnership) -> str:
        """One step under `row`, the owner's; says what it waits for."""
        if self._folder.wishes_to_rejoin(row.region, row.epoch):
            self._folder.end_server()
            return f"it becomes a standby of {row.region}"
        if self._handed_in is None or self._handed_in[0] != row.epoch:
            if self._clock() < self._again_at:
                return "what only this site has is handed in to the owner"
            self._again_at = self._clock() + self._settings.timing.renew
            self._hand_in(row)
        if not self._is_safe(row):
            return f"what only this site had was handed in to {row.region}; a standby has not got it yet"
        self._folder.wish_to_rejoin(row.region, row.epoch)
        self._folder.end_server()
        return f"it becomes a standby of {row.region}"

    def _hand_in(self, row: CellOwnership) -> None:
        own, owner = self._settings.databases[self._settings.region], self._settings.databases[row.region]
        self._come_to_rest(row)
        tail = tail_of(own, owner_url=owner, epoch=row.epoch)
        file = self._settings.data.parent / f"tail-{row.epoch}.jsonl"
        aside = file.with_suffix(".new")
        aside.write_bytes(b"".join(each.line() + b"\n" for each in tail))
        aside.replace(file)
        done = HandedIn(transactions=0, entries=0, dropped=0)
        if tail:
            done = hand_in(
                own, tail, owner_url=owner, region=self._settings.region, epoch=row.epoch, gone=self._gone
            )
        else:
            CellRow(owner).was_read(self._settings.region, voted=-1)
        self._handed_in = row.epoch, done, self._place_of(row)
        _LOG.warning(
            "tail handed in",
            cell=self._settings.cell,
            region=self._settings.region,
            owner=row.region,
            transactions=done.transactions,
            entries=done.entries,
            dropped=done.dropped,
            file=str(file),
        )

    def forget_tails(self) -> None:
        """The site follows: what it handed in is in the owner's database and in its own, and a file with
        everybody's rows is kept no longer. What a wish kept from that stays: nobody else has it."""
        if self._clock() < self._tails_at:
            return
        self._tails_at = self._clock() + _TAILS_SECONDS
        region = self._settings.region
        for file in self._settings.data.parent.glob("tail-*.jsonl"):
            epoch = file.stem.removeprefix("tail-")
            if not (epoch.isascii() and epoch.isdigit()):
                continue
            if was_handed_in(self._settings.databases[region], region=region, epoch=int(epoch)):
                file.unlink(missing_ok=True)
                _LOG.info("tail removed", cell=self._settings.cell, region=region, file=str(file))

    def _come_to_rest(self, row: CellOwnership) -> None:
        """A standby that was given up may have received more than it has replayed, and may be sent more by
        the primary that it had."""
        own = Cluster(
            self._settings.databases[self._settings.region],
            site=self._settings.region,
            cell=self._settings.cell,
        )
        try:
            own.vote(row.epoch, seconds=self._settings.timing.lease)
        finally:
            own.close()

    def _gone(self, tenant: uuid.UUID) -> bool:
        return self._store.tenant(tenant) is None

    def _place_of(self, row: CellOwnership) -> int:
        owner = Cluster(self._settings.databases[row.region], site=row.region, cell=self._settings.cell)
        try:
            return owner.look().replayed
        finally:
            owner.close()

    def _is_safe(self, row: CellOwnership) -> bool:
        """Whether what was handed in is where the owner's loss would not take it along: with a standby, where
        there is one that follows. Until then this site keeps the only other copy."""
        if self._handed_in is None:
            return False
        _, done, place = self._handed_in
        if not done.transactions:
            return True
        owner = Cluster(self._settings.databases[row.region], site=row.region, cell=self._settings.cell)
        try:
            following = [one for one in owner.standbys() if one.state == "streaming"]
        finally:
            owner.close()
        return not following or any(one.flushed >= place for one in following)
