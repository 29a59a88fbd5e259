"""Why something that is due has not begun."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cells.api.documents import Document
from cells.api.routing import Call
from cells.api.target_limits import parked_documents
from cells.domain.job import Priority
from cells.insight import Holdups
from cells.ports import Member

PAUSED = "All work of the tenant is paused: nothing begins until somebody resumes it."
BUDGET = "The tenant's budget is spent: LOW work waits until the month ends or the budget is changed."
FULL = "As many runs are under way as the tenant's quota of running runs allows: it begins when one ends."


async def holdups_of(call: Call, members: Sequence[Member], now: datetime) -> list[Document | None]:
    """For members that are due: the tenant's own pause, its budget, its quota of running runs, or their
    target."""
    if not members:
        return []
    holdups = await call.services.store.holdups(call.tenant_id)
    general = [_general(holdups, member) for member in members]
    parked = [n for n, found in enumerate(general) if found is None]
    at_targets = await parked_documents(call.services.queue, [members[n] for n in parked], now)
    for n, found in zip(parked, at_targets, strict=True):
        general[n] = found
    return general


async def holdup_of(call: Call, member: Member, now: datetime) -> Document | None:
    """The same for one."""
    (found,) = await holdups_of(call, [member], now)
    return found


def _general(holdups: Holdups, member: Member) -> Document | None:
    if holdups.paused:
        return {"because": "paused", "target_id": None, "reason": PAUSED, "until": None}
    if holdups.low_delayed and member.priority == Priority.LOW:
        return {"because": "budget", "target_id": None, "reason": BUDGET, "until": None}
    if holdups.full_since is not None:
        return {"because": "quota", "target_id": None, "reason": FULL, "until": None}
    return None
