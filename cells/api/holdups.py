"""Why something that is due has not begun."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cells.api.documents import Document
from cells.api.routing import Call
from cells.api.target_limits import parked_documents
from cells.insight import Holdups
from cells.ports import Member

PAUSED = "All work of the tenant is paused: nothing begins until somebody resumes it."
FULL = "As many runs are under way as the tenant's quota of running runs allows: it begins when one ends."


async def holdups_of(call: Call, members: Sequence[Member], now: datetime) -> list[Document | None]:
    """For members that are due: the tenant's own pause, its quota of running runs, or their target."""
    if not members:
        return []
    general = _general(await call.services.store.holdups(call.tenant_id))
    if general is not None:
        return [general] * len(members)
    return await parked_documents(call.services.queue, members, now)


async def holdup_of(call: Call, member: Member, now: datetime) -> Document | None:
    """The same for one."""
    (found,) = await holdups_of(call, [member], now)
    return found


def _general(holdups: Holdups) -> Document | None:
    if holdups.paused:
        return {"because": "paused", "target_id": None, "reason": PAUSED, "until": None}
    if holdups.full_since is not None:
        return {"because": "quota", "target_id": None, "reason": FULL, "until": None}
    return None
