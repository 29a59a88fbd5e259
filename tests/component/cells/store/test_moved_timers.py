"""Calendars, backfills, other time-zone data, longer windows: timers move, and nothing is lost."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from cells.domain import ids
from cells.domain.calendars import Roll
from cells.domain.job import JobState, Misfire, OverlapPolicy, Priority, Schedule, ScheduleType
from cells.domain.zones import TZDATA_VERSION
from cells.ports import Conflict, NewJob
from cells.scheduling import CalendarContent, Retimed
from tests.component.cells.store.world import (
    World,
    definition,
    every,
    member_of,
    new_id,
    new_job,
    now,
    seconds_ago,
)  # fmt: skip

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
KEPT = 30 * DAY


def noon(n: int) -> datetime:
    """Noon, n days ahead."""
    return (now() + n * DAY).replace(hour=12, minute=0, second=0, microsecond=0)


async def put(world: World, *days: date, version: int | None = None) -> Any:
    content = CalendarContent(dates=[(day.isoformat(), None) for day in days])
    row, _ = await world.store.put_calendar(
        world.a, calendar_id="cal_x", name=None, content=content, base_version=version, actor="key:test",
        host_id=world.host_id,
    )  # fmt: skip
    return row


def daily(calendar: Any, at: datetime, **changes: Any) -> NewJob:
    schedule = Schedule(
        type=ScheduleType.CRON, cron="0 12 * * *", time_zone="UTC", calendar="cal_x",
        calendar_version=calendar.version, roll=Roll.SKIP, excluded=calendar.calendar,
    )  # fmt: skip
    return new_job(at, definition(schedule=schedule, dispatch_window_seconds=1), **changes)


# --- calendars -----------------------------------------------------------------------------
async def test_jobs_follow_a_changed_calendar(world: World) -> None:
    first = await put(world, noon(5).date())
    job = daily(first, noon(2))
    await world.create(job)
    changed = await put(world, noon(2).date(), noon(3).date(), version=1)
    assert (changed.version, changed.pending) == (2, True)
    step = await world.store.step_calendar(host_id=world.host_id, now=noon(2) - HOUR)
    assert step is not None
    assert [m.scheduled_for for m in step.added] == [int(noon(4).timestamp())]
    row = await world.job(job)
    assert (row.version, row.next_run_at) == (2, noon(4))
    assert row.definition.schedule.calendar_version == 2
    assert row.definition.schedule.excluded == changed.calendar
    skipped = await world.rows("SELECT scheduled_for, reason, skipped FROM runs")
    assert skipped == [(noon(2), "calendar", 2)]
    assert await world.store.step_calendar(host_id=world.host_id, now=now()) is None
    after = await world.store.get_calendar(world.a.tenant_id, "cal_x")
    assert after is not None
    assert (after.pending, after.moved) == (False, 1)
    # And back again: what was told beforehand is taken back, so that the day can run.
    await put(world, noon(9).date())
    await world.store.step_calendar(host_id=world.host_id, now=noon(2) - HOUR)
    assert (await world.job(job)).next_run_at == noon(2)
    assert await world.rows("SELECT 1 FROM runs") == []


async def test_what_is_due_already_stays_due(world: World) -> None:
    due = seconds_ago(60)
    first = await put(world, noon(5).date())
    job = daily(first, due)
    await world.create(job)
    await put(world, due.date())
    await world.store.step_calendar(host_id=world.host_id, now=now())
    row = await world.job(job)
    assert (row.version, row.next_run_at, row.due_at) == (2, due, due)


async def test_many_jobs_follow_in_pages(world: World) -> None:
    first = await put(world, noon(5).date())
    jobs = [daily(first, noon(2)) for _ in range(120)]
    await world.create(*jobs)
    await put(world, noon(2).date())
    steps = 0
    while await world.store.step_calendar(host_id=world.host_id, now=noon(1)) is not None:
        steps += 1
    assert steps == 3
    assert (
        await world.value("SELECT count(*) FROM jobs WHERE next_run_at = %s AND version = 2", noon(3)) == 120
    )


async def test_a_job_made_with_an_older_version_is_refused(world: World) -> None:
    old = await put(world, noon(5).date())
    await put(world, noon(6).date())
    (refused,) = await world.store.create_jobs([world.a], [daily(old, noon(2))], host_id=world.host_id)
    assert isinstance(refused, Conflict)
    assert await world.value("SELECT count(*) FROM jobs") == 0


async def test_a_calendar_in_use_stays_and_its_name_keeps_counting(world: World) -> None:
    first = await put(world, noon(5).date())
    job = daily(first, noon(2))
    await world.create(job)
    with pytest.raises(Conflict, match="1 scheduled or paused jobs"):
        await world.store.delete_calendar(
            world.a, "cal_x", base_version=None, actor="key:test", host_id=world.host_id
        )
    await world.set_state(job, JobState.CANCELLED)
    await world.store.delete_calendar(
        world.a, "cal_x", base_version=1, actor="key:test", host_id=world.host_id
    )
    assert await world.store.get_calendar(world.a.tenant_id, "cal_x") is None
    assert (await put(world, noon(5).date())).version == 2
    assert await world.store.get_calendar(world.b.tenant_id, "cal_x") is None


# --- backfills -----------------------------------------------------------------------------
async def backfill(world: World, job: NewJob, since: datetime, until: datetime, rate: int = 1000) -> Any:
    row = await world.job(job)
    return await world.store.start_backfill(
        world.a, backfill_id=new_id(), job=row, from_at=since, until_at=until, total=10, max_per_second=rate,
        actor="key:test", host_id=world.host_id,
    )  # fmt: skip


async def states(world: World) -> list[tuple[Any, ...]]:
    return await world.rows("SELECT scheduled_for, state, skipped FROM runs ORDER BY 1")


async def test_skipped_occurrences_run_after_all_and_all_stay_accounted_for(world: World) -> None:
    first = seconds_ago(10 * 3600 + 60)
    job = new_job(first, every(3600, first, misfire_policy=Misfire.RUN_ONCE))
    await world.claimed(job)
    ran = first + 10 * HOUR
    assert await states(world) == [(first, "SKIPPED", 10), (ran, "RUNNING", 0)]
    started = await backfill(world, job, first + 2 * HOUR, first + 5 * HOUR)
    step = await world.store.step_backfill(host_id=world.host_id, now=now(), kept=KEPT)
    assert step is not None
    wanted = [first + n * HOUR for n in (2, 3, 4)]
    assert [m.scheduled_for for m in step.added] == [int(at.timestamp()) for at in wanted]
    assert await states(world) == [
        (first, "SKIPPED", 2), *((at, "DUE", 0) for at in wanted), (first + 5 * HOUR, "SKIPPED", 5),
        (ran, "RUNNING", 0),
    ]  # fmt: skip
    done = await world.store.get_backfill(world.a.tenant_id, started.backfill_id)
    assert done is not None
    assert (done.state, done.started, done.present) == ("DONE", 3, 0)
    # Again, over all of it: what has a run is left alone.
    await backfill(world, job, first, ran + HOUR)
    again = await world.store.step_backfill(host_id=world.host_id, now=now(), kept=KEPT)
    assert again is not None
    assert len(again.added) == 7
    assert {state for _, state, _ in await states(world)} == {"DUE", "RUNNING"}
    claims = (await world.claim(*step.added)).claims
    assert [claim.key.scheduled_for for claim in claims] == wanted
    assert {claim.key.ordinal for claim in claims} == {0}


async def test_a_backfill_is_paced_and_stoppable(world: World) -> None:
    first = seconds_ago(200 * 60)
    job = new_job(now() + HOUR, every(60, first))
    await world.create(job)
    started = await backfill(world, job, first, first + 100 * timedelta(minutes=1), rate=20)
    step = await world.store.step_backfill(host_id=world.host_id, now=now(), kept=KEPT)
    assert step is not None
    assert len(step.added) == 20
    early = await world.store.step_backfill(host_id=world.host_id, now=now(), kept=KEPT)
    assert early is None, "not before a second"
    stopped = await world.store.stop_backfill(
        world.a, backfill_id=started.backfill_id, actor="key:test", host_id=world.host_id
    )
    assert (stopped.state, stopped.started, stopped.stopped_by) == ("STOPPED", 20, "key:test")
    await world.rows("UPDATE backfills SET next_at = now() RETURNING 1")
    assert await world.store.step_backfill(host_id=world.host_id, now=now(), kept=KEPT) is None
    assert await world.value("SELECT count(*) FROM runs") == 20


async def test_a_backfill_that_came_too_late_ends(world: World) -> None:
    first = seconds_ago(3 * 86_400)
    job = new_job(now() + HOUR, every(3600, first))
    await world.create(job)
    started = await backfill(world, job, first, first + 3 * HOUR)
    step = await world.store.step_backfill(host_id=world.host_id, now=now(), kept=2 * DAY)
    assert step is not None
    assert len(step.added) == 0
    ended = await world.store.get_backfill(world.a.tenant_id, started.backfill_id)
    assert ended is not None
    assert (ended.state, ended.started) == ("DONE", 0)
    assert ended.reason is not None
    assert "not kept" in ended.reason
    assert await world.value("SELECT count(*) FROM runs") == 0


async def test_a_job_that_runs_alone_is_backfilled_one_by_one(world: World) -> None:
    first = seconds_ago(10 * 3600)
    job = new_job(now() + HOUR, every(3600, first, overlap_policy=OverlapPolicy.SKIP))
    await world.create(job)
    await backfill(world, job, first, first + 3 * HOUR)
    step = await world.store.step_backfill(host_id=world.host_id, now=now(), kept=KEPT)
    assert step is not None
    assert len(step.added) == 1
    await world.rows("UPDATE backfills SET next_at = now() RETURNING 1")
    waits = await world.store.step_backfill(host_id=world.host_id, now=now(), kept=KEPT)
    assert waits is not None
    assert len(waits.added) == 0


# --- time-zone data ------------------------------------------------------------------------
async def test_other_time_zone_data_moves_what_lies_ahead(world: World) -> None:
    right = datetime(2027, 1, 15, 17, 0, tzinfo=UTC)  # noon in New York
    schedule = Schedule(type=ScheduleType.CRON, cron="0 12 * * *", time_zone="America/New_York")
    moved = new_job(right - HOUR, definition(schedule=schedule), offset_ms=5000)
    stays = new_job(right, definition(schedule=schedule))
    rate = new_job(right - HOUR, every(3600, right))
    await world.create(moved, stays, rate)
    page, after = await retimed(world)
    assert after is None
    assert [(m.parent_id, m.scheduled_for) for m in page.added] == [(moved.job_id, int(right.timestamp()))]
    row = await world.job(moved)
    assert (row.next_run_at, row.due_at, row.version) == (right, right + timedelta(seconds=5), 1)
    assert (await world.job(rate)).next_run_at == right - HOUR
    (event,) = await world.rows("SELECT data FROM events WHERE type = 'timers.moved'")
    assert b"2000a" in bytes(event[0])
    again, _ = await retimed(world)
    assert list(again.added) == []


async def retimed(
    world: World, *, after: uuid.UUID | None = None, limit: int = 100
) -> tuple[Retimed, uuid.UUID | None]:
    """A page of the first tenant."""
    done = await world.store.retime_page(
        world.a.tenant_id, after=after, limit=limit, old_version="2000a", host_id=world.host_id, now=now()
    )
    assert done is not None, "sealed"
    return done


async def behind(world: World) -> list[tuple[uuid.UUID, str | None, bool]]:
    """Who does not follow this process's data: which it follows, whether it is sealed."""
    found = await world.store.tenants_behind(TZDATA_VERSION)
    return [(tenant.tenant_id, tenant.version, tenant.sealed) for tenant in found]


@pytest.mark.parametrize("state", ["SUSPENDED", "BARRIER", "SEALED"])
async def test_it_moves_timers_of_tenants_that_may_not_run_now(world: World, state: str) -> None:
    """They may again, and then at the right instant. Whose seal is being settled waits; nobody else does."""
    right = datetime(2027, 1, 15, 17, 0, tzinfo=UTC)
    schedule = Schedule(type=ScheduleType.CRON, cron="0 12 * * *", time_zone="America/New_York")
    jobs = [new_job(right - HOUR, definition(schedule=schedule)) for _ in range(3)]
    await world.create(*jobs)
    tenant = world.a.tenant_id
    _, further = await retimed(world, limit=2)
    await world.sql.execute("UPDATE tenants SET state = %s WHERE tenant_id = %s", (state, tenant))
    assert (tenant, None, state == "SEALED") in await behind(world)
    if state == "SEALED":
        with pytest.raises(AssertionError, match="sealed"):
            await retimed(world, after=further)
        assert sorted([(await world.job(job)).next_run_at for job in jobs]) == [right - HOUR, right, right]
        return
    assert (await retimed(world, after=further, limit=2))[1] is None
    assert {(await world.job(job)).next_run_at for job in jobs} == {right}
    assert tenant not in [of for of, _, _ in await behind(world)]
    # Moved here from a cell with older, or newer, data.
    for version, newer in (("2000a", False), ("9000a", True)):
        await world.sql.execute(
            "UPDATE tenant_tzdata SET version = %s WHERE tenant_id = %s", (version, tenant)
        )
        (found,) = [t for t in await world.store.tenants_behind(TZDATA_VERSION) if t.tenant_id == tenant]
        assert (found.version, found.newer) == (version, newer)
    await retimed(world)
    assert (tenant, "9000a", False) in await behind(world), "never back"


# --- windows -------------------------------------------------------------------------------
async def test_low_windows_grow_and_nothing_else_moves(world: World) -> None:
    at = (now() + timedelta(minutes=10)).replace(microsecond=0)
    low = [new_job(at, every(3600, at, priority=Priority.LOW)) for _ in range(30)]
    others = [
        new_job(at, every(3600, at, priority=p)) for p in (Priority.CRITICAL, Priority.HIGH, Priority.DEFAULT)
    ]
    often = new_job(at, every(60, at, priority=Priority.LOW, misfire_policy=Misfire.SKIP))
    await world.create(*low, *others, often)
    done = await world.store.lengthen_windows(
        since=now(), until=at + HOUR, extra_ms=600_000, tenant_id=None, after=None, actor="op:1",
        host_id=world.host_id,
    )  # fmt: skip
    assert (done.after, done.tenants) == (None, 1)
    for job in low:
        row = await world.job(job)
        assert row.next_run_at == at
        assert row.due_at is not None
        assert at <= row.due_at < at + timedelta(minutes=10)
    for job in others:
        assert (await world.job(job)).due_at == at
    moved = await world.job(often)
    assert moved.due_at is not None
    assert at < moved.due_at < at + timedelta(seconds=60), "never to its next occurrence"
    assert await world.value("SELECT count(*) FROM events WHERE type = 'windows.lengthened'") == 1
    # Asked again, timers move further or not at all; none comes nearer.
    dues = {job.job_id: (await world.job(job)).due_at for job in low}
    await world.store.lengthen_windows(
        since=now(), until=at + HOUR, extra_ms=1000, tenant_id=world.a.tenant_id, after=None, actor="op:1",
        host_id=world.host_id,
    )  # fmt: skip
    for job in low:
        due = (await world.job(job)).due_at
        assert due is not None
        assert due >= (dues[job.job_id] or due)


async def test_each_timer_moves_once_however_many_pages_there_are(world: World) -> None:
    at = (now() + timedelta(minutes=10)).replace(microsecond=0)
    jobs = [
        new_job(at + n * SECOND, every(7200, at + n * SECOND, priority=Priority.LOW)) for n in range(1100)
    ]
    await world.create(*jobs)
    after, moved, pages = None, 0, 0
    while pages == 0 or after is not None:
        done = await world.store.lengthen_windows(
            since=now(), until=at + HOUR, extra_ms=1_800_000, tenant_id=None, after=after, actor="op:1",
            host_id=world.host_id,
        )  # fmt: skip
        after, moved, pages = done.after, moved + done.jobs, pages + 1
    assert pages == 3
    assert 1095 <= moved <= 1100, "a share may be nothing"
    rows = await world.rows("SELECT job_id, due_at - next_run_at, delay_ms FROM jobs")
    for job_id, later, delay in rows:
        assert delay == ids.offset_of(job_id, 1_800_000)
        assert later == timedelta(milliseconds=delay)


async def test_an_operation_that_is_asked_for_again_moves_nothing_again(world: World) -> None:
    at = (now() + timedelta(minutes=10)).replace(microsecond=0)
    jobs = [new_job(at + n * SECOND, every(7200, at + n * SECOND, priority=Priority.LOW)) for n in range(700)]
    await world.create(*jobs)

    async def page(after: Any, operation: str = "op-1") -> Any:
        return await world.store.lengthen_windows(
            since=now(), until=at + HOUR, extra_ms=1_800_000, tenant_id=None, after=after, actor="op:1",
            host_id=world.host_id, operation=operation,
        )  # fmt: skip

    first = await page(None)
    before = await world.rows("SELECT job_id, due_at FROM jobs ORDER BY 1")
    again = await page(None)
    assert (again.jobs, again.tenants, again.after) == (first.jobs, 1, first.after)
    assert (list(again.removed), list(again.added)) == ([], [])
    assert await world.rows("SELECT job_id, due_at FROM jobs ORDER BY 1") == before
    # It goes on where the answer was lost; two at once do a page once.
    both = await asyncio.gather(page(first.after), page(first.after))
    assert both[0].jobs == both[1].jobs
    assert {bool(done.added) for done in both} == {True, False}
    for (delay,) in await world.rows("SELECT delay_ms FROM jobs"):
        assert delay < 1_800_000
    assert (await page(None, "op-2")).jobs == 500, "another operation moves them once more"


async def test_a_lengthened_window_is_no_misfire_and_never_early(world: World) -> None:
    at = seconds_ago(-2)
    job = new_job(
        at, every(7200, at, priority=Priority.LOW, misfire_policy=Misfire.SKIP, misfire_grace_seconds=60)
    )
    await world.create(job)
    await world.store.lengthen_windows(
        since=now(), until=at + HOUR, extra_ms=3_600_000, tenant_id=None, after=None, actor="op:1",
        host_id=world.host_id,
    )  # fmt: skip
    row = await world.job(job)
    assert row.due_at is not None
    assert row.due_at > at
    early = await world.claim(member_of(job, world.a.tenant_id))
    assert (early.claims, len(early.too_early)) == ((), 1)
    # As if that long had gone by: both instants are moved back together.
    gone = timedelta(seconds=(row.due_at - now()) // timedelta(seconds=1) + 2)
    await world.rows(
        "UPDATE jobs SET next_run_at = next_run_at - %s, due_at = due_at - %s RETURNING 1", gone, gone
    )
    waiting = await world.job(job)
    assert waiting.next_run_at is not None
    member = member_of(new_job(waiting.next_run_at, job.definition, job_id=job.job_id), world.a.tenant_id)
    assert len((await world.claim(member)).claims) == 1
    assert await world.value("SELECT delay_ms FROM jobs WHERE job_id = %s", job.job_id) == 0
