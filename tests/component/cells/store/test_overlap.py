"""What an occurrence does while the one before it has not ended."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from cells.domain.job import OverlapPolicy, TargetRef
from cells.domain.run import RunState
from cells.ports import Claim, Member, NewJob
from cells.pulling import Poller
from tests.component.cells.store.world import (
    World,
    completion,
    every,
    member_of,
    ms,
    new_job,
    now,
    seconds_ago,
)

HOUR = timedelta(hours=1)


def guarded(policy: OverlapPolicy, at: datetime) -> NewJob:
    """Hourly, every occurrence of the last hours still to run."""
    return new_job(at, every(3600, at, overlap_policy=policy, misfire_policy="RUN_ALL"))


def at_hour(job: NewJob, world: World, n: int) -> Member:
    at = (job.next_run_at or now()) + n * HOUR
    return Member(
        tenant_id=world.a.tenant_id, parent_id=job.job_id, scheduled_for=int(at.timestamp()), generation=1,
        priority=2, due_ms=ms(at), shard=job.shard,
    )  # fmt: skip


async def rows(world: World, job: NewJob) -> list[tuple[Any, ...]]:
    query = "SELECT state, reason, cancel_requested FROM runs WHERE parent_id = %s ORDER BY scheduled_for"
    return await world.rows(query, job.job_id)


async def test_allow_runs_beside_it(world: World) -> None:
    job = guarded(OverlapPolicy.ALLOW, seconds_ago(3 * 3600))
    await world.claimed(job)
    assert len((await world.claim(at_hour(job, world, 1))).claims) == 1
    assert [row[0] for row in await rows(world, job)] == ["RUNNING", "RUNNING"]


async def test_skip_is_recorded_and_ends_with_the_run(world: World) -> None:
    job = guarded(OverlapPolicy.SKIP, seconds_ago(3 * 3600))
    first = await world.claimed(job)
    second = await world.claim(at_hour(job, world, 1))
    assert second.claims == []
    assert [member.scheduled_for for member in second.next_members] == [at_hour(job, world, 2).scheduled_for]
    assert await rows(world, job) == [("RUNNING", None, False), ("SKIPPED", "overlap", False)]
    assert await world.complete(first, RunState.RETRY_WAIT)
    third = await world.claim(at_hour(job, world, 2))
    assert third.claims == [], "a run that will be tried again has not ended"
    retry = await world.rows("SELECT scheduled_for FROM runs WHERE state = 'RETRY_WAIT'")
    assert len(retry) == 1


async def test_one_is_buffered_and_woken_by_the_end(world: World) -> None:
    job = guarded(OverlapPolicy.BUFFER_ONE, seconds_ago(4 * 3600))
    first = await world.claimed(job)
    buffered = await world.claim(at_hour(job, world, 1))
    assert buffered.claims == []
    (waiting,) = [member for member in buffered.next_members if member.is_run]
    assert waiting.scheduled_for == at_hour(job, world, 1).scheduled_for
    await world.claim(at_hour(job, world, 2))
    assert await rows(world, job) == [
        ("RUNNING", None, False), ("DUE", "overlap", False), ("SKIPPED", "overlap", False),
    ]  # fmt: skip
    await world.rows("UPDATE runs SET timer_at = now() WHERE state = 'DUE' RETURNING 1")
    looked = await world.claim(waiting)
    assert (looked.claims, len(looked.next_members)) == ([], 1), "it looks again later"
    applied = await world.store.complete([_done(first)], host_id=world.host_id)
    (woken,) = applied.retries
    assert (woken.is_run, woken.scheduled_for) == (True, waiting.scheduled_for)
    assert woken.generation != looked.next_members[0].generation
    (claim,) = (await world.claim(woken)).claims
    assert (await rows(world, job))[1] == ("RUNNING", None, False)
    assert await world.complete(claim, RunState.SUCCEEDED)


async def test_a_buffered_one_finds_the_end_by_itself(world: World) -> None:
    job = guarded(OverlapPolicy.BUFFER_ONE, seconds_ago(2 * 3600))
    await world.claimed(job)
    buffered = await world.claim(at_hour(job, world, 1))
    (waiting,) = [member for member in buffered.next_members if member.is_run]
    await world.rows(
        "UPDATE runs SET state = 'FAILED', finished_at = now(), lease_expires_at = NULL"
        " WHERE state = 'RUNNING' RETURNING 1"
    )
    await world.rows("UPDATE runs SET timer_at = now() WHERE state = 'DUE' RETURNING 1")
    assert len((await world.claim(waiting)).claims) == 1


async def test_the_previous_one_is_asked_to_stop(world: World) -> None:
    job = guarded(OverlapPolicy.CANCEL_PREVIOUS, seconds_ago(4 * 3600))
    first = await world.claimed(job)
    assert await world.complete(first, RunState.RETRY_WAIT)
    (second,) = (await world.claim(at_hour(job, world, 1))).claims
    (third,) = (await world.claim(at_hour(job, world, 2))).claims
    assert await rows(world, job) == [
        ("CANCELLED", "displaced by the next occurrence", True),
        ("RUNNING", None, True),
        ("RUNNING", None, False),
    ]  # fmt: skip
    assert await world.complete(second, RunState.SUCCEEDED)
    assert (await world.run(second)).state is RunState.SUCCEEDED_AFTER_CANCEL
    assert (await world.run(third)).state is RunState.RUNNING
    ended = [row for body in await world.journal() for row in body.finished if row[5] == "CANCELLED"]
    assert [row[2] for row in ended] == [at_hour(job, world, 0).scheduled_for]


async def test_many_claimers_never_let_two_run(world: World) -> None:
    """Eight claimers at once for each occurrence, ends in between: at most one is under way."""
    at = seconds_ago(40 * 3600)
    job = guarded(OverlapPolicy.SKIP, at)
    await world.create(job)
    ran = 0
    for n in range(20):
        results = await asyncio.gather(*(world.claim(at_hour(job, world, n)) for _ in range(8)))
        claims = [claim for result in results for claim in result.claims]
        ran += len(claims)
        assert await world.value("SELECT count(*) FROM runs WHERE state = 'RUNNING'") <= 1
        if n % 3 == 2:
            running = await world.rows("SELECT scheduled_for FROM runs WHERE state = 'RUNNING'")
            if running:
                await world.rows(
                    "UPDATE runs SET state = 'SUCCEEDED', finished_at = now(), lease_expires_at = NULL"
                    " WHERE state = 'RUNNING' RETURNING 1"
                )
    counts = dict(await world.rows("SELECT state, count(*) FROM runs GROUP BY state"))
    assert counts.get("SUCCEEDED", 0) + counts.get("RUNNING", 0) == ran
    assert sum(counts.values()) == 20, "every occurrence is accounted for"


async def test_a_policy_given_later_counts_what_runs_already(world: World) -> None:
    job = guarded(OverlapPolicy.ALLOW, seconds_ago(3 * 3600))
    await world.claimed(job)
    row = await world.job(job)
    edited = new_job(row.next_run_at, job_id=job.job_id, definition_=every(
        3600, job.next_run_at or now(), overlap_policy=OverlapPolicy.SKIP, misfire_policy="RUN_ALL"
    ))  # fmt: skip
    await world.store.edit_job(
        world.a, base_version=1, seen_next_run_at=row.next_run_at, job=edited, host_id=world.host_id
    )
    assert (await world.claim(member_of(edited, world.a.tenant_id, version=2))).claims == []


def pulled(policy: OverlapPolicy, at: datetime) -> NewJob:
    """The same, its work polled for."""
    target = TargetRef(type="TASK_QUEUE", task_queue="ledger")
    return new_job(at, every(3600, at, overlap_policy=policy, misfire_policy="RUN_ALL", target=target))


async def poll(world: World) -> list[Claim]:
    poller = Poller(tenant_id=world.a.tenant_id, task_queue="ledger", worker_id="w-1", count=10)
    (tasks,) = await world.store.poll([poller], host_id=world.host_id)
    return [task.claim for task in tasks]


async def test_work_that_waits_for_a_worker_has_not_ended(world: World) -> None:
    job = pulled(OverlapPolicy.SKIP, seconds_ago(4 * 3600))
    await world.create(job)
    offered = await world.claim(at_hour(job, world, 0))
    assert (offered.claims, len(offered.offered)) == ([], 1)
    await world.claim(at_hour(job, world, 1))
    assert [row[:2] for row in await rows(world, job)] == [("READY", None), ("SKIPPED", "overlap")]
    (held,) = await poll(world)
    await world.claim(at_hour(job, world, 2))
    assert [row[0] for row in await rows(world, job)] == ["RUNNING", "SKIPPED", "SKIPPED"]
    assert await world.complete(held, RunState.SUCCEEDED)
    await world.claim(at_hour(job, world, 3))
    assert [row[0] for row in await rows(world, job)] == ["SUCCEEDED", "SKIPPED", "SKIPPED", "READY"]


async def test_buffered_work_becomes_ready_when_a_worker_is_done(world: World) -> None:
    job = pulled(OverlapPolicy.BUFFER_ONE, seconds_ago(4 * 3600))
    await world.create(job)
    await world.claim(at_hour(job, world, 0))
    await world.claim(at_hour(job, world, 1))
    assert [row[:2] for row in await rows(world, job)] == [("READY", None), ("DUE", "overlap")]
    (held,) = await poll(world)
    applied = await world.store.complete([_done(held)], host_id=world.host_id)
    (woken,) = applied.retries
    assert len((await world.claim(woken)).offered) == 1
    assert [row[:2] for row in await rows(world, job)] == [("SUCCEEDED", None), ("READY", None)]
    assert [claim.key.scheduled_for for claim in await poll(world)] == [held.key.scheduled_for + HOUR]


async def test_the_next_occurrence_displaces_offered_work_and_asks_a_worker_to_stop(world: World) -> None:
    job = pulled(OverlapPolicy.CANCEL_PREVIOUS, seconds_ago(4 * 3600))
    await world.create(job)
    await world.claim(at_hour(job, world, 0))
    await world.claim(at_hour(job, world, 1))
    assert await rows(world, job) == [
        ("CANCELLED", "displaced by the next occurrence", True), ("READY", None, False),
    ]  # fmt: skip
    await poll(world)
    await world.claim(at_hour(job, world, 2))
    assert [(row[0], row[2]) for row in await rows(world, job)] == [
        ("CANCELLED", True), ("RUNNING", True), ("READY", False),
    ]  # fmt: skip


def _done(claim: Any) -> Any:
    return completion(claim, RunState.SUCCEEDED)
