"""Which cells would go where, and what that means in numbers. Pure: all that is known goes in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controlplane.evacuations.keepers import SiteStatus
from controlplane.topology.headroom import Candidate, Spare, spare


@dataclass(frozen=True, kw_only=True, slots=True)
class CellFacts:
    """A cell as a plan needs it."""

    seen: Candidate  # with the region it was made in
    owner: str  # region, by the ownership store
    epoch: int
    sites: Mapping[str, SiteStatus]  # by region
    moves_to_stop: int = 0  # of tenants, from it or to it, that can still be given up
    moves_to_wait_for: int = 0  # that are being handed over just now
    busy: str = ""  # why it cannot take part: it is in another evacuation


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What a plan has for one cell. `target` None: it stays, and `why` says why."""

    cell: str
    source: str
    target: str | None
    why: str
    tenants: int
    runs_per_second: int  # promised on it
    behind_bytes: int | None  # of the target, now
    dead: (
        bool  # its owner's keeper is silent: survivors take it over, and what they lack is lost or comes back
    )
    moves_to_stop: int
    moves_to_wait_for: int
    nowhere: bool = False  # it has no site elsewhere: its tenants need moves


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What one region carries, before and after. Rates are runs a second."""

    region: str
    cells: tuple[int, int]
    promised: tuple[int, int]
    capacity: tuple[int, int]
    n_plus_one: tuple[Spare | None, Spare | None]

    @property
    def worse(self) -> bool:
        """Whether it could lose a cell, and could not any more."""
        before, afterwards = self.n_plus_one
        return afterwards is not None and not afterwards.holds and (before is None or before.holds)

    def told(self) -> dict[str, Any]:
        """As it is kept and shown."""
        pairs = {name: list(getattr(self, name)) for name in ("cells", "promised", "capacity")}
        spares = [None if one is None else one.told() for one in self.n_plus_one]
        return {"region": self.region, **pairs, "n_plus_one": spares}


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """An evacuation as it would begin."""

    region: str
    kind: str
    steps: Sequence[Step]
    loads: Sequence[Load] = field(default_factory=tuple)

    @property
    def going(self) -> list[Step]:
        """Cells that would go."""
        return [step for step in self.steps if step.target is not None]

    @property
    def staying(self) -> list[Step]:
        """Cells that would not."""
        return [step for step in self.steps if step.target is None]

    @property
    def impossible(self) -> str | None:
        """Why there is nothing to begin."""
        if self.going:
            return None
        if not self.steps:
            return (
                f"no cell is owned by {self.region}"
                if self.kind == "EVACUATE"
                else f"no cell is to come back to {self.region}"
            )
        return "; ".join(f"{step.cell}: {step.why}" for step in self.steps)

    @property
    def refusal(self) -> str | None:
        """Why it is not begun unless an operator overrides that."""
        reasons = [
            f"in {load.region} {load.n_plus_one[1].sentence}"
            for load in self.loads
            if load.worse and load.n_plus_one[1] is not None
        ]
        reasons += [
            f"{step.cell} would be taken over from a silent region, and what {step.target} lacks is missing"
            for step in self.going
            if step.dead
        ]
        return "; ".join(reasons) or None

    def told(self) -> dict[str, Any]:
        """As it is kept with the evacuation, and shown."""
        return {
            "steps": [
                {
                    "cell": step.cell, "source": step.source, "target": step.target, "why": step.why,
                    "tenants": step.tenants, "job_runs_per_second": step.runs_per_second,
                    "behind_bytes": step.behind_bytes, "dead": step.dead,
                    "moves_to_stop": step.moves_to_stop, "moves_to_wait_for": step.moves_to_wait_for,
                    "nowhere": step.nowhere,
                }
                for step in self.steps
            ],
            "loads": [load.told() for load in self.loads],
            "refusal": self.refusal,
            "impossible": self.impossible,
        }  # fmt: skip


def evacuation_plan(
    region: str,
    cells: Sequence[CellFacts],
    *,
    passive: Collection[str] = (),
    to: Mapping[str, str] | None = None,
) -> Plan:
    """All cells that the region owns leave it. `passive`: regions that were evacuated, and take none. `to`:
    where an operator wants some of them."""
    carried = {name: 0 for cell in cells for name in cell.sites}
    for cell in cells:
        if cell.owner != region:
            carried[cell.owner] = carried.get(cell.owner, 0) + cell.seen.promised
    steps = []
    for cell in sorted(
        (c for c in cells if c.owner == region), key=lambda c: (-c.seen.promised, c.seen.name)
    ):
        step = _away(cell, passive, carried, (to or {}).get(cell.seen.name))
        if step.target is not None:
            carried[step.target] += cell.seen.promised
        steps.append(step)
    return _plan(region, "EVACUATE", cells, steps)


def failback_plan(region: str, cells: Sequence[CellFacts]) -> Plan:
    """All cells that were made in the region, and are owned by another, come back."""
    steps = [
        _to(cell, region)
        for cell in sorted(cells, key=lambda c: c.seen.name)
        if cell.seen.region == region and cell.owner != region
    ]
    return _plan(region, "FAIL_BACK", cells, steps)


def handover_plan(cell: CellFacts, others: Sequence[CellFacts], to: str) -> Plan:
    """One cell goes to a region."""
    return _plan(cell.owner, "HAND_OVER", [cell, *others], [_to(cell, to)])


def _away(cell: CellFacts, passive: Collection[str], carried: Mapping[str, int], wanted: str | None) -> Step:
    others = sorted(set(cell.sites) - {cell.owner})
    if not others:
        return _step(cell, None, "it has no site elsewhere: its tenants have to be moved", nowhere=True)
    if wanted is not None:
        return _to(cell, wanted)
    unfit = {name: why for name in others if (why := _unfit(cell, name, passive))}
    fit = [name for name in others if name not in unfit]
    if not fit:
        return _step(cell, None, "; ".join(f"{name}: {why}" for name, why in unfit.items()))
    if _dead(cell):
        # Survivors vote: who has most of its log wins, whatever is wished.
        best = max(fit, key=lambda name: (cell.sites[name].position, name))
        return _step(
            cell, best, f"{cell.owner} is silent ({cell.sites[cell.owner].away}); {best} has most of its log"
        )
    best = min(fit, key=lambda name: (carried[name], cell.sites[cell.owner].behind(name) or 0, name))
    return _step(cell, best, f"{best} follows, and carries {carried[best]} runs/s of other cells")


def _to(cell: CellFacts, target: str) -> Step:
    why = f"it has no site in {target}" if target not in cell.sites else _unfit(cell, target, ())
    if target == cell.owner:
        why = f"{target} owns it already"
    return _step(cell, None, why) if why else _step(cell, target, f"{target} follows")


def _dead(cell: CellFacts) -> bool:
    owner = cell.sites.get(cell.owner)
    return owner is not None and bool(owner.away)


def _unfit(cell: CellFacts, name: str, passive: Collection[str]) -> str:
    """Why a site cannot become the owner's; empty where it can."""
    site = cell.sites[name]
    if cell.busy:
        return cell.busy
    if name in passive:
        return "the region was evacuated itself"
    if site.away:
        return site.away
    if _dead(cell):
        return ""
    if any(one.cut is not None for one in cell.sites.values()):
        return "a rehearsal cuts it off"
    if cell.owner not in cell.sites:
        return f"no site of it is known in {cell.owner}, which owns it"
    if site.act == "STRAYED":
        return "it went on alone, and has to rejoin first"
    if not site.streaming or cell.sites[cell.owner].behind(name) is None:
        return f"it does not follow {cell.owner} now"
    return ""


def _step(cell: CellFacts, target: str | None, why: str, *, nowhere: bool = False) -> Step:
    owner = cell.sites.get(cell.owner)
    return Step(
        cell=cell.seen.name,
        source=cell.owner,
        target=target,
        why=why,
        tenants=cell.seen.tenants,
        runs_per_second=cell.seen.promised,
        behind_bytes=owner.behind(target) if owner is not None and target is not None else None,
        dead=_dead(cell),
        moves_to_stop=cell.moves_to_stop,
        moves_to_wait_for=cell.moves_to_wait_for,
        nowhere=nowhere,
    )


def _plan(region: str, kind: str, cells: Sequence[CellFacts], steps: Sequence[Step]) -> Plan:
    """With what each region that gets or loses a cell carries. A cell that goes counts as open where it comes
    to: it takes tenants again once it is opened there."""
    goes = {step.cell: step.target for step in steps if step.target is not None}
    touched = sorted({step.source for step in steps if step.target is not None} | set(goes.values()))
    loads = []
    for name in touched:
        here = [c.seen for c in cells if c.owner == name]
        stay = [c.seen for c in cells if c.owner == name and c.seen.name not in goes]
        come = [replace(c.seen, state="OPEN") for c in cells if goes.get(c.seen.name) == name]
        later = stay + come
        loads.append(
            Load(
                region=name,
                cells=(len(here), len(later)),
                promised=(sum(c.promised for c in here), sum(c.promised for c in later)),
                capacity=(sum(c.capacity for c in here), sum(c.capacity for c in later)),
                n_plus_one=(spare(here), spare(later)),
            )
        )
    return Plan(region=region, kind=kind, steps=steps, loads=loads)
