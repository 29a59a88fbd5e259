"""Use-cases: plan an evacuation, start it, pause it, let it go on, give it up."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from controlplane.actors import Actor
from controlplane.errors import Conflicting, Fault, Invalid, NotFound, invalid
from controlplane.evacuations.looking import facts_of, passive_regions
from controlplane.evacuations.machine import WHOLE, State
from controlplane.evacuations.models import EvacuatedCell, Evacuation, EvacuationKind, EvacuationStep
from controlplane.evacuations.planning import Plan, evacuation_plan, failback_plan
from controlplane.events.recording import record
from controlplane.locks import lock_region
from controlplane.ownership import OwnershipStore
from controlplane.ownership.installed import installed_store
from controlplane.topology.models import Region

MOST_AT_ONCE = 20


def plan_evacuation(
    *, region: str, kind: str, to: Mapping[str, str] | None = None, store: OwnershipStore | None = None
) -> Plan:
    """Which cells would go where, and what that means. Asks the ownership store and the keepers; moves
    nothing. `to`: regions that an operator wants for some cells."""
    if not Region.objects.filter(pk=region).exists():
        raise NotFound(f"no region {region}")
    if kind not in EvacuationKind.values:
        raise invalid("/kind", f"one of {', '.join(EvacuationKind.values)}")
    cells = facts_of(store or installed_store())
    if kind == EvacuationKind.FAIL_BACK:
        return failback_plan(region, cells)
    faults = [
        Fault(pointer=f"/to/{name}", detail=f"{name} is no cell that {region} owns")
        for name in to or {}
        if name not in {c.seen.name for c in cells if c.owner == region}
    ]
    if faults:
        raise Invalid(faults)
    return evacuation_plan(region, cells, passive=passive_regions(), to=to)


def start_evacuation(
    *,
    region: str,
    kind: str,
    to: Mapping[str, str] | None = None,
    at_once: int = 1,
    calm_lag_ms: int = 2_000,
    calm_seconds: int = 10,
    override: bool = False,
    store: OwnershipStore | None = None,
    actor: Actor,
    reason: str,
) -> Evacuation:
    """Begins to hand the region's cells over to their other sites, or to bring back those that were made
    there. What cannot go stays, and is named in the plan, which is kept.

    Refused, with the numbers, where a region could then not lose a cell any more, or a cell's owner is
    silent, but for `override`.
    """
    faults = []
    if not 1 <= at_once <= MOST_AT_ONCE:
        faults.append(Fault(pointer="/at_once", detail=f"from 1 to {MOST_AT_ONCE}"))
    if not 1 <= calm_lag_ms <= 600_000:
        faults.append(Fault(pointer="/calm_lag_ms", detail="from 1 to 600,000"))
    if not 0 <= calm_seconds <= 3_600:
        faults.append(Fault(pointer="/calm_seconds", detail="from 0 to 3,600"))
    if faults:
        raise Invalid(faults)
    # Outside the transaction: keepers are asked.
    plan = plan_evacuation(region=region, kind=kind, to=to, store=store)
    if plan.impossible is not None:
        raise Conflicting(f"nothing can be begun: {plan.impossible}")
    if plan.refusal is not None and not override:
        raise Conflicting(f"{plan.refusal}; an operator may override this")
    return _begin(plan, at_once, calm_lag_ms, calm_seconds, override, actor, reason)


@transaction.atomic
def _begin(
    plan: Plan, at_once: int, calm_lag_ms: int, calm_seconds: int, override: bool, actor: Actor, reason: str
) -> Evacuation:
    from controlplane.evacuations.tasks import wake  # tasks import the driving of evacuations

    lock_region(plan.region)
    try:
        with transaction.atomic():
            made = Evacuation.objects.create(
                region_id=plan.region, kind=plan.kind, at_once=at_once, calm_lag_ms=calm_lag_ms,
                calm_seconds=calm_seconds, plan=plan.told(), why="waits to be begun",
                started_by=actor.name, reason=reason,
            )  # fmt: skip
            for position, step in enumerate(plan.going):
                row = EvacuatedCell.objects.create(
                    evacuation=made, cell_id=step.cell, position=position, source=step.source,
                    target=step.target or "", why="waits for its turn",
                )  # fmt: skip
                EvacuationStep.objects.create(evacuated=row, state=State.WAITING)
    except IntegrityError as e:
        raise Conflicting(f"{plan.region}, or one of its cells, is being evacuated already") from e
    record(
        action="evacuation.start", subject=made.public_id, tenant_id=None, actor=actor, reason=reason,
        after={"region": plan.region, "kind": plan.kind, "cells": len(plan.going),
               "stay": [step.cell for step in plan.staying], "at_once": at_once,
               "tenants": sum(step.tenants for step in plan.going),
               "overridden": override and plan.refusal is not None},
    )  # fmt: skip
    transaction.on_commit(partial(wake, made.id))
    return made


def pause_evacuation(*, evacuation_id: uuid.UUID, actor: Actor, reason: str) -> Evacuation:
    """No further cell is begun or handed over; one whose handover was asked for gets there and is watched."""
    return _change(
        evacuation_id=evacuation_id, verb="pause", why=f"paused by {actor.name}", actor=actor, reason=reason
    )


def resume_evacuation(
    *, evacuation_id: uuid.UUID, at_once: int | None = None, actor: Actor, reason: str
) -> Evacuation:
    """It goes on, with so many cells at the same time."""
    if at_once is not None and not 1 <= at_once <= MOST_AT_ONCE:
        raise invalid("/at_once", f"from 1 to {MOST_AT_ONCE}")
    more = {} if at_once is None else {"at_once": at_once}
    return _change(
        evacuation_id=evacuation_id, verb="resume", why="goes on", more=more, actor=actor, reason=reason
    )


def abort_evacuation(
    *, evacuation_id: uuid.UUID, hand_back: bool = False, actor: Actor, reason: str
) -> Evacuation:
    """Cells that have not been handed over stay where they are and take tenants as before. Those that have
    stay at their new site; with `hand_back` they come back on the same way. Again, without it: what is on
    its way back, or was to come, stays where it is (where its region is gone, nothing can come back)."""
    return _change(
        evacuation_id=evacuation_id, verb="abort", why=f"given up by {actor.name}",
        more={"hand_back": hand_back}, actor=actor, reason=reason,
    )  # fmt: skip


@transaction.atomic
def _change(
    *, evacuation_id: uuid.UUID, verb: str, why: str, more: Mapping[str, object] | None = None,
    actor: Actor, reason: str,
) -> Evacuation:  # fmt: skip
    from controlplane.evacuations.tasks import wake

    found = Evacuation.objects.select_for_update(no_key=True).filter(pk=evacuation_id).first()
    if found is None:
        raise NotFound("no such evacuation")
    target = WHOLE.get((found.at, verb))
    if target is None:
        raise Conflicting(f"an evacuation that is {found.state} cannot {verb}")
    if target is found.at and not (found.hand_back and not (more or {}).get("hand_back")):
        raise Conflicting(
            "it is being given up already"
            + (": without `hand_back` what comes back would stay" if found.hand_back else "")
        )
    before = {"state": found.state, "at_once": found.at_once, "hand_back": found.hand_back}
    found.state, found.why = target.value, why
    for name, value in (more or {}).items():
        setattr(found, name, value)
    found.changed_at = Now()
    found.save(update_fields=["state", "why", "changed_at", *(more or {})])
    record(
        action=f"evacuation.{verb}", subject=found.public_id, tenant_id=None, actor=actor, reason=reason,
        before=before, after={"state": target, "region": found.region_id, **(more or {})},
    )  # fmt: skip
    transaction.on_commit(partial(wake, found.id))
    return Evacuation.objects.get(pk=evacuation_id)
