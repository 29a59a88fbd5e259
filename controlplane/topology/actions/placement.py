"""Placing a tenant on a cell."""

from __future__ import annotations

from dataclasses import replace

from django.db import transaction
from django.db.models import Count, Sum
from django.db.models.functions import Coalesce

from controlplane.actors import Actor
from controlplane.errors import Conflicting, Unavailable, invalid
from controlplane.events.recording import record
from controlplane.locks import lock_region
from controlplane.ownership import OwnershipStore, Superseded, TenantOwnership
from controlplane.ownership.installed import installed_store
from controlplane.ownership.store import OwnershipUnavailable
from controlplane.tenants.models import Quota, Tenant
from controlplane.topology.chooser import Choice, Wish, choose_cell
from controlplane.topology.headroom import Candidate, raise_refused
from controlplane.topology.models import Cell, CellKind, CellState, Placement, Tenure


def candidates(region: str) -> list[Candidate]:
    """The region's cells with what is promised on them."""
    cells = (
        Cell.objects.filter(region_id=region)
        .exclude(state=CellState.RETIRED)
        .annotate(
            promised=Coalesce(Sum("placements__tenant__quota__job_runs_per_second"), 0),
            tenants=Count("placements"),
        )
    )
    return [
        Candidate(
            name=c.name,
            region=c.region_id,
            state=c.state,
            dedicated=c.kind == CellKind.DEDICATED,
            capacity=c.capacity_runs_per_second,
            promised=c.promised,
            tenants=c.tenants,
        )
        for c in cells
    ]


def candidates_and_coming(region: str) -> list[Candidate]:
    """The same; who is on the way to a cell counts as there."""
    from controlplane.moves.machine import ENDED  # moves import this
    from controlplane.moves.models import TenantMove

    coming = {
        cell: (runs or 0, tenants)
        for cell, runs, tenants in TenantMove.objects.exclude(state__in=[s.value for s in ENDED])
        .filter(new_epoch=None)
        .values_list("destination_id")
        .annotate(runs=Sum("tenant__quota__job_runs_per_second"), tenants=Count("id"))
        .order_by()
    }
    found = []
    for c in candidates(region):
        runs, tenants = coming.get(c.name, (0, 0))
        found.append(replace(c, promised=c.promised + runs, tenants=c.tenants + tenants))
    return found


def _claim(store: OwnershipStore, tenant: Tenant, cell: str) -> TenantOwnership:
    """The tenant's row in the ownership store, now naming the cell."""
    try:
        held = store.tenant(tenant.id)
        return store.claim_tenant(tenant.id, cell=cell, expected=held.epoch if held else None)
    except Superseded as e:
        raise Conflicting("somebody else is placing this tenant") from e
    except OwnershipUnavailable as e:
        raise Unavailable("the ownership store cannot be reached") from e


@transaction.atomic
def place_tenant(
    *,
    tenant: Tenant,
    dedicated: bool = False,
    cell: str | None = None,
    override: bool = False,
    store: OwnershipStore | None = None,
    actor: Actor,
    reason: str,
) -> Placement:
    """Gives a tenant without a place one: the best cell of its home region, or the given one
    if it fits. The caller bumps the tenant's version and has its cell told.

    Refused where the region could then not lose a cell any more, but for `override` (operators').

    The ownership store is claimed last, inside the transaction: if this rolls back afterwards,
    a row of no consequence stays there, which the next claim builds upon.
    """
    lock_region(tenant.home_region_id)
    if Placement.objects.filter(tenant=tenant).exists():
        raise Conflicting("the tenant has a place; moving it is another operation")
    quota = Quota.objects.get(tenant=tenant)
    wish = Wish(region=tenant.home_region_id, runs_per_second=quota.job_runs_per_second, dedicated=dedicated)
    among = [c for c in candidates_and_coming(tenant.home_region_id) if cell in (None, c.name)]
    beside = candidates(tenant.home_region_id)
    choice = choose_cell(wish, among, beside=beside, override=override)
    if choice.cell is None:
        raise _refusal(choice, cell)
    owned = _claim(store or installed_store(), tenant, choice.cell)
    placement = Placement.objects.create(
        tenant=tenant,
        cell_id=choice.cell,
        epoch=owned.epoch,
        why=choice.why,
        explanation=choice.told(),
    )
    Tenure.objects.create(tenant=tenant, cell_id=choice.cell, epoch=owned.epoch)
    record(
        action="tenant.place", subject=tenant.public_id, tenant_id=tenant.id, actor=actor, reason=reason,
        after={"cell": choice.cell, "epoch": owned.epoch, **choice.told()},
    )  # fmt: skip
    return placement


def _refusal(choice: Choice, cell: str | None) -> Exception:
    reasons = "; ".join(f"{name}: {why}" for name, why in choice.refused)
    if choice.unspared:
        reasons += "; an operator may override this"
    if cell is not None:
        return invalid("/cell", f"{cell} does not fit: {reasons or 'no such cell in the home region'}")
    return Conflicting(f"{choice.why} ({reasons or 'there is none'})")


def raise_beyond_headroom(tenant: Tenant, *, before: int, after: int) -> list[str]:
    """Why the tenant's cell or region cannot promise it so many runs a second; empty where it can, or where
    the tenant has no place yet. With the region locked."""
    from controlplane.moves.machine import ENDED  # moves import this
    from controlplane.moves.models import TenantMove

    cell = Placement.objects.filter(tenant=tenant).values_list("cell_id", flat=True).first()
    if cell is None:
        return []
    # Who is on the way needs the room, too; one that is moving itself must fit where it goes as well.
    coming = candidates_and_coming(tenant.home_region_id)
    beyond = raise_refused(
        [one if one.name != cell else next(c for c in coming if c.name == cell)
         for one in candidates(tenant.home_region_id)],
        cell=cell, before=before, after=after,
    )  # fmt: skip
    open_moves = TenantMove.objects.exclude(state__in=[s.value for s in ENDED])
    there = open_moves.filter(tenant=tenant, new_epoch=None).values_list("destination_id", flat=True)
    for destination in there:
        more = raise_refused(coming, cell=destination, before=before, after=after)
        beyond += [why for why in more if why not in beyond]
    return beyond
