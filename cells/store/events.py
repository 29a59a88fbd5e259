"""The feed of what people should hear of."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence

from cells.domain import ids
from cells.domain.outcome import fingerprint
from cells.ports import EVENTS_LOOKED_AT, Completion, EventRow, Fence, FoundEvents, NewJob
from cells.store.base import StoreBase
from cells.store.database import Row, fetch_all
from cells.store.journal import Entry

#: Ids that one event names; it counts the others.
NAMED = 20
#: Columns of the statements: whether an event is of the type asked for, and its number among those looked at.
_FITS, _NUMBER = 8, 9


class Events(StoreBase):
    """Reading events, and writing those that come from nowhere else."""

    async def events(
        self,
        tenant_id: uuid.UUID,
        *,
        after: tuple[int, int, int] | None,
        type_: str | None,
        limit: int,
        looks: int = EVENTS_LOOKED_AT,
    ) -> FoundEvents:
        """See `ports.Store.events`."""
        if type_ is None:
            looks = limit
        parameters: dict[str, object] = {"tenant": tenant_id, "type": type_, "limit": limit, "looks": looks}
        async with self._database.transaction() as connection:
            if after is None:
                rows = await fetch_all(connection, "events_newest", parameters)
                newest = rows[0][:3] if rows else None
                found = [_event(row) for row in rows if row[_FITS]][:limit]
                return FoundEvents(events=found[::-1], reached=newest, more=False)
            place = dict(zip(("epoch", "xid", "seq"), after, strict=True))
            rows = await fetch_all(connection, "events_after", {**parameters, **place})
        found = [_event(row) for row in rows if row[_FITS]][:limit]
        if len(found) == limit:
            return FoundEvents(events=found, reached=found[-1].place, more=True)
        reached = rows[-1][:3] if rows else None
        return FoundEvents(events=found, reached=reached, more=bool(rows) and rows[-1][_NUMBER] == looks)

    async def add_event(
        self,
        fence: Fence,
        *,
        type_: str,
        subject: str,
        actor: str | None,
        data: dict[str, object],
        host_id: int,
    ) -> None:
        """See `ports.Store.add_event`."""
        async with self._write(fence, host_id) as (_, entry):
            entry.event(fence.tenant_id, type_, subject, actor, **data)
            entry.intent(fence.tenant_id, type_, subject, 0, 0)

    async def add_intent(self, fence: Fence, *, verb: str, subject: str, host_id: int) -> None:
        """See `ports.Store.add_intent`."""
        async with self._write(fence, host_id) as (_, entry):
            entry.intent(fence.tenant_id, verb, subject, 0, 0)


def _event(row: Row) -> EventRow:
    epoch, xid, seq, at, type_, subject, actor, data, *_ = row
    return EventRow(place=(epoch, xid, seq), at=at, type=type_, subject=subject, actor=actor, data=data)


def tell_created(entry: Entry, chosen: Sequence[tuple[Fence, NewJob]]) -> None:
    """New jobs: one event for all that somebody made in one commit."""
    makers: defaultdict[tuple[uuid.UUID, str], list[NewJob]] = defaultdict(list)
    for fence, job in chosen:
        makers[fence.tenant_id, job.actor].append(job)
    for (tenant, actor), jobs in makers.items():
        named = [ids.encode(ids.JOB, job.job_id) for job in jobs[:NAMED]]
        more = {"name": jobs[0].definition.name} if len(jobs) == 1 else {}
        entry.event(tenant, "job.created", named[0], actor, count=len(jobs), job_ids=named, **more)


def tell_dead(entry: Entry, dead: Sequence[Completion], reasons: Sequence[str]) -> None:
    """Dead letters: one event for all that failed alike in one commit."""
    alike: defaultdict[tuple[uuid.UUID, str, str], list[Completion]] = defaultdict(list)
    for completion, reason in zip(dead, reasons, strict=True):
        alike[completion.tenant_id, fingerprint_of(completion), reason].append(completion)
    for (tenant, print_, reason), runs in alike.items():
        named = [ids.run_id(run.key) for run in runs[:NAMED]]
        entry.event(
            tenant,
            "run.dead_lettered",
            named[0],
            None,
            count=len(runs),
            run_ids=named,
            reason=reason,
            fingerprint=print_,
            target_id=runs[0].target_id,
            http_status=runs[0].attempt.status,
            error=runs[0].attempt.error,
        )


def fingerprint_of(c: Completion) -> str:
    """What failures of one kind have in common."""
    return c.fingerprint or fingerprint(c.target_id or "", c.attempt.status, c.attempt.error)
