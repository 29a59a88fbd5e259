"""Which tenants leave a cell, or come to one, and where they fit. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.topology.chooser import Wish, choose_cell
from controlplane.topology.headroom import Candidate, Spare, spare, with_more

#: A cell is filled until it holds the share of its limit that the fullest one has, less this.
EVEN = 0.05
#: Steps of a fill that are planned ahead.
MOST_STEPS = 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Resident:
    """A tenant where it lives."""

    tenant_id: str  # TypeID
    cell: str
    runs_per_second: int  # its quota


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A tenant that would move, or fits nowhere."""

    tenant_id: str
    runs_per_second: int
    source: str
    destination: str | None
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RelocationPlan:
    """All of them, in the order in which they would move; and the region's N+1 before and behind it."""

    steps: Sequence[Step]
    before: Spare | None
    afterwards: Spare | None

    @property
    def nowhere(self) -> Sequence[Step]:
        """Who fits nowhere."""
        return [step for step in self.steps if step.destination is None]

    @property
    def refusal(self) -> str | None:
        """Why it cannot be done whole, with the numbers."""
        if not self.nowhere:
            return None
        runs = sum(step.runs_per_second for step in self.nowhere)
        first = "; ".join(f"{step.tenant_id}: {step.why}" for step in self.nowhere[:5])
        return (
            f"{len(self.nowhere)} of {len(self.steps)} tenants, with {runs} runs/s, fit on no other cell"
            f" ({first})"
        )


def drain_plan(cell: str, cells: Sequence[Candidate], residents: Sequence[Resident]) -> RelocationPlan:
    """Where every tenant of a cell would go, the biggest first: it is the hardest to find room for."""
    home = next(c for c in cells if c.name == cell)
    # Nobody comes to it meanwhile.
    now = [c if c.name != cell else _draining(c) for c in cells]
    steps = []
    for resident in sorted(residents, key=lambda r: (-r.runs_per_second, r.tenant_id)):
        wish = Wish(region=home.region, runs_per_second=resident.runs_per_second, dedicated=home.dedicated)
        choice = choose_cell(wish, [c for c in now if c.name != cell])
        reasons = "; ".join(f"{name}: {why}" for name, why in choice.refused) or "there is no other cell"
        steps.append(_step(resident, choice.cell, choice.why if choice.cell else reasons))
        if choice.cell is not None:
            now = _moved(now, resident, choice.cell)
    return RelocationPlan(steps=steps, before=spare(cells), afterwards=spare(now))


def fill_plan(cell: str, cells: Sequence[Candidate], residents: Sequence[Resident]) -> RelocationPlan:
    """Who would come to a shared cell, one after the other, until it is about as full as the others; of many
    the first `MOST_STEPS`."""
    now, living, steps = list(cells), _Living(residents), []
    while len(steps) < MOST_STEPS and (found := _next(cell, now, living)) is not None:
        moved, step = found
        steps.append(step)
        living.remove(moved)
        now = _moved(now, moved, cell)
    return RelocationPlan(steps=steps, before=spare(cells), afterwards=spare(now))


def next_to_come(cell: str, cells: Sequence[Candidate], residents: Sequence[Resident]) -> Step | None:
    """The tenant whose move evens out the most: of the fullest cell, the biggest that leaves it fuller than
    the one it comes to. None when they are even, or nobody fits."""
    found = _next(cell, cells, _Living(residents))
    return None if found is None else found[1]


class _Living:
    """Residents by cell, the biggest first."""

    def __init__(self, residents: Sequence[Resident]) -> None:
        self._of: dict[str, list[Resident]] = defaultdict(list)
        for resident in sorted(residents, key=_biggest_first):
            self._of[resident.cell].append(resident)

    def biggest(self, cell: str, most: int) -> Resident | None:
        """The biggest on a cell with at most so many runs a second."""
        there = self._of[cell]
        place = bisect_left(there, -most, key=lambda resident: -resident.runs_per_second)
        return there[place] if place < len(there) else None

    def remove(self, resident: Resident) -> None:
        there = self._of[resident.cell]
        del there[bisect_left(there, _biggest_first(resident), key=_biggest_first)]


def _biggest_first(resident: Resident) -> tuple[int, str]:
    return -resident.runs_per_second, resident.tenant_id


def _next(cell: str, cells: Sequence[Candidate], living: _Living) -> tuple[Resident, Step] | None:
    here = {c.name: c for c in cells}[cell]
    if here.dedicated or here.state != "OPEN":
        return None
    fuller = [c for c in cells if not c.dedicated and c.name != cell and _full(c) > _full(here) + EVEN]
    for source in sorted(fuller, key=lambda c: (-_full(c), c.name)):
        # Beyond this the cell would be fuller with it than the other without.
        even = (source.promised * here.limit - here.promised * source.limit) // (here.limit + source.limit)
        chosen = living.biggest(source.name, min(here.capacity, here.room, int(even)))
        if chosen is not None:
            why = (
                f"{source.name} has promised {source.promised} of {source.limit} runs/s,"
                f" {cell} {here.promised} of {here.limit}"
            )
            return chosen, _step(chosen, cell, why)
    return None


def _full(cell: Candidate) -> float:
    return cell.promised / cell.limit


def _draining(cell: Candidate) -> Candidate:
    return Candidate(
        name=cell.name, region=cell.region, state="DRAINING", dedicated=cell.dedicated,
        capacity=cell.capacity, promised=cell.promised, tenants=cell.tenants,
    )  # fmt: skip


def _moved(cells: Sequence[Candidate], resident: Resident, destination: str) -> list[Candidate]:
    more: Mapping[str, int] = {
        resident.cell: -resident.runs_per_second,
        destination: resident.runs_per_second,
    }
    tenants = {resident.cell: -1, destination: 1}
    return [
        Candidate(
            name=c.name, region=c.region, state=c.state, dedicated=c.dedicated, capacity=c.capacity,
            promised=c.promised, tenants=c.tenants + tenants.get(c.name, 0),
        )
        for c in with_more(cells, more)
    ]  # fmt: skip


def _step(resident: Resident, destination: str | None, why: str) -> Step:
    return Step(
        tenant_id=resident.tenant_id,
        runs_per_second=resident.runs_per_second,
        source=resident.cell,
        destination=destination,
        why=why,
    )
