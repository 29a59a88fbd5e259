"""What an operator asks of a site: files beside its data, and a vote of the operator's own.

A site's keeper does it in its next round, so nothing acts beside the keeper.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cells.ownership.cell_row import CellRow, RowAway
from cells.standby.election import Vote, choose
from cells.standby.folder import Folder
from cells.standby.lines import Place, line_of
from controlplane.ownership import OwnershipStore
from controlplane.ownership.store import CellOwnership
from controlplane.regions.deciding import newest, promotion_of
from controlplane.regions.settings import Settings

#: Votes under this name in the ownership store: the missing ones are given up, and what only they have.
OPERATOR = "operator"
_HANDOVER = "hand-over"
_CUT = "cut-off"
#: A handover that was not begun for so long is not begun any more (seconds).
PATIENCE_SECONDS = 600.0
#: Longest time that a rehearsal cuts a region off (seconds).
MOST_CUT_SECONDS = 900.0


class Refused(Exception):
    """The site is in no state to be asked for it; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """A region that acts as cut off from the others, for a rehearsal."""

    region: str
    until: float  # seconds since 1970; it ends then, whoever is there to see it


class Wishes:
    """The files in a site's folder."""

    def __init__(self, folder: Path) -> None:
        self._handover = folder / _HANDOVER
        self._cut = folder / _CUT

    def handover(self, epoch: int, now: float) -> str | None:
        """The region that shall own the cell next, if one was named under this epoch, and lately."""
        told = _read(self._handover)
        if told.get("epoch") != epoch or told.get("until", 0) < now:
            self.drop_handover()  # asked of an owner that was another, or by somebody who waits no more
            return None
        return str(told.get("to"))

    def ask_handover(self, region: str, *, epoch: int, until: float) -> None:
        """Whole or not at all: a keeper reads it while this writes, or after this process died."""
        _write(self._handover, json.dumps({"to": region, "epoch": epoch, "until": until}))

    def drop_handover(self) -> None:
        self._handover.unlink(missing_ok=True)

    def cut(self, now: float) -> Cut | None:
        """The cut that lasts (`now`: seconds since 1970). It ends by itself, at the latest after the longest
        time that one may last, whatever the clock was when it was asked for."""
        told = _read(self._cut)
        until = told.get("until", 0)
        if not now < until <= now + MOST_CUT_SECONDS:
            self._cut.unlink(missing_ok=True)
            return None
        return Cut(region=str(told.get("region")), until=until)

    def ask_cut(self, cut: Cut) -> None:
        _write(self._cut, json.dumps({"region": cut.region, "until": cut.until}))


def _read(path: Path) -> dict[str, Any]:
    """What somebody wished; nothing, where there is no such file, or one that says nothing to us."""
    try:
        told = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return told if isinstance(told, dict) else {}


def _write(path: Path, text: str) -> None:
    aside = path.with_suffix(".new")
    aside.write_text(text)
    aside.replace(path)


def hand_over(settings: Settings, row: CellOwnership | None, *, to: str, until: float | None = None) -> str:
    """Asks this site's keeper, the owner's, to make another region the owner; what was asked. It is begun
    under the epoch of `row`, before `until` (seconds since 1970), or not at all."""
    if row is None or row.region != settings.region:
        owner = "nobody" if row is None else row.region
        raise Refused(f"{settings.region} does not own {settings.cell}, {owner} does: ask there")
    if to not in settings.others:
        raise Refused(f"{to} has no other site of {settings.cell}; there are {', '.join(settings.others)}")
    Wishes(settings.data.parent).ask_handover(
        to, epoch=row.epoch, until=time.time() + PATIENCE_SECONDS if until is None else until
    )
    return f"{settings.cell} goes from {settings.region} to {to}"


def rejoin(settings: Settings, row: CellOwnership | None) -> str:
    """Has a site that strayed become a standby of the owner that `row` names at once, where handing in what
    only it did cannot be waited for. That stays in its tail's file."""
    if row is None or row.region == settings.region:
        raise Refused(f"{settings.region} follows nobody: there is no other owner")
    if not (settings.data.parent / f"tail-{row.epoch}.jsonl").exists():
        raise Refused("what only this site has was not read yet: its keeper does so first")
    folder = Folder(settings.data, site=settings.region, binaries=settings.binaries)
    folder.wish_to_rejoin(row.region, row.epoch)
    return f"{settings.region} becomes a standby of {row.region}"


def missing_votes(settings: Settings, store: OwnershipStore, row: CellOwnership | None) -> tuple[str, ...]:
    """The sites whose votes the takeover of `row`'s epoch waits for. `Refused` where it waits for none."""
    promotions = [promotion_of(record) for record in store.promotions(settings.cell)]
    last = newest(promotions)
    if row is None or last is None or last.epoch >= row.epoch:
        raise Refused(f"nobody takes {settings.cell} over now: no vote is waited for")
    voted = store.votes(settings.cell, epoch=row.epoch, regions=list(settings.databases))
    if not voted:
        raise Refused("no site has voted yet: there is nobody to promote")
    outcome = choose(
        cell=settings.cell,
        epoch=row.epoch,
        line=line_of(promotions),
        sites=settings.databases.keys(),
        last_primary=last.site,
        votes=[Vote(site=site, epoch=row.epoch, place=Place.read(told)) for site, told in voted.items()],
        claimer=row.region,
    )
    if not outcome.missing:
        raise Refused(f"all votes that epoch {row.epoch} needs are there: none is to be given up")
    return outcome.missing


def override(
    settings: Settings, store: OwnershipStore, row: CellOwnership | None, *, reason: str, waited: float
) -> str:
    """Gives up the votes that the takeover of `row`'s epoch waits for, and with them what only those sites
    have. It is recorded in the ownership store for good; such a site strays when it comes back. `waited`: for
    how long (seconds) those have been waited for; for less than a lease they are not given up, as sites vote
    within moments, and each vote that is there is one less to lose."""
    missing = missing_votes(settings, store, row)
    if row is None or waited < settings.timing.lease:
        raise Refused(
            f"the votes of {', '.join(missing)} are waited for by {settings.region} since {waited:.0f} s:"
            f" after {settings.timing.lease:g} s of that they can be given up"
        )
    store.cast_vote(settings.cell, epoch=row.epoch, region=OPERATOR, place=reason)
    return f"epoch {row.epoch} of {settings.cell} is decided without {', '.join(missing)}"


def give_up(settings: Settings, row: CellOwnership | None, *, site: str, reason: str) -> str:
    """Gives a site up for good that a takeover was decided without: STRICT opens in the cell, and what only
    that site had confirmed is lost. Asked of the owner's site; it stays in the cell's database."""
    if row is None or row.region != settings.region:
        owner = "nobody" if row is None else row.region
        raise Refused(f"{settings.region} does not own {settings.cell}, {owner} does: ask there")
    here = CellRow(settings.databases[settings.region])
    try:
        if not here.give_up(site, epoch=row.epoch, reason=reason):
            waited = ", ".join(here.unread()) or "no site"
            raise Refused(f"{settings.cell} does not wait for what {site} has: it waits for {waited}")
    except RowAway as fault:
        raise Refused(f"the database of {settings.cell} takes no writes now: {fault}") from fault
    return f"{settings.cell} does not wait any more for what {site} has"


def cut_off(settings: Settings, *, region: str, until: float, now: float) -> str:
    """Has this site act as if `region` could not be reached until then: in `region` itself the keeper asks
    nobody, and the lease ends; elsewhere nothing is received from there. For rehearsals."""
    if region not in settings.databases:
        raise Refused(f"{region} has no site of {settings.cell}")
    if not now < until <= now + MOST_CUT_SECONDS:
        raise Refused(f"a cut lasts at most {MOST_CUT_SECONDS:g} s, and ends later than now")
    Wishes(settings.data.parent).ask_cut(Cut(region=region, until=until))
    return f"{region} is cut off from {settings.cell}'s other sites for {until - now:.0f} s"
