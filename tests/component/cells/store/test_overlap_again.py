"""Runs that come back, by a redrive or a backfill, keep to their job's overlap policy, too."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
import pytest

from cells.domain.job import OverlapPolicy
from cells.domain.run import RunState
from cells.ports import Claim, Member
from tests.component.cells.store.test_overlap import HOUR, at_hour, guarded, rows
from tests.component.cells.store.world import World, completion, every, new_id, new_job, now, seconds_ago
from tests.waiting import eventually


async def failed(world: World, claim: Claim) -> Member:
    """The run fails for good, and is redriven: its timer."""
    assert await world.complete(claim, RunState.FAILED)
    (member,) = await world.store.redrive_letter(
        world.a, key=claim.key, actor="key:test", host_id=world.host_id
    )
    return member


@pytest.mark.parametrize(
    "policy", [OverlapPolicy.SKIP, OverlapPolicy.BUFFER_ONE, OverlapPolicy.CANCEL_PREVIOUS]
)
async def test_a_redriven_run_waits_for_what_began_meanwhile(world: World, policy: OverlapPolicy) -> None:
    job = guarded(policy, seconds_ago(4 * 3600))
    redriven = await failed(world, await world.claimed(job))
    (second,) = (await world.claim(at_hour(job, world, 1))).claims
    looked = await world.claim(redriven)
    assert (looked.claims, len(looked.next_members)) == ([], 1)
    assert await rows(world, job) == [("DUE", "overlap", False), ("RUNNING", None, False)]
    applied = await world.store.complete([completion(second, RunState.SUCCEEDED)], host_id=world.host_id)
    (woken,) = applied.retries
    (claim,) = (await world.claim(woken)).claims
    assert (claim.key.scheduled_for, claim.series, claim.attempt) == (job.next_run_at, 2, 1)
    assert await rows(world, job) == [("RUNNING", None, False), ("SUCCEEDED", None, False)]


async def test_of_several_one_after_the_other_the_oldest_first(world: World) -> None:
    job = guarded(OverlapPolicy.SKIP, seconds_ago(6 * 3600))
    await world.create(job)
    members = []
    for n in range(3):
        (claim,) = (await world.claim(at_hour(job, world, n))).claims
        members.append(await failed(world, claim))
    ran = []
    todo = list(reversed(members))
    while todo:
        (claim,) = (await world.claim(*todo)).claims
        ran.append(claim.key.scheduled_for)
        assert await world.value("SELECT count(*) FROM runs WHERE state = 'RUNNING'") == 1
        applied = await world.store.complete([completion(claim, RunState.SUCCEEDED)], host_id=world.host_id)
        todo = list(applied.retries)
        assert len(todo) <= 1, "only the next one is woken"
    assert ran == [(job.next_run_at or now()) + n * HOUR for n in range(3)]


async def test_what_waits_lets_the_schedule_go_on_and_is_not_lost(world: World) -> None:
    """A new occurrence and a redriven run in one batch: one of them begins."""
    job = guarded(OverlapPolicy.SKIP, seconds_ago(6 * 3600))
    redriven = await failed(world, await world.claimed(job))
    (claim,) = (await world.claim(at_hour(job, world, 1), redriven)).claims
    assert claim.key.ordinal == 0
    counts = sorted(row[:2] for row in await rows(world, job))
    assert counts == [("DUE", "overlap"), ("RUNNING", None)]


async def test_many_claimers_of_all_kinds_never_let_two_run(world: World) -> None:
    job = guarded(OverlapPolicy.SKIP, seconds_ago(30 * 3600))
    await world.create(job)
    members = []
    for n in range(6):
        (claim,) = (await world.claim(at_hour(job, world, n))).claims
        members.append(await failed(world, claim))
    for _ in range(10):
        await world.rows("UPDATE runs SET timer_at = now() WHERE state = 'DUE' RETURNING 1")
        due = (await world.job(job)).next_run_at
        assert due is not None
        new = at_hour(job, world, (due - (job.next_run_at or due)) // HOUR)
        batches = [*([member] for member in members), [new], [*members, new]]
        await asyncio.gather(*(world.claim(*batch) for batch in batches))
        assert await world.value("SELECT count(*) FROM runs WHERE state = 'RUNNING'") == 1
        await world.rows(
            "UPDATE runs SET state = 'SUCCEEDED', finished_at = now(), lease_expires_at = NULL"
            " WHERE state = 'RUNNING' RETURNING 1"
        )


async def test_a_backfilled_run_waits_for_what_began_meanwhile(world: World) -> None:
    first = seconds_ago(5 * 3600)
    at = (now() + HOUR).replace(microsecond=0)
    job = new_job(at, every(3600, first, overlap_policy=OverlapPolicy.SKIP))
    await world.create(job)
    await world.store.start_backfill(
        world.a, backfill_id=new_id(), job=await world.job(job), from_at=first, until_at=first + HOUR,
        total=1, max_per_second=10, actor="key:test", host_id=world.host_id,
    )  # fmt: skip
    step = await world.store.step_backfill(host_id=world.host_id, now=now(), kept=timedelta(days=3))
    assert step is not None
    await world.rows(
        "UPDATE jobs SET next_run_at = next_run_at - '3 h'::interval, due_at = due_at - '3 h'::interval"
        " RETURNING 1"
    )
    member = at_hour(job, world, -3)
    assert len((await world.claim(member)).claims) == 1
    assert (await world.claim(*step.added)).claims == []
    assert (await rows(world, job))[0][:2] == ("DUE", "overlap")


async def test_an_occurrence_comes_back_when_the_one_before_is_just_changing(
    world: World, cell_database_url: str
) -> None:
    """Passed over, it would neither be asked to stop nor have stopped."""
    job = guarded(OverlapPolicy.CANCEL_PREVIOUS, seconds_ago(4 * 3600))
    first = await world.claimed(job)
    second = at_hour(job, world, 1)
    async with await psycopg.AsyncConnection.connect(cell_database_url) as other:
        await other.execute("SELECT FROM runs WHERE parent_id = %s FOR UPDATE", [job.job_id])
        result = await world.claim(second)
        assert (list(result.claims), result.too_early, list(result.next_members)) == ([], [second], [])
        assert (await world.job(job)).next_run_at == (job.next_run_at or now()) + HOUR
        await other.rollback()
    assert await rows(world, job) == [("RUNNING", None, False)]
    assert len((await world.claim(second)).claims) == 1
    assert await rows(world, job) == [("RUNNING", None, True), ("RUNNING", None, False)]
    assert await world.complete(first, RunState.RETRY_WAIT)
    assert (await world.run(first)).state is RunState.CANCELLED


async def test_a_backfill_waits_for_a_cancel_under_way_and_makes_nothing(
    world: World, cell_database_url: str
) -> None:
    first = seconds_ago(5 * 3600)
    job = new_job((now() + HOUR).replace(microsecond=0), every(3600, first))
    await world.create(job)
    started = await world.store.start_backfill(
        world.a, backfill_id=new_id(), job=await world.job(job), from_at=first, until_at=first + 3 * HOUR,
        total=3, max_per_second=10, actor="key:test", host_id=world.host_id,
    )  # fmt: skip
    async with await psycopg.AsyncConnection.connect(cell_database_url) as other:
        await other.execute("UPDATE jobs SET state = 'CANCELLED', due_at = NULL, next_run_at = NULL")
        step = asyncio.create_task(
            world.store.step_backfill(host_id=world.host_id, now=now(), kept=timedelta(days=3))
        )
        await eventually(lambda: world.value("SELECT count(*) FROM pg_locks WHERE NOT granted"))
        await other.commit()
    done = await step
    assert done is not None
    assert list(done.added) == []
    ended = await world.store.get_backfill(world.a.tenant_id, started.backfill_id)
    assert ended is not None
    assert (ended.state, ended.reason) == ("DONE", "the job was cancelled")
    assert await world.value("SELECT count(*) FROM runs") == 0
