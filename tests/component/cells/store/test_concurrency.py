"""Concurrency keys: never more than the limit RUNNING, oldest first, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from cells.domain.job import JobState, OverlapPolicy, TargetRef, TargetType
from cells.domain.run import RunState
from cells.ports import Claim, Member
from cells.pulling import Poller
from cells.store.database import fetch_row
from cells.store.fronts import HeldFronts
from cells.store.queries import QUERIES
from tests.component.cells.store.world import (
    World,
    completion,
    every,
    member_of,
    new_job,
    now,
    once,
    seconds_ago,
)

pytestmark = pytest.mark.asyncio


def keyed(at: Any, limit: int = 1, key: str = "k", **more: Any) -> Any:
    return new_job(at, once(at, concurrency_key=key, max_concurrent=limit, **more))


async def states(world: World) -> dict[str, int]:
    return dict(await world.rows("SELECT coalesce(reason, state), count(*) FROM runs GROUP BY 1"))


async def test_over_the_limit_the_oldest_go_first(world: World) -> None:
    jobs = [keyed(seconds_ago(100 - i), 2) for i in range(5)]
    await world.create(*jobs)
    first = await world.claim(*(member_of(job, world.a.tenant_id) for job in reversed(jobs)))
    assert [c.key.parent_id for c in sorted(first.claims, key=lambda c: c.due_ms)] == [
        job.job_id for job in jobs[:2]
    ]
    assert await states(world) == {"RUNNING": 2, "concurrency": 3}
    assert {(await world.job(job)).state for job in jobs} == {JobState.DONE}
    waiting = await world.rows(
        "SELECT state, attempt, epoch, lease_expires_at FROM runs WHERE reason IS NOT NULL"
    )
    assert set(waiting) == {("DUE", 0, 0, None)}

    applied = await world.store.complete(
        [completion(first.claims[0], RunState.SUCCEEDED, concurrency_key="k")], host_id=world.host_id
    )
    (woken,) = applied.retries
    assert woken.parent_id == jobs[2].job_id
    second = await world.claim(woken)
    (claim,) = second.claims
    assert (claim.attempt, claim.series, claim.epoch >> 20) == (1, 1, 3)
    assert await states(world) == {"RUNNING": 2, "SUCCEEDED": 1, "concurrency": 2}


async def test_one_that_is_newer_does_not_overtake(world: World) -> None:
    old, older, new = keyed(seconds_ago(50)), keyed(seconds_ago(60)), keyed(seconds_ago(10))
    await world.create(old, older, new)
    held = (await world.claim(member_of(older, world.a.tenant_id))).claims
    await world.claim(member_of(old, world.a.tenant_id))
    # Ended behind everybody's back: nobody is woken.
    await world.store.complete([completion(held[0], RunState.SUCCEEDED)], host_id=world.host_id)
    result = await world.claim(member_of(new, world.a.tenant_id))
    assert result.claims == []
    assert [m.parent_id for m in result.next_members] == [old.job_id]
    assert [c.key.parent_id for c in (await world.claim(*result.next_members)).claims] == [old.job_id]


async def test_keys_tenants_and_jobs_without_one_do_not_mind_each_other(world: World) -> None:
    at = seconds_ago(5)
    jobs = [keyed(at), keyed(at, key="other"), new_job(at), new_job(at)]
    await world.create(*jobs)
    theirs = keyed(at)
    await world.create(theirs, fence=world.b)
    members = [member_of(job, world.a.tenant_id) for job in jobs] + [member_of(theirs, world.b.tenant_id)]
    assert len((await world.claim(*members)).claims) == 5


async def test_a_retry_gives_its_place_away_and_asks_for_it_again(world: World) -> None:
    first, second = keyed(seconds_ago(20)), keyed(seconds_ago(10))
    await world.create(first, second)
    (claim,) = (await world.claim(*(member_of(job, world.a.tenant_id) for job in (first, second)))).claims
    applied = await world.store.complete(
        [completion(claim, RunState.RETRY_WAIT, concurrency_key="k", timer_at=now() + timedelta(hours=1))],
        host_id=world.host_id,
    )
    retry, woken = applied.retries
    assert [c.key.parent_id for c in (await world.claim(woken)).claims] == [second.job_id]
    await world.sql.execute("UPDATE runs SET timer_at = now() WHERE state = 'RETRY_WAIT'")
    assert (await world.claim(retry)).claims == []
    run = await world.run(claim)
    assert (run.state, run.reason, run.attempt) == ("RETRY_WAIT", "concurrency", 1)


async def test_a_dead_holders_place_comes_back(world: World) -> None:
    first, second = keyed(seconds_ago(20)), keyed(seconds_ago(10))
    await world.create(first, second)
    dying = await world.store.register_host(name="dying", roles=["executor"], lease_ms=60_000)
    await world.claim(*(member_of(job, world.a.tenant_id) for job in (first, second)), host_id=dying.host_id)
    assert await world.store.wake_parked(host_id=world.host_id) == []
    await world.sql.execute("UPDATE runs SET deaths = 9 WHERE state = 'RUNNING'")
    await world.sql.execute("UPDATE hosts SET lease_expires_at = now() - interval '1 s' WHERE name = 'dying'")
    assert await world.store.reap(host_id=world.host_id) == []
    assert await states(world) == {"poison": 1, "concurrency": 1}
    (woken,) = await world.store.wake_parked(host_id=world.host_id)
    assert woken.parent_id == second.job_id
    assert len((await world.claim(woken)).claims) == 1


async def test_a_waiting_one_can_be_cancelled(world: World) -> None:
    first, second = keyed(seconds_ago(20)), keyed(seconds_ago(10))
    await world.create(first, second)
    await world.claim(*(member_of(job, world.a.tenant_id) for job in (first, second)))
    (row,) = await world.store.list_runs(world.a.tenant_id, job_id=second.job_id)
    cancelled = await world.store.cancel_run(world.a, key=row.key, actor="key:test", host_id=world.host_id)
    assert cancelled.state == "CANCELLED"


async def test_a_recurring_job_goes_on_while_its_run_waits(world: World) -> None:
    start = seconds_ago(7200)
    blocker = keyed(seconds_ago(9000))
    job = new_job(start, every(3600, start, concurrency_key="k", misfire_policy="RUN_ALL"))
    await world.create(blocker, job)
    await world.claim(member_of(blocker, world.a.tenant_id))
    result = await world.claim(member_of(job, world.a.tenant_id))
    assert (result.claims, len(result.next_members)) == ([], 1)
    assert (await world.job(job)).next_run_at == start + timedelta(hours=1)


async def test_counting_places_does_not_walk_what_has_ended(world: World, cell_database_url: str) -> None:
    """An open transaction keeps the entries of ended runs in the index of places; whoever lives is counted,
    also one whose lease ended long ago."""
    first, second, third = (keyed(seconds_ago(30 - n), 2) for n in range(3))
    await world.create(first, second, third)
    (claim,) = (await world.claim(member_of(first, world.a.tenant_id))).claims
    with psycopg.connect(cell_database_url) as another:
        another.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        another.execute("SELECT count(*) FROM runs")
        for _ in range(20):
            await world.sql.execute(
                b"DO $$ BEGIN FOR i IN 1..100 LOOP UPDATE runs SET lease_expires_at = clock_timestamp()"
                b" - interval '1 hour' + i * interval '1 ms'; END LOOP; END $$"
            )
        await world.sql.execute(b"UPDATE runs SET lease_expires_at = clock_timestamp() + interval '1 minute'")
        world.store._held = HeldFronts()
        assert await _pages_of_places(world) > 60
        assert await _pages_of_places(world) < 30
        # Its lease ends without an end of it: it is counted for as long as nobody has taken it back.
        await world.sql.execute(b"UPDATE runs SET lease_expires_at = clock_timestamp() - interval '1 second'")
        assert len((await world.claim(member_of(second, world.a.tenant_id))).claims) == 1
        assert (await world.claim(member_of(third, world.a.tenant_id))).claims == []
        another.rollback()
    await world.complete(claim, RunState.SUCCEEDED)


async def _pages_of_places(world: World) -> int:
    """How many pages a look at the places of the key reads; and where the next one begins."""
    key = (world.a.tenant_id, "k")
    began = time.monotonic()
    (since,) = world.store._held.begin([key], began)
    asked = {"tenants": [key[0]], "keys": [key[1]], "since": [since]}
    question = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + QUERIES["concurrency_held"]
    async with world.store._database.transaction() as connection:
        ((plan,),) = await (await connection.execute(question, asked)).fetchall()
        _, _, first, at = await fetch_row(connection, "concurrency_held", asked)
    world.store._held.ended(key, since, first, at=at, now=began)
    top = plan[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


async def test_several_claimers_never_exceed_the_limit_and_leave_nothing(world: World) -> None:
    """Claims, ends, failures and dead claimers in any order."""
    rng = random.Random(7)
    limits = {"a": 1, "b": 3, "c": 7}
    jobs = []
    for i in range(120):
        key = rng.choice("abc")
        jobs.append(keyed(seconds_ago(300 - i), limits[key], key=key, name=key))
    await world.create(*jobs)
    pool: list[Member] = [member_of(job, world.a.tenant_id) for job in jobs]
    rng.shuffle(pool)
    held: list[Claim] = []
    most = dict.fromkeys(limits, 0)
    done = 0

    async def watch() -> None:
        while done < len(jobs):
            found = await world.rows(
                "SELECT concurrency_key, count(*)::int FROM runs WHERE state = 'RUNNING' GROUP BY 1"
            )
            for key, count in found:
                most[key] = max(most[key], count)
            await asyncio.sleep(0)

    async def work() -> None:
        nonlocal done
        while done < len(jobs):
            batch, pool[:] = pool[:10], pool[10:]
            if batch:
                result = await world.claim(*batch)
                held.extend(result.claims)
                pool.extend([*result.next_members, *result.too_early])
            ending, held[:] = held[:4], held[4:]
            if ending:
                ended = [
                    completion(
                        c,
                        rng.choice([RunState.SUCCEEDED, RunState.SUCCEEDED, RunState.RETRY_WAIT]),
                        concurrency_key=c.definition.concurrency_key,
                        timer_at=now(),
                    )
                    for c in ending
                ]
                applied = await world.store.complete(ended, host_id=world.host_id)
                assert all(applied.applied)
                done += sum(c.state is RunState.SUCCEEDED for c in ended)
                pool.extend(applied.retries)
            if not batch and not ending:
                pool.extend(await world.store.wake_parked(host_id=world.host_id))

    async with asyncio.timeout(120):
        await asyncio.gather(watch(), *(work() for _ in range(4)))
    assert await states(world) == {"SUCCEEDED": 120}
    assert all(most[key] <= limit for key, limit in limits.items()), most
    assert most["a"] == 1


async def test_the_database_itself_saw_no_more_than_the_limit(world: World) -> None:
    """Claimers that all come at once, on connections of their own."""
    jobs = [keyed(seconds_ago(60 - i % 30), 2) for i in range(60)]
    await world.create(*jobs)
    results = await asyncio.gather(
        *(world.claim(*(member_of(job, world.a.tenant_id) for job in jobs[i::6])) for i in range(6))
    )
    assert sum(len(result.claims) for result in results) == 2
    assert await states(world) == {"RUNNING": 2, "concurrency": 58}


async def test_tasks_of_workers_take_a_place_when_they_are_polled(world: World) -> None:
    queue = TargetRef(type=TargetType.TASK_QUEUE, target_id="", task_queue="ledger", lease_seconds=60)
    jobs = [keyed(seconds_ago(100 - i), target=queue) for i in range(10)]
    free = new_job(seconds_ago(5), once(seconds_ago(5), target=queue))
    await world.create(*jobs, free)
    offered = await world.claim(*(member_of(job, world.a.tenant_id) for job in (*jobs, free)))
    assert (offered.claims, await states(world)) == ([], {"READY": 11})

    async def poll() -> list[Claim]:
        poller = Poller(tenant_id=world.a.tenant_id, task_queue="ledger", worker_id="w", count=2)
        (tasks,) = await world.store.poll([poller], host_id=world.host_id)
        return [task.claim for task in tasks]

    (first,) = await poll()
    assert first.key.parent_id == jobs[0].job_id
    (second,) = await poll()  # behind all that have no place
    assert second.key.parent_id == free.job_id
    assert await states(world) == {"RUNNING": 2, "concurrency": 9}

    ended = completion(first, RunState.SUCCEEDED, concurrency_key="k")
    (woken,) = (await world.store.complete([ended], host_id=world.host_id)).retries
    assert woken.parent_id == jobs[1].job_id
    await world.claim(woken)
    (third,) = await poll()
    assert (third.key.parent_id, third.attempt) == (jobs[1].job_id, 1)
    assert await states(world) == {"RUNNING": 2, "SUCCEEDED": 1, "concurrency": 8}


@pytest.mark.parametrize(("policy", "expected"), [("SKIP", "SKIPPED"), ("BUFFER_ONE", "DUE")])
async def test_an_occurrence_that_waits_for_a_place_is_under_way_for_the_next(
    world: World, policy: str, expected: str
) -> None:
    start = seconds_ago(7200)
    blocker = keyed(seconds_ago(9000))
    job = new_job(
        start,
        every(
            3600, start, concurrency_key="k", misfire_policy="RUN_ALL", overlap_policy=OverlapPolicy(policy)
        ),
    )
    await world.create(blocker, job)
    await world.claim(member_of(blocker, world.a.tenant_id))
    (following,) = (await world.claim(member_of(job, world.a.tenant_id))).next_members
    await world.claim(following)
    rows = await world.rows(
        "SELECT state, reason FROM runs WHERE parent_id = %s ORDER BY scheduled_for", job.job_id
    )
    assert rows == [("DUE", "concurrency"), (expected, "overlap")]


async def test_of_a_paused_tenant_nothing_is_claimed_and_nothing_is_lost(world: World) -> None:
    """What fell due in the pause follows the misfire policy afterwards."""
    start = seconds_ago(7200)
    job = new_job(start, every(3600, start))
    await world.create(job)
    await world.put_tenant(world.a, version=2, paused=True)
    member = member_of(job, world.a.tenant_id)
    held = await world.claim(member)
    assert (list(held.claims), held.stale, held.too_early) == ([], [], [member])
    await world.put_tenant(world.a, version=3, paused=False)
    (claim,) = (await world.claim(member)).claims
    assert claim.key.scheduled_for == start + timedelta(hours=2)
    assert dict(await world.rows("SELECT state, skipped FROM runs")) == {"RUNNING": 0, "SKIPPED": 2}
