"""Where a tenant would move, and what that means in numbers. Moves nobody."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.errors import Conflicting, NotFound, invalid
from controlplane.moves.apart import kept_apart, needs_regions, of_one_region, tied
from controlplane.moves.machine import ENDED
from controlplane.moves.models import TenantMove
from controlplane.tenants.models import Tenant
from controlplane.topology.actions.placement import candidates_and_coming
from controlplane.topology.chooser import Wish, choose_cell
from controlplane.topology.models import CellKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A move as it would begin."""

    tenant: str  # TypeID
    source: str
    destination: str
    why: str
    refused: dict[str, str]  # other cells, and why not
    promised: dict[str, tuple[int, int]]  # cell → runs/s promised before and after


def ended() -> list[str]:
    """States of moves that have ended, as they are stored."""
    return [s.value for s in ENDED]


def plan_move(tenant: Tenant, *, cell: str | None = None, keep_kind: bool = False) -> Plan:
    """The given cell, if it fits, or the one the chooser takes; refuses where there is none. `keep_kind`: a
    tenant on a shared cell gets no cell of its own by naming one, nor the other way round."""
    placement = getattr(tenant, "placement", None)
    if placement is None:
        raise Conflicting("the tenant has no place yet")
    if cell == placement.cell_id:
        raise invalid("/cell", f"the tenant lives on {cell} already")
    if TenantMove.objects.filter(tenant=tenant).exclude(state__in=ended()).exists():
        raise Conflicting("the tenant is being moved already")
    runs = tenant.quota.job_runs_per_second
    found = candidates_and_coming(tenant.home_region_id)
    if cell is not None and cell not in {c.name for c in found}:
        raise invalid("/cell", f"{cell} is no cell of {tenant.home_region_id}")
    # A cell that is named says by its kind what is wanted: a cell of its own, or one with others.
    named = next((c.dedicated for c in found if c.name == cell), None)
    wish = Wish(
        region=tenant.home_region_id,
        runs_per_second=runs,
        dedicated=placement.cell.kind == CellKind.DEDICATED if named is None or keep_kind else named,
    )
    others = [c for c in found if c.name != placement.cell_id and cell in (None, c.name)]
    told = tied(tenant, placement.cell)
    needs = needs_regions(tenant, told)
    unfit = dict.fromkeys(of_one_region(c.name for c in others), needs) if needs else {}
    choice = choose_cell(wish, [c for c in others if c.name not in unfit])
    refused = dict(choice.refused) | unfit
    if choice.cell is None:
        reasons = "; ".join(f"{name}: {why}" for name, why in refused.items())
        if cell is not None:
            raise invalid("/cell", f"{cell} does not fit: {reasons}")
        raise Conflicting(f"{choice.why} ({reasons or 'there is no other'})")
    if why := kept_apart(told):
        raise Conflicting(why)
    before = {c.name: c.promised for c in found}
    return Plan(
        tenant=tenant.public_id,
        source=placement.cell_id,
        destination=choice.cell,
        why=choice.why,
        refused=refused,
        promised={
            placement.cell_id: (before[placement.cell_id], before[placement.cell_id] - runs),
            choice.cell: (before[choice.cell], before[choice.cell] + runs),
        },
    )


def tenant_to_move(tenant_id: object) -> Tenant:
    """The tenant with what a plan needs."""
    found = Tenant.objects.select_related("quota", "placement__cell").filter(pk=tenant_id).first()
    if found is None:
        raise NotFound("no such tenant")
    return found
