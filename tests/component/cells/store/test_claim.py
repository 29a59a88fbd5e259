"""Claims: who wins, what is written, what is refused."""

from __future__ import annotations

from datetime import timedelta

from cells.contract import EPOCH_STRIDE
from cells.domain.job import JobState
from cells.domain.run import RunState
from tests.component.cells.store.world import EPOCH, World, completion, every, member_of, new_job, seconds_ago


async def test_a_due_occurrence_runs_and_its_job_waits_for_the_next(world: World) -> None:
    start = seconds_ago(5)
    job = new_job(start, every(60, start))
    await world.create(job)
    result = await world.claim(member_of(job, world.a.tenant_id))
    (claim,) = result.claims
    assert claim.epoch == EPOCH * EPOCH_STRIDE
    assert (claim.attempt, claim.series, claim.payload) == (1, 1, b'{"n":1}')
    assert claim.key.scheduled_for == start and claim.key.ordinal == 0
    assert claim.lease_ms == 90_000
    (following,) = result.next_members
    assert following.scheduled_for == int(start.timestamp()) + 60
    row = await world.job(job)
    assert row.state is JobState.ACTIVE and row.next_run_at == start + timedelta(seconds=60)
    run = await world.store.get_run(world.a.tenant_id, claim.key)
    assert run is not None and run.state is RunState.RUNNING and run.epoch == claim.epoch
    applied = await world.store.complete([completion(claim, RunState.SUCCEEDED)], host_id=world.host_id)
    assert list(applied.applied) == [True]
    run = await world.store.get_run(world.a.tenant_id, claim.key)
    assert run is not None and run.state is RunState.SUCCEEDED and len(run.attempts) == 1
