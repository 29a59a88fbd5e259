"""What happens in a history: drawn from its seed alone, and from nothing else."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

REGIONS = ("a", "b", "c")
STORE = "store"  # the machine of the ownership store
#: Within so many seconds it all begins; nothing lasts for longer than a few leases.
_SPAN, _LASTS = 4.0, (0.3, 3.0)
#: Clocks go wrong by so much at most: less than the margins of a lease.
_DRIFT = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """Something that goes wrong at a time, and is mended after a while (seconds)."""

    at: float
    what: str  # kill, isolate, alone, cut, hold, slow, hand-over
    where: tuple[str, ...]  # a region, or a directed link
    lasts: float = 0.0
    delays: tuple[float, float] = (0.0, 0.0)  # slow: outward and back


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """One history."""

    seed: int
    faults: Sequence[Fault]
    rates: dict[str, float]  # how fast each region's clock goes
    #: When the tenant of each cell begins to move to the other one; none stays.
    moves: dict[str, float | None]


def script_of(seed: int) -> Script:
    """The history of a seed."""
    chance = random.Random(seed)
    faults = sorted((_fault(chance) for _ in range(chance.randint(1, 4))), key=lambda fault: fault.at)
    return Script(
        seed=seed,
        faults=faults,
        rates={region: 1 + chance.uniform(-_DRIFT, _DRIFT) for region in REGIONS},
        moves={
            cell: chance.uniform(0, _SPAN / 2) if chance.random() < part else None
            for cell, part in (("x", 0.6), ("y", 0.4))
        },
    )


def _fault(chance: random.Random) -> Fault:
    what = chance.choices(
        ("kill", "isolate", "alone", "cut", "hold", "slow", "hand-over"), weights=(5, 4, 3, 3, 2, 2, 3)
    )[0]
    region = chance.choice(REGIONS)
    where: tuple[str, ...] = (region,)
    if what in ("cut", "hold", "slow"):
        where = (region, chance.choice([*(other for other in REGIONS if other != region), STORE]))
    return Fault(
        at=chance.uniform(0, _SPAN),
        what=what,
        where=where,
        lasts=chance.uniform(*_LASTS),
        delays=(chance.uniform(0, 0.2), chance.uniform(0, 0.2)) if what == "slow" else (0.0, 0.0),
    )
