"""Who becomes the primary when the one there was is gone. Pure; everybody who asks comes to the same answer.

Every configured standby votes: it stops listening to any primary, replays what it has, and says how far
that is. What the old primary had confirmed to somebody as flushed elsewhere (STRICT) is on at least one
of them, so with all votes there the most advanced one has it. The last primary has everything: where it
is back and votes itself, nobody else need.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cells.standby.lines import Line, Place


@dataclass(frozen=True, kw_only=True, slots=True)
class Vote:
    """What a site has, frozen: it follows no primary of an epoch before this one any more."""

    site: str
    epoch: int  # of the takeover that asked
    place: Place


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Who won, or why nobody has."""

    winner: str | None = None
    missing: tuple[str, ...] = ()  # votes that are waited for
    strangers: tuple[str, ...] = ()  # voted, but their history is not the cell's
    #: Sites whose votes were missing when an operator had it decided without them.
    passed_over: tuple[str, ...] = ()


def affinity(cell: str, epoch: int, site: str) -> bytes:
    """Rendezvous hashing: the site with the greatest value takes what all could take."""
    return hashlib.sha256(f"{cell}|{epoch}|{site}".encode()).digest()


def ranked(cell: str, epoch: int, sites: Collection[str]) -> list[str]:
    """Sites in the order in which they would take over, all else equal."""
    return sorted(sites, key=lambda site: affinity(cell, epoch, site), reverse=True)


def choose(
    *,
    cell: str,
    epoch: int,
    line: Line,
    sites: Collection[str],
    last_primary: str,
    votes: Sequence[Vote],
    claimer: str = "",
    override: bool = False,
) -> Outcome:
    """The outcome of the votes for `epoch`. `line` is the cell's history so far, `sites` all that are
    configured, `claimer` who claimed the epoch: it wins among equals. `override`: an operator gives the
    missing up, and what only they have."""
    cast = {vote.site: vote for vote in votes if vote.epoch == epoch and vote.site in sites}
    candidates = {site: vote for site, vote in cast.items() if vote.place.lies_on(line)}
    strangers = tuple(sorted(cast.keys() - candidates.keys()))
    missing = () if last_primary in candidates else tuple(sorted(set(sites) - {last_primary} - cast.keys()))
    if missing and not override:
        return Outcome(missing=missing, strangers=strangers)
    if not candidates:
        return Outcome(strangers=strangers, passed_over=missing)
    winner = max(
        candidates.values(),
        key=lambda vote: (
            vote.place.lsn,
            len(vote.place.line.forks),
            vote.site == claimer,
            affinity(cell, epoch, vote.site),
        ),
    )
    return Outcome(winner=winner.site, strangers=strangers, passed_over=missing)
