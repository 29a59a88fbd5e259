"""Timers that are moved: by other time-zone data, and by operators who lengthen windows."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from cells.domain import ids as ids_
from cells.domain.faults import ScheduleError
from cells.domain.job import JobDefinition
from cells.domain.retiming import follows_a_clock, moved_to
from cells.domain.schedule import TZDATA_VERSION, compile_schedule
from cells.domain.windows import due_at as due_of
from cells.ports import Member
from cells.scheduling import BehindTenant, Lengthened, Retimed, WaitingJob
from cells.store.arrays import due_to_ms, from_datetime, from_datetime_or_none, instants, int4s, uuids
from cells.store.base import StoreBase
from cells.store.calendars import with_calendars
from cells.store.database import Connection, Row, fetch_all, fetch_one, fetch_row, run
from cells.store.definitions import decode_definition
from cells.store.events import NAMED
from cells.store.journal import Entry, seconds

_PAGE = 500
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Move:
    """One timer and where it goes."""

    tenant_id: uuid.UUID
    job_id: uuid.UUID
    version: int
    priority: int
    shard: int
    old: datetime
    old_due: datetime | None
    new: datetime
    new_due: datetime | None
    name: str | None
    delay_ms: int = 0

    def member(self, at: datetime, due: datetime) -> Member:
        return Member(
            tenant_id=self.tenant_id,
            parent_id=self.job_id,
            scheduled_for=seconds(at),
            generation=self.version,
            priority=self.priority,
            due_ms=due_to_ms(due),
            shard=self.shard,
        )


class Retiming(StoreBase):
    """Moved timers, as in `scheduling.SchedulingStore`."""

    async def tenants_behind(self, version: str) -> Sequence[BehindTenant]:
        """See `scheduling.SchedulingStore.tenants_behind`."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "tenants_behind", {"version": version})
            if not rows:
                await run(connection, "cell_set_tzdata", {"version": version})
        return [
            BehindTenant(tenant_id=tenant, version=known, newer=newer, sealed=sealed)
            for tenant, known, newer, sealed in rows
        ]

    async def retime_page(
        self,
        tenant_id: uuid.UUID,
        *,
        after: uuid.UUID | None,
        limit: int,
        old_version: str | None,
        host_id: int,
        now: datetime,
    ) -> tuple[Retimed, uuid.UUID | None] | None:
        """See `scheduling.SchedulingStore.retime_page`."""
        place = {
            "after_tenant": tenant_id,
            "after_job": after,
            "last_tenant": tenant_id,
            "limit": limit,
        }
        async with self._database.transaction() as connection:
            if await fetch_one(connection, "retime_open", {"tenant": tenant_id}) is None:
                return None
            rows = await fetch_all(connection, "retime_page", place)
            moves = await _moves(connection, rows, now)
            if moves:
                moves = await self._move(connection, moves, old_version, host_id)
            further = rows[-1][2] if len(rows) == limit else None
            if further is None:
                await run(connection, "retime_done", {"tenant": tenant_id, "version": TZDATA_VERSION})
        waiting = [m for m in moves if m.old_due is not None]
        return (
            Retimed(
                removed=[m.member(m.old, m.old_due) for m in waiting if m.old_due is not None],
                added=[m.member(m.new, m.new_due) for m in waiting if m.new_due is not None],
                more=further is not None,
            ),
            further,
        )

    async def waiting_jobs(
        self, *, after: tuple[uuid.UUID, uuid.UUID] | None, limit: int
    ) -> tuple[Sequence[WaitingJob], tuple[uuid.UUID, uuid.UUID] | None]:
        """See `scheduling.SchedulingStore.waiting_jobs`."""
        place = {
            "after_tenant": None if after is None else after[0],
            "after_job": None if after is None else after[1],
            "last_tenant": None,
            "limit": limit,
        }
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "retime_page", place)
            waiting = [row for row in rows if row[4] in ("ACTIVE", "PAUSED") and row[8] is not None]
            definitions = await _definitions(connection, [(row[0], row[10]) for row in waiting])
        jobs = [
            WaitingJob(tenant_id=row[0], job_id=row[2], next_run_at=row[8], definition=definition)
            for row, definition in zip(waiting, definitions, strict=True)
            if definition is not None
        ]
        return jobs, (rows[-1][0], rows[-1][2]) if len(rows) == limit else None

    async def _move(
        self, connection: Connection, moves: Sequence[_Move], old_version: str | None, host_id: int
    ) -> list[_Move]:
        """Write them where nobody was faster, and tell their tenants."""
        rows = await fetch_all(
            connection,
            "retime_jobs",
            {
                "tenants": uuids([m.tenant_id for m in moves]),
                "jobs": uuids([m.job_id for m in moves]),
                "versions": int4s([m.version for m in moves]),
                "olds": instants([from_datetime(m.old) for m in moves]),
                "nexts": instants([from_datetime(m.new) for m in moves]),
                "dues": instants([from_datetime_or_none(m.new_due) for m in moves]),
            },
        )
        written = [moves[i - 1] for (i,) in sorted(rows)]
        if not written:
            return []
        entry = Entry()
        of_tenant: defaultdict[uuid.UUID, list[_Move]] = defaultdict(list)
        for move in written:
            of_tenant[move.tenant_id].append(move)
            entry.intent(move.tenant_id, "job.retimed", move.job_id.hex, move.version, move.version)
        for tenant, moved in of_tenant.items():
            entry.event(
                tenant,
                "timers.moved",
                ids_.encode(ids_.JOB, moved[0].job_id),
                None,
                count=len(moved),
                reason=f"time-zone data {old_version or 'of before'} became {TZDATA_VERSION}",
                jobs=[
                    {
                        "job_id": ids_.encode(ids_.JOB, m.job_id),
                        "name": m.name,
                        "before": _shown(m.old),
                        "after": _shown(m.new),
                    }
                    for m in moved[:NAMED]
                ],
            )
        await self._journal.append(connection, host_id, entry)
        return written

    async def lengthen_windows(
        self,
        *,
        since: datetime,
        until: datetime,
        extra_ms: int,
        tenant_id: uuid.UUID | None,
        after: tuple[uuid.UUID, datetime, uuid.UUID] | None,
        actor: str,
        host_id: int,
        operation: str | None = None,
    ) -> Lengthened:
        """See `scheduling.SchedulingStore.lengthen_windows`."""
        began = "" if after is None else f"{after[0].hex} {after[1].isoformat()} {after[2].hex}"
        page = {"operation": operation, "page": began}
        place = {
            "since": since,
            "until": until,
            "tenant": tenant_id,
            "after_tenant": None if after is None else after[0],
            "after_due": None if after is None else after[1],
            "after_job": None if after is None else after[2],
            "limit": _PAGE,
        }
        async with self._database.transaction() as connection:
            if operation is not None and await fetch_one(connection, "cell_lengthen_begin", page) is None:
                return _as_before(await fetch_row(connection, "cell_lengthen_was", page))
            rows = await fetch_all(connection, "lengthen_page", place)
            definitions = await _definitions(connection, [(row[0], row[8]) for row in rows])
            moves = [
                move
                for row, definition in zip(rows, definitions, strict=True)
                if definition is not None and (move := _later(row, definition, extra_ms)) is not None
            ]
            if moves:
                await run(
                    connection,
                    "lengthen_jobs",
                    {
                        "tenants": uuids([m.tenant_id for m in moves]),
                        "jobs": uuids([m.job_id for m in moves]),
                        "dues": instants([from_datetime_or_none(m.new_due) for m in moves]),
                        "delays": int4s([m.delay_ms for m in moves]),
                    },
                )
                entry = Entry()
                for tenant, jobs in Counter(m.tenant_id for m in moves).items():
                    entry.intent(tenant, "windows.lengthened", f"{seconds(since)}", 0, jobs)
                    entry.event(
                        tenant, "windows.lengthened", _shown(since), actor,
                        until=_shown(until), jobs=jobs, extra_seconds=extra_ms / 1000,
                    )  # fmt: skip
                await self._journal.append(connection, host_id, entry)
            last = rows[-1] if len(rows) == _PAGE else None
            if operation is not None:
                done = {
                    "jobs": len(moves),
                    "tenants": len({m.tenant_id for m in moves}),
                    "after_tenant": None if last is None else last[0],
                    "after_due": None if last is None else last[7],
                    "after_job": None if last is None else last[1],
                }
                await run(connection, "cell_lengthen_done", page | done)
        return Lengthened(
            jobs=len(moves),
            tenants=len({m.tenant_id for m in moves}),
            removed=[m.member(m.old, m.old_due) for m in moves if m.old_due is not None],
            added=[m.member(m.new, m.new_due) for m in moves if m.new_due is not None],
            after=None if last is None else (last[0], last[7], last[1]),
        )


def _as_before(row: Row) -> Lengthened:
    """What a page did when it was done."""
    jobs, tenants, *after = row
    return Lengthened(
        jobs=jobs,
        tenants=tenants,
        removed=(),
        added=(),
        after=None if after[0] is None else (after[0], after[1], after[2]),
    )


async def _moves(connection: Connection, rows: Sequence[Row], now: datetime) -> list[_Move]:
    """What of a page belongs elsewhere. What is due already stays due."""
    waiting = [row for row in rows if row[4] in ("ACTIVE", "PAUSED") and row[8] is not None and row[8] > now]
    definitions = await _definitions(connection, [(row[0], row[10]) for row in waiting])
    moves = []
    for row, definition in zip(waiting, definitions, strict=True):
        if definition is None or not follows_a_clock(definition.schedule):
            continue
        try:
            new = moved_to(compile_schedule(definition.schedule), row[8])
        except ScheduleError:
            continue  # unreadable by this code: it stays where it is
        if new is None or new == row[8]:
            continue
        moves.append(
            _Move(
                tenant_id=row[0],
                job_id=row[2],
                version=row[3],
                priority=row[5],
                shard=row[6],
                old=row[8],
                old_due=row[9],
                new=new,
                new_due=None if row[9] is None else due_of(new, row[7]),
                name=definition.name,
            )
        )
    return moves


async def _definitions(
    connection: Connection, stored: Sequence[tuple[uuid.UUID, bytes]]
) -> list[JobDefinition | None]:
    """Definitions with their calendars; None for one that cannot be read."""
    decoded: list[JobDefinition | None] = []
    for _, text in stored:
        try:
            decoded.append(decode_definition(text))
        except msgspec.MsgspecError:
            decoded.append(None)
    readable = [(tenant, d) for (tenant, _), d in zip(stored, decoded, strict=True) if d is not None]
    whole = iter(await with_calendars(connection, readable))
    return [None if d is None else next(whole) for d in decoded]


def _later(row: Row, definition: JobDefinition, extra_ms: int) -> _Move | None:
    """A timer moved by its own share of what was asked for; never as far as the next occurrence."""
    tenant, job_id, version, shard, _, delay_ms, next_run_at, due, _ = row
    try:
        period = compile_schedule(definition.schedule).period_seconds()
    except ScheduleError:
        return None
    share = ids_.offset_of(job_id, extra_ms)
    if period is not None:
        share = min(share, (next_run_at + timedelta(seconds=period) - due) // _MILLISECOND - 1)
    if share <= 0:
        return None
    return _Move(
        tenant_id=tenant,
        job_id=job_id,
        version=version,
        priority=int(definition.priority),
        shard=shard,
        old=next_run_at,
        old_due=due,
        new=next_run_at,
        new_due=due + share * _MILLISECOND,
        name=definition.name,
        delay_ms=delay_ms + share,
    )


def _shown(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
