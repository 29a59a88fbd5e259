"""Chooses a cell for a tenant, and says why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.topology.headroom import OVERSUBSCRIPTION, Candidate, Spare, spare, with_more

__all__ = ["OVERSUBSCRIPTION", "Candidate", "Choice", "Wish", "choose_cell"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What is to be placed."""

    region: str
    runs_per_second: int
    dedicated: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The cell, or none, and the reasons in plain words."""

    cell: str | None
    why: str
    refused: tuple[tuple[str, str], ...]  # cell → why not
    left: Mapping[str, int] = field(default_factory=dict)  # cell that fits → promises left afterwards
    spare: Spare | None = None  # of the region with the tenant placed; None: not asked, or one cell
    unspared: bool = False  # no cell, only because the region could not lose one any more
    overridden: bool = False  # placed although the region cannot lose a cell any more

    def told(self) -> dict[str, object]:
        """As it is kept with the placement and shown."""
        return {
            "why": self.why,
            "refused": dict(self.refused),
            "left": dict(self.left),
            "n_plus_one": None if self.spare is None else self.spare.told(),
            "overridden": self.overridden,
        }


def choose_cell(
    wish: Wish,
    candidates: Sequence[Candidate],
    *,
    beside: Sequence[Candidate] = (),
    override: bool = False,
) -> Choice:
    """The OPEN cell of the region with the most room left, measured by what is promised.

    A dedicated tenant gets an empty dedicated cell and nothing else; nobody else gets one. `beside`: all
    cells of the region; with them, a cell is refused where the region could then not lose one (N+1), but
    for `override`.
    """
    refused: list[tuple[str, str]] = []
    left: dict[str, int] = {}
    spares: dict[str, Spare | None] = {}
    for cell in candidates:
        reason = _why_not(wish, cell)
        if reason is not None:
            refused.append((cell.name, reason))
        else:
            left[cell.name] = cell.limit - cell.promised - wish.runs_per_second
            spares[cell.name] = (
                None if wish.dedicated else spare(with_more(beside, {cell.name: wish.runs_per_second}))
            )
    unsparing = {name: loss for name, loss in spares.items() if loss is not None and not loss.holds}
    fitting = left
    if not override:
        refused += [(name, f"with it {loss.sentence}") for name, loss in unsparing.items()]
        fitting = {name: room for name, room in left.items() if name not in unsparing}
    refused.sort()
    if not fitting:
        what = "dedicated cell" if wish.dedicated else "cell"
        return Choice(
            cell=None,
            why=f"no {what} in {wish.region} takes {wish.runs_per_second} runs/s",
            refused=tuple(refused),
            spare=unsparing[min(unsparing)] if unsparing else None,
            unspared=bool(unsparing),
        )
    name = min(fitting, key=lambda one: (one in unsparing, -fitting[one], one))
    loss = spares[name]
    others = f", most of {len(fitting)}" if len(fitting) > 1 else ""
    why = f"{name}: open in {wish.region}, {fitting[name]} runs/s of promises left afterwards{others}"
    return Choice(
        cell=name,
        why=why,
        refused=tuple(refused),
        left=fitting,
        spare=loss,
        overridden=name in unsparing,
    )


def _why_not(wish: Wish, cell: Candidate) -> str | None:
    if cell.region != wish.region:
        return f"in {cell.region}"
    if cell.state != "OPEN":
        return cell.state.lower()
    if cell.dedicated != wish.dedicated:
        return "kept for one tenant" if cell.dedicated else "shared with others"
    if wish.dedicated and cell.tenants:
        return "already has its tenant"
    if wish.runs_per_second > cell.capacity:
        return f"one tenant's {wish.runs_per_second} runs/s exceed its capacity of {cell.capacity}"
    if cell.promised + wish.runs_per_second > cell.limit:
        return f"{cell.promised} of {cell.limit} runs/s are promised"
    return None
