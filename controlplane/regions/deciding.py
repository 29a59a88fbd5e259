"""What the keeper of a site does next. Pure: all that it knows goes in, one act comes out.

A cell's row in the ownership store says which region shall own it; the promotions say whose cluster is its
primary. They agree (`settled`) except during a takeover, which the raised epoch of the row begins:

    row unchanged for a lease ─ CLAIM ─▶ epoch + ─ every site: VOTE ─▶ winner: PROMOTE ─▶ OWN
                                                       winner is another: HAND_OVER ─▶ epoch +, once more
    others: FOLLOW the new primary · the old one, back: FENCE, then FOLLOW, or STRAYED if it has more
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cells.standby.cluster import Look
from cells.standby.election import Vote, choose
from cells.standby.lines import Line, Place, Promotion, line_of
from controlplane.ownership.store import CellOwnership, PromotionRecord


class Act(enum.StrEnum):
    """What to do."""

    WAIT = "WAIT"  # nothing; `why` says for what
    BEGIN = "BEGIN"  # claim a cell that nobody has owned, as its founding region
    FOUND = "FOUND"  # record that this site's cluster is the cell's first primary
    OWN = "OWN"  # renew the lease and let the cell work
    CLAIM = "CLAIM"  # take the cell over: its owner has been silent for long enough
    VOTE = "VOTE"  # stop following, and say how far this site is
    PROMOTE = "PROMOTE"  # this site has won: become the primary
    HAND_OVER = "HAND_OVER"  # another site has won: make it the owner
    FOLLOW = "FOLLOW"  # stream from the owner
    FENCE = "FENCE"  # end the server; it starts read-only, as this site is not the owner
    UNFENCE = "UNFENCE"  # end the server; it starts as the primary that it is
    STRAYED = "STRAYED"  # stay fenced: this site has what the owner does not, which is to be looked at first


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """All that a decision is made of."""

    cell: str
    me: str
    sites: Collection[str]
    founder: str
    row: CellOwnership | None
    promotions: Sequence[Promotion]
    look: Look | None  # None: the site's cluster does not answer
    place: Place | None
    votes: Mapping[str, Place]  # for the row's epoch
    may_claim: bool  # the row has not changed for so long that nobody acts under it
    override: bool = False  # an operator has missing votes given up


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """An act and its reason."""

    act: Act
    why: str
    whom: str = ""  # HAND_OVER, FOLLOW: the other site
    missing: tuple[str, ...] = ()  # sites whose votes the takeover waits for here


def promotion_of(record: PromotionRecord) -> Promotion:
    """A record of the ownership store as clusters know it: a site is called by its region."""
    return Promotion(
        timeline=record.timeline,
        epoch=record.epoch,
        site=record.region,
        parent=record.parent,
        fork=record.fork,
    )


def newest(promotions: Sequence[Promotion]) -> Promotion | None:
    """The promotion under the latest epoch: whose cluster is, or is about to be, the primary."""
    return max(promotions, key=lambda one: one.epoch, default=None)


def decide(known: Known) -> Decision:
    """What to do now."""
    if known.look is None or known.place is None:
        return Decision(act=Act.WAIT, why="the site's PostgreSQL does not answer")
    if known.row is None:
        if known.me == known.founder and not known.look.in_recovery:
            return Decision(act=Act.BEGIN, why="nobody has owned the cell yet")
        return Decision(act=Act.WAIT, why=f"{known.founder} has not begun the cell yet")
    if known.row.region == known.me:
        return _as_owner(known, known.look, known.place, known.row)
    return _as_other(known, known.look, known.place, known.row)


def _as_owner(known: Known, look: Look, place: Place, row: CellOwnership) -> Decision:
    last = newest(known.promotions)
    if last is None:
        if look.in_recovery:
            return Decision(act=Act.WAIT, why="the cell has no primary, and this site's cluster is a standby")
        return Decision(act=Act.FOUND, why="the cell's first owner has its first primary")
    if last.epoch != row.epoch:
        if not look.in_recovery:
            return Decision(
                act=Act.FENCE, why=f"epoch {row.epoch} has no primary yet, and this site has not voted"
            )
        return _elect(known, look, row, last)
    promoted = place.line.timeline == last.timeline
    if not look.in_recovery:
        return Decision(act=Act.OWN, why="this site's cluster is the primary")
    if promoted:
        return Decision(act=Act.UNFENCE, why="this site's cluster is the primary, and was started read-only")
    return Decision(act=Act.PROMOTE, why="the promotion of this site was recorded, and has not been done")


def _elect(known: Known, look: Look, row: CellOwnership, last: Promotion) -> Decision:
    if known.me not in known.votes or look.voted_epoch < row.epoch or look.follows:
        return Decision(act=Act.VOTE, why=f"the takeover of epoch {row.epoch} asks")
    outcome = choose(
        cell=known.cell,
        epoch=row.epoch,
        line=line_of(known.promotions),
        sites=known.sites,
        last_primary=last.site,
        votes=[Vote(site=site, epoch=row.epoch, place=place) for site, place in known.votes.items()],
        claimer=row.region,
        override=known.override,
    )
    if outcome.winner == known.me:
        return Decision(act=Act.PROMOTE, why="no site has more" + _without(outcome.passed_over))
    if outcome.winner is not None:
        why = f"{outcome.winner} has more, or takes it among equals" + _without(outcome.passed_over)
        return Decision(act=Act.HAND_OVER, why=why, whom=outcome.winner)
    if outcome.missing:
        return Decision(
            act=Act.WAIT,
            why=f"the votes of {', '.join(outcome.missing)} are missing",
            missing=outcome.missing,
        )
    return Decision(act=Act.WAIT, why="no site has the cell's history")


def _without(passed_over: Sequence[str]) -> str:
    return f"; an operator gave up {', '.join(passed_over)}" if passed_over else ""


def _as_other(known: Known, look: Look, place: Place, row: CellOwnership) -> Decision:
    if not look.in_recovery:
        return Decision(act=Act.FENCE, why=f"{row.region} owns the cell")
    last = newest(known.promotions)
    settled = last is not None and last.epoch == row.epoch
    strayed = last is not None and not place.lies_on(line_of(known.promotions))
    if known.may_claim and not strayed:
        return Decision(act=Act.CLAIM, why=f"{row.region} has not renewed its lease")
    if not settled:
        if known.me not in known.votes or look.voted_epoch < row.epoch or look.follows:
            return Decision(act=Act.VOTE, why=f"the takeover of epoch {row.epoch} asks")
        return Decision(act=Act.WAIT, why=f"{row.region} counts the votes of epoch {row.epoch}")
    if strayed:
        return Decision(act=Act.STRAYED, why=f"this site went on alone: it is at {place.text()}")
    return Decision(act=Act.FOLLOW, why=f"{row.region} is the primary", whom=row.region)


def starts_as(
    *,
    me: str,
    row: CellOwnership | None,
    promotions: Sequence[Promotion],
    line: Line | None,
) -> Act:
    """How the server of a site shall be started. `line` None: there is no cluster yet.

    `OWN`: as the primary it is. `FOLLOW`: as a copy that is made first. `FENCE`: read-only; what comes is
    decided when it runs. `WAIT`: it cannot be started yet."""
    last = newest(promotions)
    if row is None:
        return Act.WAIT if line is None else Act.OWN
    if row.region == me:
        if last is None:
            return Act.WAIT if line is None else Act.OWN
        if line is None:
            return Act.WAIT  # its cluster is gone: another has to take over first
        return Act.OWN if last.epoch == row.epoch and line.timeline == last.timeline else Act.FENCE
    if line is None:
        return Act.FOLLOW if last is not None and last.epoch == row.epoch else Act.WAIT
    return Act.FENCE
