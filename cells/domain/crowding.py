"""Where a tenant's delay came from: its own schedules, quotas, workers, targets, or the others on its cell.

A run's waiting is known part by part (`api.documents.time_split`). What it waited in the cell's queue is
shared out by whose runs began in that minute: a tenant whose runs were one in ten of those that began waited
nine tenths for others. Alone on its cell it waited behind its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

#: Where fewer other tenants ran, their share would be told of one of them.
FEW = 3
#: What a tenant can wait for, the way a run goes.
PARTS = ("window", "retries", "quota", "workers", "own_queue", "others", "target")


@dataclass(frozen=True, kw_only=True, slots=True)
class Waited:
    """What the runs that began in one minute had waited for, milliseconds added up."""

    minute: datetime
    runs: int
    window: int  # their dispatch windows: asked for
    retries: int  # earlier attempts, and the waiting between them
    quota: int  # the tenant's own quotas, pause or budget
    workers: int  # its own workers, where they fetch their work
    queue: int  # the cell's queue
    target: int  # a free place at the target


@dataclass(frozen=True, kw_only=True, slots=True)
class Began:
    """Runs that began on the cell in one minute."""

    own: int
    others: int
    tenants: int  # how many others they were of

    @property
    def others_share(self) -> float:
        """Of all that began, the part that was other tenants'."""
        together = self.own + self.others
        return self.others / together if together else 0.0

    def coarse_share(self) -> float:
        """The same in tenths; in halves where they were of few."""
        steps = 10 if self.tenants >= FEW else 2
        return round(self.others_share * steps) / steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Crowded:
    """A minute in which others were waited for."""

    minute: datetime
    runs: int
    others_ms: int
    others_share: float | None  # None: not told


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """A period's delay, part by part, in milliseconds; and the minutes in which others cost the most."""

    runs: int
    parts: Mapping[str, int]
    crowded: Sequence[Crowded]

    @property
    def waited(self) -> int:
        """All of it."""
        return sum(self.parts.values())

    @property
    def sentence(self) -> str:
        """In plain words."""
        if not self.runs:
            return "No run of this time has begun."
        if not self.waited:
            return f"{self.runs:,} runs began without waiting."
        mean = self.waited / self.runs
        shares = [
            f"{ms / self.waited:.0%} {_WORDS[part]}"
            for part, ms in sorted(self.parts.items(), key=lambda p: -p[1])
            if ms * 200 >= self.waited
        ]
        return f"{self.runs:,} runs waited {mean:,.0f} ms in the mean: {', '.join(shares)}."


_WORDS = {
    "window": "for their own windows",
    "retries": "for retries",
    "quota": "for the tenant's own quotas",
    "workers": "for the tenant's own workers",
    "own_queue": "behind the tenant's own runs",
    "others": "behind other tenants of the cell",
    "target": "for a free place at the target",
}
#: Minutes that are told one by one.
_SHOWN = 10


def statement(minutes: Sequence[Waited], began: Mapping[datetime, Began], *, exact: bool = True) -> Statement:
    """Adds up a period. A minute that `began` does not have is one in which nobody else ran. Not `exact`: as
    a tenant may be told, without what it could learn of single neighbours."""
    parts = dict.fromkeys(PARTS, 0)
    crowded = []
    alone = Began(own=0, others=0, tenants=0)
    for waited in minutes:
        ran = began.get(waited.minute, alone)
        share = ran.others_share if exact else ran.coarse_share()
        others = round(waited.queue * share)
        for part in ("window", "retries", "quota", "workers", "target"):
            parts[part] += getattr(waited, part)
        parts["own_queue"] += waited.queue - others
        parts["others"] += others
        if others:
            crowded.append(
                Crowded(
                    minute=waited.minute,
                    runs=waited.runs,
                    others_ms=others,
                    others_share=share if exact or ran.tenants >= FEW else None,
                )
            )
    return Statement(runs=sum(w.runs for w in minutes), parts=parts, crowded=_worst(crowded))


def together(statements: Sequence[Statement]) -> Statement:
    """The delay of a tenant whose runs are in several stores: each store has neighbours of its own."""
    return Statement(
        runs=sum(each.runs for each in statements),
        parts={part: sum(each.parts[part] for each in statements) for part in PARTS},
        crowded=_worst([minute for each in statements for minute in each.crowded]),
    )


def _worst(crowded: Sequence[Crowded]) -> list[Crowded]:
    return sorted(crowded, key=lambda minute: (-minute.others_ms, minute.minute))[:_SHOWN]
