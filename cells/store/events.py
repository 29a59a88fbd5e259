"""The feed of what people should hear of."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from cells.domain import ids
from cells.domain.ids import RunKey
from cells.domain.outcome import fingerprint
from cells.happenings import Asked
from cells.ports import EVENTS_LOOKED_AT, Completion, EventRow, Fence, FoundEvents, NewJob
from cells.store.arrays import int8s, uuids
from cells.store.base import StoreBase
from cells.store.database import Connection, Row, fetch_all, fetch_row
from cells.store.journal import Entry

#: Ids that one event names; it counts the others.
NAMED = 20
#: Columns of the statements: whether an event is of the type asked for, and its number among those looked at.
_FITS, _NUMBER = 8, 9
#: Stands for no place at all.
_NOWHERE = (-1, 0, 0)


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

    async def events_of_many(
        self, asked: Sequence[Asked], *, types: Sequence[str], looks: int
    ) -> Mapping[uuid.UUID, FoundEvents]:
        """See `happenings.EventStore.events_of_many`."""
        places = [one.after or _NOWHERE for one in asked]
        parameters: dict[str, object] = {
            "tenants": uuids([one.tenant_id for one in asked]),
            "epochs": int8s([epoch for epoch, _, _ in places]),
            "xids": int8s([xid for _, xid, _ in places]),
            "seqs": int8s([seq for _, _, seq in places]),
            "since": [one.since for one in asked],
            "types": list(types),
            "looks": looks,
        }
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "events_of_many", parameters)
        found: defaultdict[uuid.UUID, list[Row]] = defaultdict(list)
        for tenant, *row in rows:
            found[tenant].append(tuple(row))
        return {
            tenant: FoundEvents(
                events=[_event(row) for row in theirs if row[_FITS]],
                reached=theirs[-1][:3],
                more=theirs[-1][_NUMBER] == looks,
            )
            for tenant, theirs in found.items()
        }

    async def tell_late(self, *, after_seconds: int, host_id: int) -> int:
        """See `happenings.EventStore.tell_late`."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "events_late", {"after": after_seconds})
            if not rows:
                return 0
            entry = Entry()
            for tenant, late, due_at in rows:
                subject = ids.encode(ids.TENANT, tenant)
                told: dict[str, object] = {"slo_seconds": after_seconds}
                if late:
                    told["oldest_due_at"] = due_at.isoformat()
                entry.event(tenant, "dispatch.late" if late else "dispatch.recovered", subject, None, **told)
            await self._journal.append(connection, host_id, entry)
        return len(rows)

    async def home_epoch(self) -> int:
        """See `happenings.EventStore.home_epoch`."""
        async with self._database.transaction() as connection:
            (epoch,) = await fetch_row(connection, "cell_events_home")
        return int(epoch)

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


@dataclass(frozen=True, kw_only=True, slots=True)
class JobName:
    """What people know a job by."""

    name: str | None
    tags: Sequence[str]


_Jobs = Mapping[tuple[uuid.UUID, uuid.UUID], JobName]


async def _job_names(connection: Connection, jobs: Sequence[tuple[uuid.UUID, uuid.UUID]]) -> _Jobs:
    """Names and tags of jobs (tenant, job), so that people can ask for news of some jobs only."""
    asked = sorted(set(jobs))
    parameters = {"tenants": uuids([t for t, _ in asked]), "jobs": uuids([job for _, job in asked])}
    return {
        (tenant, job): JobName(name=name, tags=tags)
        for tenant, job, name, tags in await fetch_all(connection, "events_jobs", parameters)
    }


def _named_jobs(jobs: _Jobs, whose: Sequence[tuple[uuid.UUID, uuid.UUID]]) -> list[dict[str, object]]:
    """Some of these jobs as an event names them. Steps of workflows are no jobs."""
    known = [(job, jobs[tenant, job]) for tenant, job in dict.fromkeys(whose) if (tenant, job) in jobs]
    return [
        {"job_id": ids.encode(ids.JOB, job), "name": found.name, "tags": list(found.tags)}
        for job, found in known[:NAMED]
    ]


async def tell_dead(
    connection: Connection, entry: Entry, dead: Sequence[Completion], reasons: Sequence[str]
) -> None:
    """Dead letters: one event for all that failed alike in one commit."""
    jobs = await _job_names(connection, [(c.tenant_id, c.key.parent_id) for c in dead])
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
            jobs=_named_jobs(jobs, [(tenant, run.key.parent_id) for run in runs]),
            reason=reason,
            fingerprint=print_,
            target_id=runs[0].target_id,
            http_status=runs[0].attempt.status,
            error=runs[0].attempt.error,
        )


class Lost(NamedTuple):
    """A run whose holders died with it too often."""

    tenant_id: uuid.UUID
    parent_id: uuid.UUID
    scheduled_for: datetime
    ordinal: int
    reason: str
    target_id: str | None


async def tell_lost(connection: Connection, entry: Entry, lost: Sequence[Lost]) -> None:
    """Dead letters of runs that were taken from dead holders: an event each."""
    jobs = await _job_names(connection, [(run.tenant_id, run.parent_id) for run in lost])
    for run in lost:
        key = RunKey(parent_id=run.parent_id, scheduled_for=run.scheduled_for, ordinal=run.ordinal)
        run_id = ids.run_id(key)
        entry.event(
            run.tenant_id,
            "run.dead_lettered",
            run_id,
            None,
            count=1,
            run_ids=[run_id],
            jobs=_named_jobs(jobs, [(run.tenant_id, run.parent_id)]),
            reason=run.reason,
            target_id=run.target_id,
        )


def fingerprint_of(c: Completion) -> str:
    """What failures of one kind have in common."""
    return c.fingerprint or fingerprint(c.target_id or "", c.attempt.status, c.attempt.error)
