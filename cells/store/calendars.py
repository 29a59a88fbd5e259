"""Calendars: their versions, and the jobs that follow a change of one.

A job's definition names the version of its calendar, so it is as immutable as before, and what runs
when can be told afterwards. A changed calendar is followed by new versions of its jobs, a page in a
transaction: whoever holds the calendar's row works on it, and its position moves with the page.
Writers of jobs hold the version that they name (`held`), so none of them is overlooked.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

import msgspec
from psycopg import errors

from cells.domain import ids as ids_
from cells.domain.calendars import Calendar
from cells.domain.faults import ScheduleError
from cells.domain.job import JobDefinition, JobState, Schedule, TargetRef
from cells.domain.schedule import compile_schedule
from cells.domain.windows import due_at, window_for
from cells.ports import Conflict, Fence, JobRow, Member, NewJob, TenantConfig, Terminal
from cells.scheduling import CalendarContent, CalendarRow, Retimed, calendar_of
from cells.store.arrays import due_to_ms, int4s, texts, uuids
from cells.store.base import StoreBase
from cells.store.database import Connection, Row, fetch_all, fetch_one, fetch_row, run
from cells.store.journal import Entry, seconds
from cells.store.passing import tell_ahead_anew

#: Jobs that follow in one transaction.
_PAGE = 50
#: Versions whose content a process keeps.
_KEPT = 1_000

_decode = msgspec.json.Decoder(CalendarContent).decode
_encode = msgspec.json.Encoder().encode
_known: dict[tuple[int, str, int], Calendar] = {}  # versions are immutable


def facet_of(calendar_id: str) -> str:
    """The term under which a calendar's jobs are found."""
    return f"calendar:{calendar_id}"


async def with_calendars(
    connection: Connection, wanted: Sequence[tuple[uuid.UUID, JobDefinition]]
) -> list[JobDefinition]:
    """Definitions with what their calendars exclude. Costs nothing where none has a calendar."""
    keys = {
        (tenant, schedule.calendar, schedule.calendar_version)
        for tenant, definition in wanted
        if (schedule := definition.schedule).calendar is not None
    }
    if not keys:
        return [definition for _, definition in wanted]
    missing = [key for key in keys if (key[0].int, key[1], key[2]) not in _known]
    found: dict[tuple[int, str, int], Calendar] = {
        place: _known[place]
        for tenant, name, version in keys
        if (place := (tenant.int, name, version)) in _known
    }
    if missing:
        parameters = {
            "tenants": uuids([tenant for tenant, _, _ in missing]),
            "calendars": texts([name for _, name, _ in missing]),
            "versions": int4s([version for _, _, version in missing]),
        }
        for i, content in await fetch_all(connection, "calendar_contents", parameters):
            tenant, name, version = missing[i - 1]
            found[tenant.int, name, version] = calendar_of(_decode(content))
        if len(_known) > _KEPT:
            _known.clear()
        _known.update(found)
    return [
        definition
        if definition.schedule.calendar is None
        else _filled(definition, found.get(_place(tenant, definition.schedule)))
        for tenant, definition in wanted
    ]


async def with_calendar(connection: Connection, tenant: uuid.UUID, schedule: Schedule) -> Schedule:
    """One schedule with what its calendar excludes."""
    wanted = JobDefinition(schedule=schedule, target=TargetRef())
    (found,) = await with_calendars(connection, [(tenant, wanted)])
    return found.schedule


def _place(tenant: uuid.UUID, schedule: Schedule) -> tuple[int, str, int]:
    return tenant.int, schedule.calendar or "", schedule.calendar_version


def _filled(definition: JobDefinition, calendar: Calendar | None) -> JobDefinition:
    schedule = msgspec.structs.replace(definition.schedule, excluded=calendar)
    return msgspec.structs.replace(definition, schedule=schedule)


async def outdated(connection: Connection, wanted: Sequence[tuple[uuid.UUID, Schedule]]) -> set[int]:
    """Positions of the schedules whose calendar is another one by now. The others stay as they are
    until the transaction ends."""
    named = [(i, tenant, s) for i, (tenant, s) in enumerate(wanted) if s.calendar is not None]
    if not named:
        return set()
    parameters = {
        "tenants": uuids([tenant for _, tenant, _ in named]),
        "calendars": texts([s.calendar for _, _, s in named]),
    }
    held: dict[int, int] = dict(await fetch_all(connection, "calendar_held", parameters))
    return {i for n, (i, _, s) in enumerate(named, 1) if held.get(n) != s.calendar_version}


class Calendars(StoreBase):
    """The calendar part of `scheduling.SchedulingStore`."""

    async def put_calendar(
        self,
        fence: Fence,
        *,
        calendar_id: str,
        name: str | None,
        content: CalendarContent,
        base_version: int | None,
        actor: str,
        host_id: int,
    ) -> tuple[CalendarRow, bool]:
        """See `scheduling.SchedulingStore.put_calendar`."""
        tenant = fence.tenant_id
        ids: dict[str, object] = {"tenant": tenant, "calendar": calendar_id, "name": name, "actor": actor}
        try:
            async with self._write(fence, host_id) as (connection, entry):
                current = await fetch_one(connection, "calendar_lock", ids)
                version = 0 if current is None else current[0]
                if base_version is not None and base_version != version:
                    raise Conflict("the calendar has another version", version=version)
                encoded = _encode(content)
                same = current is not None and bytes(current[2]) == encoded
                if same:
                    await run(connection, "calendar_rename", ids)
                    entry.intent(tenant, "calendar.rename", calendar_id, version, version)
                else:
                    statement = "calendar_insert" if current is None else "calendar_change"
                    (made,) = await fetch_row(connection, statement, ids)
                    await run(
                        connection, "calendar_version_insert", {**ids, "version": made, "content": encoded}
                    )
                    told = "calendar.created" if current is None else "calendar.changed"
                    entry.intent(tenant, told, calendar_id, version, made)
                    entry.event(tenant, told, calendar_id, actor, version=made, dates=len(content.dates))
                return _row(tenant, await fetch_row(connection, "calendar_get", ids)), current is None
        except errors.UniqueViolation as e:
            raise Conflict("the calendar was created by somebody else just then") from e

    async def get_calendar(self, tenant_id: uuid.UUID, calendar_id: str) -> CalendarRow | None:
        """One calendar, or None."""
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "calendar_get", {"tenant": tenant_id, "calendar": calendar_id})
        return None if row is None else _row(tenant_id, row)

    async def list_calendars(
        self, tenant_id: uuid.UUID, *, after: str | None, limit: int
    ) -> Sequence[CalendarRow]:
        """A page of them by id."""
        parameters = {"tenant": tenant_id, "after": after, "limit": limit}
        async with self._database.transaction() as connection:
            return [_row(tenant_id, row) for row in await fetch_all(connection, "calendar_list", parameters)]

    async def delete_calendar(
        self, fence: Fence, calendar_id: str, *, base_version: int | None, actor: str, host_id: int
    ) -> None:
        """See `scheduling.SchedulingStore.delete_calendar`."""
        tenant = fence.tenant_id
        ids: dict[str, object] = {"tenant": tenant, "calendar": calendar_id}
        async with self._write(fence, host_id) as (connection, entry):
            current = await fetch_one(connection, "calendar_lock", ids)
            if current is None:
                raise Terminal("no such calendar")
            if base_version is not None and base_version != current[0]:
                raise Conflict("the calendar has another version", version=current[0])
            wanted = {"tenant": tenant, "facet": facet_of(calendar_id), "limit": 1000}
            (jobs,) = await fetch_row(connection, "calendar_jobs", wanted)
            if jobs:
                shown = "1,000 or more" if jobs >= 1000 else str(jobs)
                raise Conflict(f"{shown} scheduled or paused jobs refer to the calendar")
            await run(connection, "calendar_delete", ids)
            entry.intent(tenant, "calendar.delete", calendar_id, current[0], current[0])
            entry.event(tenant, "calendar.deleted", calendar_id, actor)

    async def step_calendar(self, *, host_id: int, now: datetime) -> Retimed | None:
        """See `scheduling.SchedulingStore.step_calendar`."""
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "calendar_next")
            if row is None:
                return None
            tenant, epoch, config, calendar_id, version, after_at, after_job, moved, content = row
            facet = facet_of(calendar_id)
            place = {"tenant": tenant, "facet": facet, "after_at": after_at, "after_job": after_job}
            page = await fetch_all(connection, "calendar_page", {**place, "limit": _PAGE})
            work = _Following(
                connection, Fence(tenant_id=tenant, epoch=epoch),
                msgspec.json.decode(config, type=TenantConfig), version, calendar_of(_decode(content)), now,
            )  # fmt: skip
            for _, job_id in sorted(page, key=lambda found: found[1].int):
                await work.follow(job_id)
            pending = len(page) == _PAGE
            if page:
                after_at, after_job = page[-1]
            ids = {"tenant": tenant, "calendar": calendar_id, "after_at": after_at, "after_job": after_job}
            await run(connection, "calendar_advance", {**ids, "moved": work.moved, "pending": pending})
            work.entry.intent(tenant, "calendar.step", calendar_id, version, version)
            if not pending:
                work.entry.event(
                    tenant, "calendar.applied", calendar_id, None, version=version, moved=moved + work.moved
                )
            await self._journal.append(connection, host_id, work.entry)
            return Retimed(removed=work.removed, added=work.added)


class _Following:
    """Jobs that follow one version of a calendar, in one transaction."""

    def __init__(
        self, connection: Connection, fence: Fence, config: TenantConfig, version: int, calendar: Calendar,
        now: datetime,
    ):  # fmt: skip
        self._connection = connection
        self._fence = fence
        self._config = config
        self._version = version
        self._calendar = calendar
        self._now = now
        self.moved = 0
        self.entry = Entry()
        self.removed: list[Member] = []
        self.added: list[Member] = []

    async def follow(self, job_id: uuid.UUID) -> None:
        """One job: another version, and another next occurrence where that is another one."""
        from cells.store.job_changes import write_version
        from cells.store.jobs import read_job

        tenant = self._fence.tenant_id
        locked = await fetch_one(self._connection, "job_lock", {"tenant": tenant, "job": job_id})
        if locked is None or locked[0] not in (JobState.ACTIVE, JobState.PAUSED):
            return
        try:
            before = await read_job(self._connection, tenant, job_id)
            if before is None or before.definition.schedule.calendar_version == self._version:
                return
            schedule = msgspec.structs.replace(
                before.definition.schedule, calendar_version=self._version, excluded=self._calendar
            )
            after = self._after(before, schedule)
        except (ScheduleError, msgspec.MsgspecError):
            return  # a definition that this version cannot read must not hold up the others
        await write_version(self._connection, self._fence, after, before.version + 1, before.created_at)
        await tell_ahead_anew(
            self._connection, self.entry, self._fence, job_id, before.version + 1, after.definition,
            now=self._now, following=after.next_run_at, before=before.definition.schedule,
        )  # fmt: skip
        self.entry.intent(tenant, "job.calendar", job_id.hex, before.version, before.version + 1)
        if after.next_run_at != before.next_run_at or after.state is not before.state:
            self.moved += 1
            subject = ids_.encode(ids_.JOB, job_id)
            self.entry.event(
                tenant, "job.moved_by_calendar", subject, None, calendar=schedule.calendar,
                before=_shown(before.next_run_at), after=_shown(after.next_run_at),
                name=after.definition.name,
            )  # fmt: skip
        if before.due_at is not None and before.next_run_at is not None:
            self.removed.append(member(before, before.version, before.next_run_at, before.due_at))
        if after.due_at is not None and after.next_run_at is not None:
            self.added.append(member(before, before.version + 1, after.next_run_at, after.due_at))

    def _after(self, before: JobRow, schedule: Schedule) -> NewJob:
        """What it waits for under the new version. What is due already stays due: it runs."""
        definition = msgspec.structs.replace(before.definition, schedule=schedule)
        window = window_for(schedule, definition.dispatch_window_seconds, self._config)
        offset = ids_.offset_of(before.job_id, window)
        state, following, timer = before.state, before.next_run_at, before.due_at
        if following is not None and following > self._now:
            first = compile_schedule(schedule).first(self._now)
            following = None if first is None else first.at
            if state is JobState.ACTIVE:
                timer = None if following is None else due_at(following, offset)
                state = JobState.DONE if following is None else state
        return NewJob(
            job_id=before.job_id, definition=definition, payload=before.payload, shard=before.shard,
            window_ms=window, offset_ms=offset, next_run_at=following, due_at=timer, state=state,
            actor="calendar",
        )  # fmt: skip


def member(row: JobRow, version: int, at: datetime, due: datetime) -> Member:
    """A job's timer."""
    return Member(
        tenant_id=row.tenant_id,
        parent_id=row.job_id,
        scheduled_for=seconds(at),
        generation=version,
        priority=int(row.definition.priority),
        due_ms=due_to_ms(due),
        shard=row.shard,
    )


def _shown(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _row(tenant: uuid.UUID, row: Row) -> CalendarRow:
    return CalendarRow(
        tenant_id=tenant,
        calendar_id=row[0],
        version=row[1],
        name=row[2],
        content=_decode(row[3]),
        created_by=row[4],
        created_at=row[5],
        updated_at=row[6],
        pending=row[7],
        moved=row[8],
    )
