"""The strict allowance under many writers at once: creations that follow `nearest_available`, edits and
resumes that go for the same seconds."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

from cells.domain.job import JobState, Priority
from cells.ports import AllowanceExceeded, Created, NewJob
from tests.component.cells.store.world import World, every, new_job, seconds_ago

ALLOWED = 2  # of the tenants of `World`
WRITERS = 24


def strict_at(at: datetime, job: NewJob | None = None) -> NewJob:
    """A strict job that waits for that instant; the same one, edited, if one is given."""
    definition = every(3600, at, priority=Priority.CRITICAL, dispatch_window_seconds=0)
    if job is not None:
        return replace(job, definition=definition, window_ms=0, next_run_at=at, due_at=at)
    return new_job(at, definition, window_ms=0)


async def until_there_is_room(world: World, at: datetime) -> tuple[datetime, int]:
    """Creates a strict job, going where each refusal points to: the second it got, and the refusals."""
    refusals = 0
    while True:
        (result,) = await world.store.create_jobs([world.a], [strict_at(at)], host_id=world.host_id)
        if isinstance(result, Created):
            return at, refusals
        assert isinstance(result, AllowanceExceeded), result
        assert result.nearest_available is not None
        assert result.nearest_available > at, "it points forward, or nobody would ever arrive"
        at, refusals = result.nearest_available, refusals + 1


async def per_second(world: World) -> Counter[datetime]:
    rows = await world.rows(
        "SELECT due_at FROM jobs WHERE state = 'ACTIVE' AND window_ms = 0 AND priority = 0"
    )
    return Counter(due.replace(microsecond=0) for (due,) in rows)


async def test_who_follows_the_nearest_second_arrives_and_no_second_is_overfull(world: World) -> None:
    at = seconds_ago(-300)
    got = await asyncio.gather(*(until_there_is_room(world, at) for _ in range(WRITERS)))
    seconds = WRITERS // ALLOWED
    assert await per_second(world) == {at + timedelta(seconds=n): ALLOWED for n in range(seconds)}, (
        "full seconds without a hole: a refusal never points past one that has room"
    )
    assert Counter(second for second, _ in got) == await per_second(world)
    # Each refusal points at a second that had room then; others fill at most all the seconds before the last.
    assert max(refusals for _, refusals in got) < seconds


async def test_creations_edits_and_resumes_share_one_allowance(world: World) -> None:
    at = seconds_ago(-300)
    elsewhere = [new_job(at + timedelta(hours=1)) for _ in range(6)]
    paused = [strict_at(at + timedelta(minutes=n + 1)) for n in range(6)]
    await world.create(*elsewhere, *paused)
    for job in paused:
        await world.set_state(job, JobState.PAUSED)

    pointed: list[datetime | None] = []

    async def edit(job: NewJob) -> bool:
        try:
            await world.store.edit_job(
                world.a, base_version=1, seen_next_run_at=job.next_run_at, job=strict_at(at, job),
                host_id=world.host_id,
            )  # fmt: skip
        except AllowanceExceeded as refused:
            pointed.append(refused.nearest_available)
            return False
        return True

    async def resume(job: NewJob) -> bool:
        try:
            await world.set_state(job, JobState.ACTIVE, at)
        except AllowanceExceeded as refused:
            pointed.append(refused.nearest_available)
            return False
        return True

    async def create() -> bool:
        (result,) = await world.store.create_jobs([world.a], [strict_at(at)], host_id=world.host_id)
        if isinstance(result, AllowanceExceeded):
            pointed.append(result.nearest_available)
        return isinstance(result, Created)

    won = await asyncio.gather(
        *(edit(job) for job in elsewhere), *(resume(job) for job in paused), *(create() for _ in range(6))
    )
    assert sum(won) == ALLOWED
    assert pointed == [at + timedelta(seconds=1)] * (len(won) - ALLOWED)
    assert await per_second(world) == {at: ALLOWED}
