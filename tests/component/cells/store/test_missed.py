"""Occurrences that a pause, an edit or a cancel passed over are accounted for; strict jobs keep to
their allowance however they get their timer."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from cells.domain.job import JobState, Priority
from cells.ports import AllowanceExceeded, Conflict
from tests.component.cells.store.world import (
    World,
    definition,
    every,
    member_of,
    new_job,
    now,
    once,
    seconds_ago,
)

HOUR = timedelta(hours=1)


async def skipped(world: World) -> list[tuple[Any, ...]]:
    return await world.rows(
        "SELECT scheduled_for, ordinal, reason, skipped FROM runs WHERE state = 'SKIPPED' ORDER BY 1"
    )


async def resumed(world: World, job: Any, at: datetime | None) -> None:
    state = JobState.ACTIVE if at is not None else JobState.DONE
    await world.set_state(job, state, at, now=now())


async def test_a_pause_leaves_one_row_for_what_it_passed_over(world: World) -> None:
    first = seconds_ago(3 * 3600 + 60)
    job = new_job(first, every(3600, first))
    await world.create(job)
    await world.set_state(job, JobState.PAUSED, now=now())
    assert await skipped(world) == []
    following = first + 4 * HOUR
    await resumed(world, job, following)
    assert await skipped(world) == [(first, 0, "paused", 4)]
    (finished,) = (await world.journal())[-1].finished
    assert finished[:4] == (world.a.tenant_id.hex, job.job_id.hex, int(first.timestamp()), 0)
    assert finished[5] == "SKIPPED"
    assert (await world.job(job)).next_run_at == following
    await world.set_state(job, JobState.PAUSED)
    await resumed(world, job, following)
    assert len(await skipped(world)) == 1


async def test_a_pause_beyond_the_end_counts_to_the_end(world: World) -> None:
    first = seconds_ago(7200)
    schedule = every(600, first).schedule
    end = (first + timedelta(seconds=1800)).isoformat()
    ended = definition(schedule=msgspec.structs.replace(schedule, end_at=end))
    job = new_job(first, ended)
    await world.create(job)
    await world.set_state(job, JobState.PAUSED)
    await resumed(world, job, None)
    assert await skipped(world) == [(first, 0, "paused", 3)]
    assert (await world.job(job)).state is JobState.DONE


async def test_a_one_off_that_runs_late_is_not_skipped(world: World) -> None:
    at = seconds_ago(600)
    job = new_job(at, once(at))
    await world.create(job)
    await world.set_state(job, JobState.PAUSED)
    await resumed(world, job, at)
    assert await skipped(world) == []


async def test_a_cancel_accounts_for_what_was_due(world: World) -> None:
    due, paused, ahead = seconds_ago(30), seconds_ago(7200), seconds_ago(-600)
    waits = new_job(due, every(3600, due))
    stands = new_job(paused, every(3600, paused))
    comes = new_job(ahead, every(3600, ahead))
    await world.create(waits, stands, comes)
    await world.set_state(stands, JobState.PAUSED)
    for job in (waits, stands, comes):
        await world.set_state(job, JobState.CANCELLED, now=now())
        await world.set_state(job, JobState.CANCELLED, now=now())
    assert await skipped(world) == [(paused, 0, "paused", 3), (due, 0, "cancelled", 1)]


async def test_an_edit_of_the_schedule_accounts_for_what_was_due(world: World) -> None:
    due = seconds_ago(30)
    job, other = new_job(due, every(3600, due)), new_job(due, every(3600, due))
    await world.create(job, other)
    following = seconds_ago(-100)
    edit = replace(job, definition=every(60, following), next_run_at=following, due_at=following)
    renamed = replace(other, definition=every(3600, due, name="new"))
    for edited in (edit, renamed):
        await world.store.edit_job(
            world.a, base_version=1, seen_next_run_at=due, job=edited, host_id=world.host_id, now=now()
        )
    assert await skipped(world) == [(due, 0, "edited", 1)]
    won = await world.claim(member_of(renamed, world.a.tenant_id, version=2))
    assert len(won.claims) == 1


async def test_a_row_that_is_there_already_stays(world: World) -> None:
    due = seconds_ago(30)
    job = new_job(due, every(3600, due))
    await world.claimed(job)
    await world.sql.execute(b"UPDATE jobs SET next_run_at = %s, due_at = %s", (due, due))
    await world.set_state(job, JobState.CANCELLED, now=now())
    assert await world.rows("SELECT state FROM runs") == [("RUNNING",)]
    assert (await world.job(job)).state is JobState.CANCELLED


async def test_resuming_a_strict_job_needs_room(world: World) -> None:
    at = seconds_ago(-60)
    strict = [
        new_job(at, once(at, priority=Priority.CRITICAL, dispatch_window_seconds=0), window_ms=0)
        for _ in range(3)
    ]
    await world.create(strict[0])
    await world.set_state(strict[0], JobState.PAUSED)
    await world.create(*strict[1:])
    before = await world.everything()
    with pytest.raises(AllowanceExceeded) as refused:
        await world.set_state(strict[0], JobState.ACTIVE, at)
    assert refused.value.nearest_available == at + timedelta(seconds=1)
    assert await world.everything() == before
    await world.set_state(strict[1], JobState.CANCELLED)
    assert (await world.set_state(strict[0], JobState.ACTIVE, at)).state is JobState.ACTIVE


async def test_a_job_revives_only_from_its_end(world: World) -> None:
    at = seconds_ago(-60)
    job = new_job(at, once(at))
    await world.create(job)
    arguments: dict[str, Any] = {"job": job, "host_id": world.host_id, "revive": True}
    with pytest.raises(Conflict):
        await world.store.edit_job(world.a, base_version=1, seen_next_run_at=at, **arguments)
    await world.set_state(job, JobState.CANCELLED)
    with pytest.raises(Conflict):
        await world.store.edit_job(
            world.a, base_version=1, seen_next_run_at=None, **(arguments | {"revive": False})
        )
    row = await world.store.edit_job(world.a, base_version=1, seen_next_run_at=None, **arguments)
    assert (row.state, row.version, row.due_at) == (JobState.ACTIVE, 2, at)
