"""What an operator asks of a site: files beside its data, and a vote of the operator's own.

A site's keeper does it in its next round, so nothing acts beside the keeper.
"""

from __future__ import annotations

from pathlib import Path

from cells.standby.folder import Folder
from controlplane.ownership import OwnershipStore
from controlplane.regions.deciding import newest, promotion_of
from controlplane.regions.settings import Settings

#: Votes under this name in the ownership store: the missing ones are given up, and what only they have.
OPERATOR = "operator"
_HANDOVER = "hand-over"


class Refused(Exception):
    """The site is in no state to be asked for it; the message says why."""


class Wishes:
    """The files in a site's folder."""

    def __init__(self, folder: Path) -> None:
        self._handover = folder / _HANDOVER

    def handover(self) -> str | None:
        """The region that shall own the cell next, if one was named."""
        try:
            return self._handover.read_text().strip() or None
        except FileNotFoundError:
            return None

    def ask_handover(self, region: str) -> None:
        """Whole or not at all: a keeper reads it while this writes, or after this process died."""
        aside = self._handover.with_suffix(".new")
        aside.write_text(region)
        aside.replace(self._handover)

    def drop_handover(self) -> None:
        self._handover.unlink(missing_ok=True)


def hand_over(settings: Settings, store: OwnershipStore, *, to: str) -> str:
    """Asks this site's keeper, the owner's, to make another region the owner; what was asked."""
    row = store.cell(settings.cell)
    if row is None or row.region != settings.region:
        owner = "nobody" if row is None else row.region
        raise Refused(f"{settings.region} does not own {settings.cell}, {owner} does: ask there")
    if to not in settings.others:
        raise Refused(f"{to} has no other site of {settings.cell}; there are {', '.join(settings.others)}")
    Wishes(settings.data.parent).ask_handover(to)
    return f"{settings.cell} goes from {settings.region} to {to}"


def rejoin(settings: Settings, store: OwnershipStore) -> str:
    """Has a site that strayed become a standby of the owner at once, where handing in what only it did
    cannot be waited for. That stays in its tail's file."""
    row = store.cell(settings.cell)
    if row is None or row.region == settings.region:
        raise Refused(f"{settings.region} follows nobody: there is no other owner")
    if not (settings.data.parent / f"tail-{row.epoch}.jsonl").exists():
        raise Refused("what only this site has was not read yet: its keeper does so first")
    folder = Folder(settings.data, site=settings.region, binaries=settings.binaries)
    folder.wish_to_rejoin(row.region, row.epoch)
    return f"{settings.region} becomes a standby of {row.region}"


def override(settings: Settings, store: OwnershipStore, *, reason: str) -> str:
    """Gives up the votes that a takeover waits for, and with them what only those sites have. It is recorded
    in the ownership store for good; such a site strays when it comes back."""
    row = store.cell(settings.cell)
    last = newest([promotion_of(record) for record in store.promotions(settings.cell)])
    if row is None or last is None or last.epoch == row.epoch:
        raise Refused(f"nobody takes {settings.cell} over now: no vote is waited for")
    voted = store.votes(settings.cell, epoch=row.epoch, regions=list(settings.databases))
    if not voted:
        raise Refused("no site has voted yet: there is nobody to promote")
    store.cast_vote(settings.cell, epoch=row.epoch, region=OPERATOR, place=reason)
    missing = sorted(set(settings.databases) - {last.site} - voted.keys())
    return f"epoch {row.epoch} of {settings.cell} is decided without {', '.join(missing) or 'nobody'}"
