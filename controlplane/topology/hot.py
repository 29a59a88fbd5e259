"""Who should move where, and why: tenants that keep a cell hot, from what was measured. Pure.

A suggestion moves nobody. It is made where a cell is used beyond `HOT` of its capacity, for as many of
its busiest tenants as bring it below, each to the coolest open cell that has room for what it was promised
and stays below `HOT` itself. A tenant that takes most of a cell alone is shown a cell of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.topology.chooser import Wish, choose_cell
from controlplane.topology.headroom import Candidate

#: Of a cell's capacity, used: from here on it is hot.
HOT = 0.6
#: A tenant that uses so much of a cell's capacity alone wants its own.
ALONE = 0.4
#: Suggestions for one cell.
_MOST = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Used:
    """What a tenant was measured to use, in runs a second over the last minutes."""

    tenant_id: str  # TypeID
    name: str
    cell: str
    quota: int
    used: float
    busiest: float  # its busiest minute


@dataclass(frozen=True, kw_only=True, slots=True)
class Suggestion:
    """A move that would help. `destination` is none where no cell could take it."""

    tenant_id: str
    name: str
    source: str
    destination: str | None
    used: float
    why: str


def suggestions(
    cells: Sequence[Candidate], used: Mapping[str, float], tenants: Sequence[Used]
) -> list[Suggestion]:
    """For every hot cell, the hottest first. `used`: runs a second measured on each cell; one without a
    figure is not known, and neither hot nor a destination."""
    now = dict(used)
    given: set[str] = set()  # dedicated cells that are proposed to somebody already
    found: list[Suggestion] = []
    hot = [c for c in cells if not c.dedicated and _heat(c, now) >= HOT]
    for cell in sorted(hot, key=lambda c: (-_heat(c, now), c.name)):
        busiest = sorted((t for t in tenants if t.cell == cell.name), key=lambda t: (-t.used, t.tenant_id))
        made = 0
        for tenant in busiest:
            if made == _MOST or _heat(cell, now) < HOT or tenant.used <= 0:
                break
            suggestion = _for(tenant, cell, [c for c in cells if c.name not in given], now)
            if suggestion is None:
                continue
            found.append(suggestion)
            made += 1
            now[cell.name] -= tenant.used
            if suggestion.destination is not None:
                given |= {c.name for c in cells if c.dedicated and c.name == suggestion.destination}
                now[suggestion.destination] = now.get(suggestion.destination, 0.0) + tenant.used
    return found


def _heat(cell: Candidate, used: Mapping[str, float]) -> float:
    return used.get(cell.name, 0.0) / cell.capacity


def _for(
    tenant: Used, cell: Candidate, cells: Sequence[Candidate], used: Mapping[str, float]
) -> Suggestion | None:
    share = tenant.used / cell.capacity
    hot = (
        f"{cell.name} runs at {_heat(cell, used):.0%} of its {cell.capacity} runs/s;"
        f" {tenant.name} used {tenant.used:.1f} of them ({share:.0%}),"
        f" {tenant.busiest:.1f} in its busiest minute"
    )
    wish = Wish(region=cell.region, runs_per_second=tenant.quota, dedicated=share >= ALONE)
    if wish.dedicated:
        own = choose_cell(wish, [c for c in cells if c.name != cell.name])
        then = (
            f"{own.cell} is free and kept for one tenant"
            if own.cell
            else "it wants a cell of its own; none is free"
        )
        return _suggest(tenant, cell, own.cell, f"{hot}; {then}")
    cool = [
        c
        for c in cells
        if c.name != cell.name and c.name in used and used[c.name] + tenant.used < HOT * c.capacity
    ]
    by_heat = sorted(cool, key=lambda c: (_heat(c, used), c.name))
    for destination in by_heat:
        if choose_cell(wish, [destination]).cell is None:
            continue
        then = (
            f"{destination.name} runs at {_heat(destination, used):.0%} of its {destination.capacity}"
            f" and would at {(used[destination.name] + tenant.used) / destination.capacity:.0%}"
        )
        return _suggest(tenant, cell, destination.name, f"{hot}; {then}")
    return None


def _suggest(tenant: Used, cell: Candidate, destination: str | None, why: str) -> Suggestion:
    return Suggestion(
        tenant_id=tenant.tenant_id,
        name=tenant.name,
        source=cell.name,
        destination=destination,
        used=tenant.used,
        why=why,
    )
