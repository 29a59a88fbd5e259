"""Use-cases: what an operator asks of one site. Each has a plan first, with the numbers before and after."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from controlplane.actors import Actor
from controlplane.errors import Conflicting, Fault, Invalid, NotFound, Unavailable, invalid
from controlplane.evacuations.keepers import (
    KeeperRefused,
    KeeperUnreachable,
    SiteStatus,
    ask_keeper,
    status_of,
)
from controlplane.evacuations.looking import facts_of
from controlplane.evacuations.planning import CellFacts, Load, handover_plan
from controlplane.events.recording import record
from controlplane.ownership import OwnershipStore
from controlplane.ownership.installed import installed_store
from controlplane.topology.models import Cell, CellState, Site

HAND_OVER, REJOIN, OVERRIDE, GIVE_UP = "hand-over", "rejoin", "override", "give-up"
VERBS = (HAND_OVER, REJOIN, OVERRIDE, GIVE_UP)
#: A keeper begins a handover within so long, or not at all (seconds).
_BEGIN_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True, slots=True)
class WishPlan:
    """What would become of a wish. `refusal`: why it is refused; `loses`: what can be lost."""

    cell: str
    region: str
    verb: str
    epoch: int  # under which this was seen; a wish under another one is refused
    owner: str  # region
    says: str
    loses: str
    tenants: int
    behind_bytes: int | None  # what the site has not flushed of the owner's log, now
    refusal: str | None
    loads: list[Load] = field(default_factory=list)

    @property
    def confirmation(self) -> str:
        """What has to be typed for it; empty where nothing can be lost."""
        return f"{self.cell} {self.region}" if self.loses else ""


def plan_wish(*, cell: str, region: str, verb: str, store: OwnershipStore | None = None) -> WishPlan:
    """What it would do. `region`: that shall own the cell (hand-over), whose site rejoins (rejoin), whose
    keeper is told to go on without the missing votes (override), or that is waited for no more (give-up)."""
    site = _site(cell, region)
    if verb not in VERBS:
        raise invalid("/verb", f"one of {', '.join(VERBS)}")
    facts = facts_of(store or installed_store(), ask={cell})
    found = next((one for one in facts if one.seen.name == cell), None)
    if found is None:
        raise Conflicting(f"the ownership store has no row of {cell}")
    status = found.sites.get(region) or status_of(site)
    if verb == HAND_OVER:
        return _handover(found, [one for one in facts if one is not found], region)
    if verb == REJOIN:
        return _rejoin(found, region, status)
    if verb == GIVE_UP:
        return _give_up(found, region)
    return _override(found, region, status)


def _plan(found: CellFacts, region: str, verb: str, **more: Any) -> WishPlan:
    owner = found.sites.get(found.owner)
    return WishPlan(
        cell=found.seen.name, region=region, verb=verb, epoch=found.epoch, owner=found.owner,
        tenants=found.seen.tenants,
        behind_bytes=owner.behind(region) if owner is not None and not owner.away else None,
        **more,
    )  # fmt: skip


def _handover(found: CellFacts, others: list[CellFacts], region: str) -> WishPlan:
    plan = handover_plan(found, others, region)
    step = plan.steps[0]
    refusal = None if step.target is not None else step.why
    if refusal is None and step.dead:
        refusal = f"{found.owner} does not answer: only its survivors can take the cell over"
    return _plan(
        found, region, HAND_OVER, loads=list(plan.loads), loses="", refusal=refusal,
        says=f"{found.seen.name} goes from {found.owner} to {region}: its {found.seen.tenants} tenants wait"
             " for some seconds, and nothing is lost; where the target is not there in time it stays",
    )  # fmt: skip


def _rejoin(found: CellFacts, region: str, status: SiteStatus) -> WishPlan:
    refusal = None
    if status.away:
        refusal = status.away
    elif status.act != "STRAYED":
        refusal = f"{region} did not go on alone: it is at {status.act}"
    return _plan(
        found, region, REJOIN, refusal=refusal,
        says=f"{region} becomes a standby of {found.owner} again",
        loses=f"what only {region} did is taken out of its database. {status.why}".strip(),
    )  # fmt: skip


def _override(found: CellFacts, region: str, status: SiteStatus) -> WishPlan:
    refusal = None
    silent = sorted(name for name, one in found.sites.items() if one.away)
    # A site that is at its vote has it cast within moments: what it has need not be given up.
    voting = sorted(
        name
        for name in status.missing
        if name in found.sites and not found.sites[name].away and found.sites[name].act == "VOTE"
    )
    if status.away:
        refusal = status.away
    elif not status.missing:
        refusal = f"no takeover waits for votes in {region}: {status.act}, {status.why}"
    elif voting:
        refusal = f"{', '.join(voting)} is about to vote: wait for that"
    lacking = ", ".join(status.missing or silent) or "a site without a vote"
    known = {name: one.position for name, one in found.sites.items() if not one.away}
    positions = ", ".join(f"{name} at {position:,}" for name, position in sorted(known.items()))
    return _plan(
        found, region, OVERRIDE, refusal=refusal,
        says=f"the takeover of epoch {found.epoch} is decided by the sites that have voted ({positions})",
        loses=f"whatever only {lacking} has, also what was confirmed as STRICT, is missing until that site is"
              " back and what it has is looked at",
    )  # fmt: skip


def _give_up(found: CellFacts, region: str) -> WishPlan:
    owner = found.sites.get(found.owner)
    refusal = None
    if owner is None or owner.away:
        refusal = f"the owner, {found.owner}, does not answer"
    elif region == found.owner:
        refusal = f"{region} owns the cell: what it has is here"
    return _plan(
        found, region, GIVE_UP, refusal=refusal,
        says=f"STRICT opens in {found.seen.name} without what only {region} has; refused where it does not"
             " wait for that",
        loses=f"what only {region} has and was confirmed as STRICT is not taken up any more: where it comes"
              " back it is listed",
    )  # fmt: skip


def ask_wish(
    *,
    cell: str,
    region: str,
    verb: str,
    epoch: int | None = None,
    confirm: str = "",
    store: OwnershipStore | None = None,
    actor: Actor,
    reason: str,
) -> str:
    """Asks the site's keeper for it; what that says. `epoch`: as in the plan that was decided by; refused
    where the cell is under another one. `confirm`: the plan's confirmation, where something can be lost."""
    plan = plan_wish(cell=cell, region=region, verb=verb, store=store)
    faults = []
    if plan.confirmation and confirm.strip() != plan.confirmation:
        faults.append(Fault(pointer="/confirm", detail=f"type “{plan.confirmation}”: {plan.loses}"))
    if plan.confirmation and epoch is None:
        faults.append(Fault(pointer="/epoch", detail="of the plan that showed what can be lost"))
    if plan.confirmation and not reason.strip():
        faults.append(Fault(pointer="/reason", detail="say why: it stays in the records"))
    if faults:
        raise Invalid(faults)
    if epoch is not None and epoch != plan.epoch:
        raise Conflicting(f"{cell} is under epoch {plan.epoch} now, not {epoch}: look again")
    if plan.refusal is not None:
        raise Conflicting(plan.refusal)
    wish: Mapping[str, object]
    if verb == HAND_OVER:
        wish = {"epoch": plan.epoch, "to": region, "until": time.time() + _BEGIN_SECONDS}
    elif verb == OVERRIDE:
        wish = {"epoch": plan.epoch, "reason": f"{actor.name}: {reason}"}
    elif verb == GIVE_UP:
        wish = {"epoch": plan.epoch, "site": region, "reason": f"{actor.name}: {reason}"}
    else:
        wish = {"epoch": plan.epoch, "region": region}
    asked = _site(cell, plan.owner if verb in (HAND_OVER, GIVE_UP) else region)
    # Before it is asked: it may be heard though no answer comes, and then somebody has to be known for it.
    _tell(f"site.{verb.replace('-', '_')}", plan, actor, reason, said="asked")
    try:
        said = ask_keeper(asked, Cell.objects.get(pk=cell), verb, wish)
    except KeeperRefused as fault:
        _tell("site.refused", plan, actor, reason, said=str(fault))
        raise Conflicting(str(fault)) from fault
    except KeeperUnreachable as fault:
        _tell("site.unheard", plan, actor, reason, said=f"whether it was heard is not known: {fault}")
        raise Unavailable(f"whether it was heard is not known: {fault}") from fault
    _tell("site.answered", plan, actor, reason, said=said)
    return said


@transaction.atomic
def _tell(action: str, plan: WishPlan, actor: Actor, reason: str, *, said: str) -> None:
    record(
        action=action, subject=plan.cell, tenant_id=None, actor=actor, reason=reason,
        before={"owner": plan.owner, "epoch": plan.epoch},
        after={"verb": plan.verb, "region": plan.region, "said": said[:500], "loses": plan.loses,
               "tenants": plan.tenants},
    )  # fmt: skip


def _site(cell: str, region: str) -> Site:
    if not Cell.objects.filter(pk=cell).exclude(state=CellState.RETIRED).exists():
        raise NotFound(f"no cell {cell}")
    found = Site.objects.filter(cell=cell, region=region).first()
    if found is None:
        raise NotFound(f"{cell} has no site in {region}")
    return found
