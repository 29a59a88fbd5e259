"""Where a cluster is in the history of its cell: timelines, the forks between them, positions in the log.

PostgreSQL begins another timeline with each promotion and writes the forks that led to it into
`<timeline>.history`. Pure: nothing here asks a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

#: The timeline of a cluster that nobody was ever promoted in.
FIRST = 1
_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def parse_lsn(text: str) -> int:
    """A position in the log (bytes) as PostgreSQL writes it: `16/B374D848`."""
    found = _LSN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no position in the log")
    return (int(found[1], 16) << 32) | int(found[2], 16)


def format_lsn(lsn: int) -> str:
    """The way back from `parse_lsn`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fork:
    """A timeline that was left, and where."""

    timeline: int
    at: int  # position in the log


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A timeline with all the forks that led to it, oldest first."""

    timeline: int = FIRST
    forks: tuple[Fork, ...] = ()

    def __post_init__(self) -> None:
        numbers = [fork.timeline for fork in self.forks] + [self.timeline]
        if numbers != sorted(set(numbers)) or numbers[0] < FIRST:
            raise ValueError(f"timelines do not rise: {numbers}")

    @classmethod
    def parse(cls, timeline: int, text: str) -> Self:
        """The line that a `.history` file of `timeline` describes."""
        forks = []
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) < 2 or not words[0].isdigit():
                raise ValueError(f"line {number} of the history of timeline {timeline} is not one: {line!r}")
            forks.append(Fork(timeline=int(words[0]), at=parse_lsn(words[1])))
        return cls(timeline=timeline, forks=tuple(forks))

    def text(self) -> str:
        """The line for storing and comparing: `1@0/3000158 2@0/5000000 3`."""
        return " ".join(
            [*(f"{fork.timeline}@{format_lsn(fork.at)}" for fork in self.forks), str(self.timeline)]
        )

    @classmethod
    def read(cls, text: str) -> Self:
        """The way back from `text`."""
        *forks, timeline = text.split()
        pairs = [fork.split("@") for fork in forks]
        return cls(
            timeline=int(timeline),
            forks=tuple(Fork(timeline=int(number), at=parse_lsn(at)) for number, at in pairs),
        )

    def leads_to(self, other: Line) -> bool:
        """Whether `other` left this very line, fork by fork, or is it: a cluster on this one may have gone on
        beyond that, and nothing else."""
        own = len(self.forks)
        if self.forks != other.forks[:own]:
            return False
        return self.timeline == (other.forks[own].timeline if own < len(other.forks) else other.timeline)

    def forked(self, *, at: int, timeline: int) -> Self:
        """The line of who is promoted on this one at a position."""
        return type(self)(timeline=timeline, forks=(*self.forks, Fork(timeline=self.timeline, at=at)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """How far a cluster has come: it has all of `line` before `lsn`, flushed."""

    line: Line
    lsn: int

    def lies_on(self, line: Line) -> bool:
        """Whether all that a cluster at this place has is part of `line`: its history is a prefix."""
        own = self.line.forks
        if own != line.forks[: len(own)]:
            return False
        if len(own) == len(line.forks):
            return self.line.timeline == line.timeline
        left = line.forks[len(own)]
        return left.timeline == self.line.timeline and self.lsn <= left.at

    def text(self) -> str:
        """For storing, and for people: `0/3000158 on 1`."""
        return f"{format_lsn(self.lsn)} on {self.line.text()}"

    @classmethod
    def read(cls, text: str) -> Self:
        """The way back from `text`."""
        lsn, on, line = text.partition(" on ")
        if not on:
            raise ValueError(f"{text!r} is no place")
        return cls(line=Line.read(line), lsn=parse_lsn(lsn))


@dataclass(frozen=True, kw_only=True, slots=True)
class Promotion:
    """A cluster that became the cell's primary. The first one of a cell was not promoted: its parent is 0."""

    timeline: int  # no two promotions of a cell have the same
    epoch: int  # of the cell, under which it was promoted
    site: str
    parent: int  # timeline it was on before
    fork: int  # where the parent was left


def line_of(promotions: Iterable[Promotion]) -> Line:
    """The line of the newest promotion (by epoch); the first timeline where there was none."""
    known = {FIRST: Line()}
    newest: Promotion | None = None
    for promotion in sorted(promotions, key=lambda one: one.timeline):
        if promotion.parent:
            parent = known.get(promotion.parent)
            if parent is None:
                raise ValueError(f"timeline {promotion.timeline} left {promotion.parent}, which nobody began")
            known[promotion.timeline] = parent.forked(at=promotion.fork, timeline=promotion.timeline)
        else:
            known[promotion.timeline] = Line(timeline=promotion.timeline)
        if newest is None or promotion.epoch > newest.epoch:
            newest = promotion
    return known[newest.timeline if newest is not None else FIRST]


def next_timeline(promotions: Iterable[Promotion]) -> int:
    """The number of the next promotion: behind all that were ever recorded, used or not."""
    return max((promotion.timeline for promotion in promotions), default=FIRST) + 1
