"""Use-cases: plan a rehearsal, and start one. Nobody has to end it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from django.db import IntegrityError, transaction

from controlplane.actors import Actor
from controlplane.errors import Conflicting, Fault, Invalid, NotFound
from controlplane.evacuations.looking import facts_of
from controlplane.evacuations.planning import CellFacts
from controlplane.events.recording import record
from controlplane.locks import lock_region
from controlplane.ownership import OwnershipStore
from controlplane.ownership.installed import installed_store
from controlplane.regions.wishes import MOST_CUT_SECONDS
from controlplane.rehearsals.models import Rehearsal, RehearsedCell
from controlplane.topology.models import Region

#: Shorter than that nobody takes over, and nothing is proved (seconds).
LEAST_SECONDS = 45
MOST_SECONDS = int(MOST_CUT_SECONDS)


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsedPlan:
    """A cell of a plan. `refusal`: why it cannot take part."""

    cell: str
    epoch: int
    tenants: int
    standbys: Sequence[str]
    behind_bytes: int | None  # of the standby that has least
    refusal: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsalPlan:
    """What would be cut off, and whether it may be."""

    region: str
    cells: Sequence[RehearsedPlan]

    @property
    def refusal(self) -> str | None:
        """Why it is not begun."""
        if not self.cells:
            return f"{self.region} owns no cell that has other sites"
        reasons = [f"{one.cell}: {one.refusal}" for one in self.cells if one.refusal is not None]
        return "; ".join(reasons) or None


def plan_rehearsal(
    *, region: str, cells: Sequence[str] = (), store: OwnershipStore | None = None
) -> RehearsalPlan:
    """What a cut of the region would touch: the given cells, or all of it that have other sites."""
    if not Region.objects.filter(pk=region).exists():
        raise NotFound(f"no region {region}")
    known = {one.seen.name: one for one in facts_of(store or installed_store())}
    faults = [
        Fault(pointer=f"/cells/{n}", detail=f"no cell {name}")
        for n, name in enumerate(cells)
        if name not in known
    ]
    if faults:
        raise Invalid(faults)
    chosen = sorted(set(cells)) or [
        n for n, one in known.items() if one.owner == region and len(one.sites) > 1
    ]
    return RehearsalPlan(region=region, cells=[_planned(known[name], region) for name in chosen])


def _planned(cell: CellFacts, region: str) -> RehearsedPlan:
    standbys = sorted(set(cell.sites) - {region})
    owner = cell.sites.get(region)
    behind = [] if owner is None else [owner.behind(name) for name in standbys]
    return RehearsedPlan(
        cell=cell.seen.name,
        epoch=cell.epoch,
        tenants=cell.seen.tenants,
        standbys=standbys,
        behind_bytes=max((one for one in behind if one is not None), default=None),
        refusal=_refusal(cell, region, standbys),
    )


def _refusal(cell: CellFacts, region: str, standbys: Sequence[str]) -> str | None:
    owner = cell.sites.get(region)
    if cell.busy:
        return cell.busy
    if cell.owner != region or owner is None:
        return f"{cell.owner} owns it, not {region}"
    if not standbys:
        return "it has no site elsewhere: nobody would take it over"
    if owner.away or not owner.owns:
        return f"{region} does not hold its lease: {owner.away or owner.why}"
    if any(site.cut is not None for site in cell.sites.values()):
        return "a rehearsal cuts it off already"
    missing = [name for name in standbys if not cell.sites[name].streaming or owner.behind(name) is None]
    if missing:
        return f"{', '.join(missing)} does not follow: with a standby missing nobody may take it over"
    return None


def start_rehearsal(
    *,
    region: str,
    cells: Sequence[str] = (),
    seconds: int = 120,
    store: OwnershipStore | None = None,
    actor: Actor,
    reason: str,
) -> Rehearsal:
    """Cuts the region off from the chosen cells' other sites for so long: it owns nothing when its lease is
    over, another takes over, and what became of every run is counted. The cut ends by itself.

    Refused where a standby is missing."""
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        detail = f"from {LEAST_SECONDS} to {MOST_SECONDS}"
        raise Invalid([Fault(pointer="/seconds", detail=detail)])
    plan = plan_rehearsal(region=region, cells=cells, store=store)
    if plan.refusal is not None:
        raise Conflicting(plan.refusal)
    return _begin(plan, seconds, actor, reason)


@transaction.atomic
def _begin(plan: RehearsalPlan, seconds: int, actor: Actor, reason: str) -> Rehearsal:
    from controlplane.rehearsals.tasks import wake  # tasks import the driving of rehearsals

    lock_region(plan.region)
    try:
        with transaction.atomic():
            made = Rehearsal.objects.create(
                region_id=plan.region, seconds=seconds, why="the keepers are told", started_by=actor.name,
                reason=reason,
            )  # fmt: skip
    except IntegrityError as e:
        raise Conflicting(f"a rehearsal of {plan.region} is under way") from e
    for one in plan.cells:
        RehearsedCell.objects.create(rehearsal=made, cell_id=one.cell, epoch=one.epoch)
    record(
        action="rehearsal.start", subject=made.public_id, tenant_id=None, actor=actor, reason=reason,
        after={"region": plan.region, "cells": [one.cell for one in plan.cells], "seconds": seconds,
               "tenants": sum(one.tenants for one in plan.cells)},
    )  # fmt: skip
    transaction.on_commit(partial(wake, made.id))
    return made
