"""Whether a region can lose a cell (N+1): what is promised against what the others could take over. Pure.

Counted are shared cells that are OPEN or hold tenants. A dedicated cell is its tenant's own affair: another
is kept empty for it, or not. A region with one such cell cannot lose it whatever is placed there, so there
the rule does not hold yet; it begins with the second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

#: Tenants rarely use their quota at the same time: how often capacity may be promised.
OVERSUBSCRIPTION = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A cell as the chooser sees it. Rates are runs a second."""

    name: str
    region: str
    state: str  # OPEN, CORDONED, DRAINING, RETIRED
    dedicated: bool
    capacity: int  # measured, with one host less than it has (N+1)
    promised: int  # sum of its tenants' quotas
    tenants: int

    @property
    def limit(self) -> int:
        """How much may be promised on it."""
        return self.capacity if self.dedicated else self.capacity * OVERSUBSCRIPTION

    @property
    def room(self) -> int:
        """How much may still be promised on it; 0 where it takes nobody."""
        return max(0, self.limit - self.promised) if self.state == "OPEN" else 0

    def with_more(self, runs_per_second: int) -> Candidate:
        """As it would be with so much more promised (or less, where negative)."""
        return replace(self, promised=self.promised + runs_per_second)


@dataclass(frozen=True, kw_only=True, slots=True)
class Spare:
    """What the loss of the cell that is hardest to lose would mean. Rates are runs a second."""

    cell: str
    promised: int  # on that cell
    room: int  # what may still be promised on the region's other cells

    @property
    def holds(self) -> bool:
        """Whether the others could take over what is promised there."""
        return self.promised <= self.room

    @property
    def sentence(self) -> str:
        """In plain words, with the numbers."""
        held = f"{self.promised} runs/s are promised on {self.cell}"
        if self.holds:
            return f"any one cell may be lost: {held}, and the others have room for {self.room}"
        return f"{self.cell} could not be lost: {held}, and the others have room for {self.room}"

    def told(self) -> dict[str, object]:
        """As it is kept and shown."""
        return {"holds": self.holds, "cell": self.cell, "promised": self.promised, "room": self.room}


def spare(cells: Sequence[Candidate]) -> Spare | None:
    """The hardest loss of a region's cells; None where the rule does not hold yet."""
    counted = [c for c in cells if not c.dedicated and c.state != "RETIRED" and (c.room or c.promised)]
    if len(counted) < 2:
        return None
    room = sum(c.room for c in counted)
    losses = [Spare(cell=c.name, promised=c.promised, room=room - c.room) for c in counted]
    return min(losses, key=lambda loss: (loss.room - loss.promised, loss.cell))


def with_more(cells: Sequence[Candidate], runs_per_second: Mapping[str, int]) -> list[Candidate]:
    """The cells with so much more promised on some."""
    return [c.with_more(runs_per_second.get(c.name, 0)) for c in cells]


def raise_refused(cells: Sequence[Candidate], *, cell: str, before: int, after: int) -> list[str]:
    """Why a tenant of a cell cannot be promised more: all reasons, with the numbers. None where less is
    promised, which frees room whatever the state of the region."""
    if after <= before:
        return []
    more = with_more(cells, {cell: after - before})
    home = next((c for c in more if c.name == cell), None)
    if home is None:
        return []
    reasons = []
    if after > home.capacity:
        reasons.append(f"one tenant's {after} runs/s exceed the capacity of {cell}, {home.capacity}")
    if home.promised > home.limit:
        reasons.append(f"{home.promised} runs/s would be promised on {cell}, which may promise {home.limit}")
    if not home.dedicated and (loss := spare(more)) is not None and not loss.holds:
        reasons.append(f"in {home.region} {loss.sentence}")
    return reasons
