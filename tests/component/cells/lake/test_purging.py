"""What leaves the store with its runs: jobs that ended, replaced versions, dead letters."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from cells.domain.job import JobState
from cells.domain.run import RunState
from cells.lake.folder import FolderFiles
from cells.ports import NewJob
from tests.component.cells.lake.old_days import OldDays
from tests.component.cells.store.world import World, new_job, now, once, seconds_ago


@pytest.fixture
def here(folder_files: FolderFiles, world: World, tmp_path: Path) -> OldDays:
    return OldDays(world, folder_files, tmp_path)


async def ended_job(world: World, days_ago: int) -> NewJob:
    """A job whose only run succeeded long ago, and left nothing in the store."""
    at = seconds_ago(5)
    job = new_job(at, once(at, tags=["x"], name="once"))
    claim = await world.claimed(job)
    assert await world.complete(claim, RunState.SUCCEEDED)
    await world.rows(
        "UPDATE jobs SET updated_at = updated_at - %s WHERE job_id = %s RETURNING 1",
        *(timedelta(days=days_ago), job.job_id),
    )
    return job


async def left(world: World, job: NewJob) -> list[int]:
    return [
        await world.value(f"SELECT count(*) FROM {table} WHERE job_id = %s", job.job_id)  # noqa: S608
        for table in ("jobs", "job_versions", "job_facets")
    ]


async def test_a_job_that_ends_is_dated(world: World) -> None:
    before = now()
    job = await ended_job(world, 0)
    row = await world.job(job)
    assert row.state is JobState.DONE
    assert before - timedelta(seconds=1) < row.updated_at


async def test_jobs_that_ended_go_with_all_they_had(here: OldDays) -> None:
    world = here.world
    old, with_run, young = [await ended_job(world, days) for days in (31, 31, 29)]
    await world.rows("DELETE FROM runs WHERE parent_id <> %s RETURNING 1", with_run.job_id)
    active = new_job(now() + timedelta(days=1))
    await world.create(active)
    await world.rows(
        "UPDATE jobs SET updated_at = '2020-01-01Z' WHERE job_id = %s RETURNING 1", active.job_id
    )
    await here.partition(1)
    await here.round()
    assert await left(world, old) == [0, 0, 0]
    for kept in (with_run, young):
        assert (await left(world, kept))[:2] == [1, 1]
    assert (await left(world, active))[:2] == [1, 1]
    assert here.counted("lake_rows_purged_total", what="ended_jobs") == 1


async def test_replaced_versions_go_when_no_run_can_mean_them(here: OldDays) -> None:
    world = here.world
    job = new_job(now() + timedelta(days=1))
    await world.create(job)
    for version, days_ago in ((2, 60), (3, 50), (4, 40), (5, 20)):
        await world.rows(
            "INSERT INTO job_versions SELECT tenant_id, job_id, %s, definition, payload, %s, created_by"
            " FROM job_versions WHERE job_id = %s AND version = 1 RETURNING 1",
            *(version, now() - timedelta(days=days_ago), job.job_id),
        )
    await world.rows("UPDATE jobs SET version = 5 WHERE job_id = %s RETURNING 1", job.job_id)

    async def versions() -> list[int]:
        return [v for (v,) in await world.rows("SELECT version FROM job_versions ORDER BY 1")]

    await here.partition(45)
    await here.run(here.at(45), "RETRY_WAIT")
    await here.round()
    assert await versions() == [1, 3, 4, 5], "a run of that day may have been made under 3"
    await world.sql.execute(f"DROP TABLE runs_{here.day(45):%Y%m%d}".encode())
    await here.partition(1)
    await here.round()
    assert await versions() == [1, 4, 5]


async def test_dead_letters_go_when_their_time_is_over(here: OldDays) -> None:
    world = here.world
    for days_ago, state in ((31, "OPEN"), (31, "REDRIVEN"), (31, "PURGED"), (29, "OPEN")):
        await world.rows(
            "INSERT INTO dlq (tenant_id, parent_id, scheduled_for, ordinal, series, state, fingerprint,"
            " reason, attempt, failed_at) VALUES"
            " (%s, gen_random_uuid(), now(), 0, 1, %s, 'f', 'FAILED', 1, %s) RETURNING 1",
            *(world.a.tenant_id, state, now() - timedelta(days=days_ago)),
        )
    await here.partition(1)
    await here.round()
    assert await world.value("SELECT count(*) FROM dlq") == 1
