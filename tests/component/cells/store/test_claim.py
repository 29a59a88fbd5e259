"""Claims: who wins, what is written, what is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from cells.contract import EPOCH_STRIDE
from cells.domain.ids import RunKey
from cells.domain.job import JobState, Misfire, Schedule, ScheduleType
from cells.domain.run import RunState
from cells.ports import Fence, LeaseLost, Member
from cells.store.postgres import PostgresStore
from tests.component.cells.store.world import (
    EPOCH,
    World,
    completion,
    definition,
    every,
    member_of,
    ms,
    new_job,
    now,
    once,
    seconds_ago,
)
from tests.waiting import eventually


async def test_a_due_occurrence_runs_and_its_job_waits_for_the_next(world: World) -> None:
    start = seconds_ago(5)
    job = new_job(start, every(60, start))
    await world.create(job)
    member = member_of(job, world.a.tenant_id)
    result = await world.claim(member)
    (claim,) = result.claims
    assert claim.epoch == EPOCH * EPOCH_STRIDE
    assert (claim.attempt, claim.series, claim.payload) == (1, 1, b'{"n":1}')
    assert claim.key == RunKey(parent_id=job.job_id, scheduled_for=start, ordinal=0)
    assert (claim.lease_ms, claim.due_ms, claim.released_ms) == (90_000, ms(start), member.released_ms)
    assert result.next_members == [
        Member(
            tenant_id=world.a.tenant_id,
            parent_id=job.job_id,
            scheduled_for=int(start.timestamp()) + 60,
            generation=1,
            priority=2,
            due_ms=ms(start) + 60_000,
            shard=job.shard,
        )
    ]
    row = await world.job(job)
    assert (row.state, row.next_run_at) == (JobState.ACTIVE, start + timedelta(seconds=60))
    run = await world.run(claim)
    assert (run.state, run.epoch, run.attempt) == (RunState.RUNNING, claim.epoch, 1)
    assert run.lease_expires_at is not None
    assert run.claimed_at is not None
    assert run.lease_expires_at - run.claimed_at == timedelta(seconds=90)


async def test_the_last_occurrence_ends_the_job(world: World) -> None:
    job = new_job(seconds_ago(1), once(seconds_ago(1)))
    claim = await world.claimed(job)
    assert claim.definition == job.definition
    row = await world.job(job)
    assert (row.state, row.next_run_at, row.due_at) == (JobState.DONE, None, None)


async def test_an_ad_hoc_run_is_the_first_run_by_hand(world: World) -> None:
    job = new_job(seconds_ago(0), definition(schedule=Schedule(type=ScheduleType.NOW)), window_ms=0)
    claim = await world.claimed(job)
    assert claim.key.ordinal == 1
    assert str(claim.key).endswith("Z:1")
    run, _, _ = await world.store.trigger_job(
        world.a,
        job_id=job.job_id,
        now=now(),
        payload=None,
        actor="key:x",
        traceparent=None,
        idempotency=None,
        host_id=world.host_id,
    )
    assert run.key.ordinal == 2


async def test_missed_occurrences_are_accounted_for(world: World) -> None:
    start = seconds_ago(3600)
    job = new_job(start, every(600, start))
    claim = await world.claimed(job)
    assert claim.key.scheduled_for == start + timedelta(seconds=3600)
    runs = await world.store.list_runs(world.a.tenant_id, job_id=job.job_id)
    assert [(run.state, run.key.scheduled_for, run.skipped, run.reason) for run in runs] == [
        (RunState.RUNNING, start + timedelta(seconds=3600), 0, None),
        (RunState.SKIPPED, start, 6, "misfire"),
    ]


async def test_an_occurrence_inside_its_window_is_never_early(world: World) -> None:
    """Three occurrences are past, but with the offset only two of them are due."""
    start = seconds_ago(130)
    job = new_job(start, every(60, start), offset_ms=30_000)
    claim = await world.claimed(job)
    assert claim.key.scheduled_for == start + timedelta(seconds=60)
    assert (await world.job(job)).next_run_at == start + timedelta(seconds=120)


async def test_a_skipping_job_runs_nothing_and_moves_on(world: World) -> None:
    start = seconds_ago(3600)
    job = new_job(start, every(7200, start, misfire_policy=Misfire.SKIP, misfire_grace_seconds=60))
    await world.create(job)
    result = await world.claim(member_of(job, world.a.tenant_id))
    assert (result.claims, len(result.next_members)) == ([], 1)
    (run,) = await world.store.list_runs(world.a.tenant_id, job_id=job.job_id)
    assert (run.state, run.skipped) == (RunState.SKIPPED, 1)


async def test_ahead_of_the_databases_clock_is_too_early(world: World) -> None:
    job = new_job(seconds_ago(-30))
    await world.create(job)
    before = await world.everything()
    member = member_of(job, world.a.tenant_id)
    result = await world.claim(member)
    assert (result.claims, result.stale, result.too_early) == ((), [], [member])
    assert await world.everything() == before


async def test_what_the_member_says_must_still_be_so(world: World) -> None:
    start = seconds_ago(100)
    job = new_job(start, every(60, start))
    paused = new_job(start, every(60, start))
    await world.create(job, paused)
    await world.set_state(paused, JobState.PAUSED)
    outdated = msgspec.structs.replace(
        member_of(job, world.a.tenant_id), scheduled_for=int(start.timestamp()) - 60
    )
    unknown = msgspec.structs.replace(
        member_of(job, world.a.tenant_id), parent_id=paused.payload and world.b.tenant_id
    )
    members = [outdated, unknown, member_of(paused, world.a.tenant_id)]
    before = await world.everything()
    result = await world.claim(*members)
    assert (result.claims, result.stale, result.too_early) == ((), members, [])
    assert await world.everything() == before


async def test_the_same_member_twice_runs_once(world: World) -> None:
    job = new_job(seconds_ago(1))
    await world.create(job)
    member = member_of(job, world.a.tenant_id)
    result = await world.claim(member, msgspec.structs.replace(member))
    assert (len(result.claims), len(result.stale)) == (1, 1)


async def test_an_old_generation_claims_with_the_definition_that_holds(world: World) -> None:
    start = seconds_ago(1)
    job = new_job(start, every(60, start))
    await world.create(job)
    member = member_of(job, world.a.tenant_id)
    edited = replace(job, payload=b'{"n":2}')
    await world.store.edit_job(
        world.a, base_version=1, seen_next_run_at=start, job=edited, host_id=world.host_id
    )
    (claim,) = (await world.claim(member)).claims
    assert (claim.version, claim.payload) == (2, b'{"n":2}')


async def test_an_occurrence_that_has_a_run_already_does_not_run_again(world: World) -> None:
    """An edit went back in time: the job advances, its other members are claimed all the same."""
    start = seconds_ago(30)
    job, other = new_job(start, every(3600, start)), new_job(start)
    claim = await world.claimed(job)
    await world.create(other)
    row = await world.job(job)
    await world.store.edit_job(
        world.a, base_version=1, seen_next_run_at=row.next_run_at, job=job, host_id=world.host_id
    )
    again = member_of(job, world.a.tenant_id, version=2)
    result = await world.claim(again, member_of(other, world.a.tenant_id))
    assert [c.key.parent_id for c in result.claims] == [other.job_id]
    assert result.stale == [again]
    assert (await world.job(job)).next_run_at == start + timedelta(hours=1)
    assert (await world.run(claim)).epoch == claim.epoch


async def test_of_many_claimers_exactly_one_wins(world: World) -> None:
    jobs = [new_job(seconds_ago(2), every(3600, seconds_ago(2))) for _ in range(40)]
    await world.create(*jobs)
    members = [member_of(job, world.a.tenant_id) for job in jobs]
    hosts = [
        (await world.store.register_host(name=f"h{i}", roles=[], lease_ms=60_000)).host_id for i in range(8)
    ]
    orders = [members[i * 5 :] + members[: i * 5] for i in range(8)]
    results = await asyncio.gather(
        *(world.claim(*order, host_id=h) for order, h in zip(orders, hosts, strict=True))
    )
    won = [claim.key.parent_id for result in results for claim in result.claims]
    assert sorted(won) == sorted(job.job_id for job in jobs)
    assert await world.value("SELECT count(*) FROM runs") == 40
    assert await world.value("SELECT count(DISTINCT host_id) FROM runs WHERE state <> 'RUNNING'") == 0


async def test_of_many_claimers_of_a_retry_exactly_one_wins(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    applied = await world.store.complete([completion(claim, RunState.RETRY_WAIT)], host_id=world.host_id)
    (member,) = applied.retries
    results = await asyncio.gather(*(world.claim(member) for _ in range(10)))
    (second,) = [claim for result in results for claim in result.claims]
    assert (second.epoch, second.attempt, second.key) == (claim.epoch + 1, 2, claim.key)


async def test_a_retry_raises_the_epoch_to_the_present_owners(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    applied = await world.store.complete([completion(claim, RunState.RETRY_WAIT)], host_id=world.host_id)
    taken_over = Fence(tenant_id=world.a.tenant_id, epoch=EPOCH + 4)
    await world.put_tenant(taken_over, version=2)
    (second,) = (await world.claim(*applied.retries)).claims
    assert second.epoch == (EPOCH + 4) * EPOCH_STRIDE


@pytest.mark.parametrize("state", ["BARRIER", "SEALED", "MOVED", "SUSPENDED"])
async def test_nothing_is_claimed_for_a_tenant_that_is_not_active(world: World, state: str) -> None:
    waiting = await world.claimed(new_job(seconds_ago(5)))
    applied = await world.store.complete([completion(waiting, RunState.RETRY_WAIT)], host_id=world.host_id)
    job = new_job(seconds_ago(2))
    await world.create(job)
    await world.put_tenant(world.a, state, version=2)
    before = await world.everything()
    members = [member_of(job, world.a.tenant_id), *applied.retries]
    result = await world.claim(*members)
    assert (result.claims, result.stale) == ((), members)
    assert await world.everything() == before


@pytest.mark.parametrize(
    "lapse", ["UPDATE hosts SET lease_expires_at = now()", "UPDATE cell SET lease_until = now()"]
)
async def test_a_lapsed_lease_claims_nothing(world: World, lapse: str) -> None:
    job = new_job(seconds_ago(2))
    await world.create(job)
    await world.sql.execute(lapse.encode())
    before = await world.everything()
    with pytest.raises(LeaseLost):
        await world.claim(member_of(job, world.a.tenant_id))
    assert await world.everything() == before


async def test_a_cell_with_a_lease_that_runs_may_write(world: World) -> None:
    await world.sql.execute(b"UPDATE cell SET lease_until = clock_timestamp() + interval '20 s'")
    await world.claimed(new_job(seconds_ago(2)))


async def test_the_same_ids_under_another_tenant_are_untouched(world: World) -> None:
    start = seconds_ago(2)
    job = new_job(start, every(3600, start))
    await world.create(job, fence=world.a)
    await world.create(job, fence=world.b)
    (claim,) = (await world.claim(member_of(job, world.a.tenant_id))).claims
    assert (await world.job(job, world.b)).next_run_at == start
    assert await world.store.get_run(world.b.tenant_id, claim.key) is None
    mine = completion(claim, RunState.SUCCEEDED)
    foreign = replace(mine, tenant_id=world.b.tenant_id)
    assert list((await world.store.complete([foreign], host_id=world.host_id)).applied) == [False]
    assert (await world.run(claim)).state is RunState.RUNNING


async def test_three_row_writes_a_run(world: World, cell_database_url: str) -> None:
    """Insert the run, advance the job, end the run; the journal's rows are shared."""
    start = seconds_ago(2)
    jobs = [new_job(start, every(3600, start)) for _ in range(50)]
    await world.create(*jobs)
    await world.store.close()  # a backend reports what it wrote at the latest when it ends
    before: int = await eventually(world.writes)
    async with PostgresStore(cell_database_url, cell_name="cell-1", pool_size=1) as store:
        members = [member_of(job, world.a.tenant_id) for job in jobs]
        result = await store.claim(members, host_id=world.host_id, host_name="host-1")
        completions = [completion(claim, RunState.SUCCEEDED) for claim in result.claims]
        await store.complete(completions, host_id=world.host_id)
    assert len(result.claims) == 50
    after: int = await eventually(world.writes)
    assert after - before == 3 * 50 + 2


async def test_the_journal_says_what_was_claimed(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    *_, body = await world.journal()
    assert body.claimed == [
        (
            world.a.tenant_id.hex,
            claim.key.parent_id.hex,
            int(claim.key.scheduled_for.timestamp()),
            0,
            claim.epoch,
        )
    ]
    assert body.counts == []
