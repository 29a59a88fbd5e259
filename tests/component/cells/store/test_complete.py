"""How attempts end: completed, released, reaped; by the right holder only."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from cells.domain.job import JobState
from cells.domain.run import POISON_DEATHS, AttemptOutcome, RunState
from cells.ports import Claim, LeaseLost, Member
from cells.store.queries import QUERIES
from tests.component.cells.store.world import (
    World,
    completion,
    member_of,
    ms,
    new_job,
    now,
    once,
    seconds_ago,
)
from tests.waiting import eventually


@pytest.mark.parametrize(
    "state",
    [RunState.SUCCEEDED, RunState.FAILED, RunState.UNKNOWN, RunState.CANCELLED],
)
async def test_a_final_outcome_ends_the_run(world: World, state: RunState) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    assert await world.complete(claim, state, reason="because", egress_bytes=7)
    run = await world.run(claim)
    assert (run.state, run.timer_at, run.lease_expires_at, run.reason) == (state, None, None, "because")
    assert run.finished_at is not None
    assert run.started_at is not None
    assert [(a.number, a.epoch) for a in run.attempts] == [(1, claim.epoch)]
    dead = await world.store.list_dlq(
        world.a.tenant_id, target_id=None, fingerprint=None, after=None, limit=10
    )
    assert [d["key"] for d in dead] == ([claim.key] if state in (RunState.FAILED, RunState.UNKNOWN) else [])
    *_, body = await world.journal()
    tenant = world.a.tenant_id.hex
    assert {(metric, quantity) for t, metric, _, quantity in body.counts if t == tenant} == {
        ("job_runs", 1),
        ("run_attempts", 1),
        ("egress_bytes", 7),
    }
    assert [entry[5] for entry in body.finished] == [state.value]


async def test_a_retry_waits_for_its_time(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    at = now() + timedelta(seconds=20)
    applied = await world.store.complete(
        [completion(claim, RunState.RETRY_WAIT, timer_at=at)], host_id=world.host_id
    )
    assert applied.retries == [
        Member(
            tenant_id=claim.tenant_id,
            parent_id=claim.key.parent_id,
            scheduled_for=int(claim.key.scheduled_for.timestamp()),
            is_run=True,
            generation=65537,
            priority=2,
            due_ms=math.ceil(at.timestamp() * 1000),
            shard=claim.shard,
        )
    ]
    run = await world.run(claim)
    assert (run.state, run.timer_at, run.finished_at) == (RunState.RETRY_WAIT, at, None)
    result = await world.claim(*applied.retries)
    assert (result.claims, result.too_early) == ((), list(applied.retries))
    *_, body = await world.journal()
    assert body.counts == [(world.a.tenant_id.hex, "run_attempts", "HOME_ASYNC", 1)]


@pytest.mark.parametrize(
    ("reported", "becomes"),
    [
        (RunState.SUCCEEDED, RunState.SUCCEEDED_AFTER_CANCEL),
        (RunState.RETRY_WAIT, RunState.CANCELLED),
        (RunState.FAILED, RunState.FAILED),
    ],
)
async def test_a_cancel_that_came_meanwhile_decides(
    world: World, reported: RunState, becomes: RunState
) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    run = await world.store.cancel_run(world.a, key=claim.key, actor="key:x", host_id=world.host_id)
    assert (run.state, run.cancel_requested) == (RunState.RUNNING, True)
    applied = await world.store.complete([completion(claim, reported)], host_id=world.host_id)
    assert (list(applied.applied), applied.retries) == ([True], [])
    run = await world.run(claim)
    assert run.state is becomes
    assert run.finished_at is not None


async def test_an_old_epoch_changes_nothing(world: World) -> None:
    old = await world.claimed(new_job(seconds_ago(2)))
    applied = await world.store.complete([completion(old, RunState.RETRY_WAIT)], host_id=world.host_id)
    (new,) = (await world.claim(*applied.retries)).claims
    before = await world.everything()
    for state in (RunState.SUCCEEDED, RunState.FAILED, RunState.RETRY_WAIT):
        assert not await world.complete(old, state)
    assert await world.store.release([old], host_id=world.host_id) == []
    assert await world.everything() == before
    assert await world.complete(new, RunState.SUCCEEDED)


async def test_the_second_of_two_completions_changes_nothing(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    outcomes = await asyncio.gather(*(world.complete(claim, RunState.SUCCEEDED) for _ in range(6)))
    assert sorted(outcomes) == [False] * 5 + [True]
    assert len((await world.run(claim)).attempts) == 1
    assert sum(len(body.finished) for body in await world.journal()) == 1


async def test_one_stale_completion_does_not_disturb_the_others(world: World) -> None:
    claims = [await world.claimed(new_job(seconds_ago(2))) for _ in range(5)]
    assert await world.complete(claims[2], RunState.SUCCEEDED)
    applied = await world.store.complete(
        [completion(c, RunState.SUCCEEDED) for c in claims], host_id=world.host_id
    )
    assert list(applied.applied) == [True, True, False, True, True]


@pytest.mark.parametrize("state", ["SEALED", "MOVED"])
async def test_a_tenant_that_moved_away_is_not_written(world: World, state: str) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    await world.put_tenant(world.a, state, version=2)
    before = await world.everything()
    assert not await world.complete(claim, RunState.SUCCEEDED)
    assert await world.store.release([claim], host_id=world.host_id) == []
    await world.sql.execute(b"UPDATE hosts SET lease_expires_at = now()")
    other = await world.store.register_host(name="h2", roles=[], lease_ms=60_000)
    assert await world.store.reap(host_id=other.host_id) == []
    assert await world.everything() == before


@pytest.mark.parametrize("state", ["BARRIER", "SUSPENDED"])
async def test_the_outcome_of_a_call_that_was_made_is_a_fact(world: World, state: str) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    await world.put_tenant(world.a, state, version=2)
    assert await world.complete(claim, RunState.SUCCEEDED)


async def test_a_lapsed_host_completes_and_releases_nothing(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    await world.sql.execute(b"UPDATE hosts SET lease_expires_at = now()")
    before = await world.everything()
    with pytest.raises(LeaseLost):
        await world.complete(claim, RunState.FAILED)
    with pytest.raises(LeaseLost):
        await world.store.release([claim], host_id=world.host_id)
    with pytest.raises(LeaseLost):
        await world.store.reap(host_id=world.host_id)
    assert await world.everything() == before


async def test_gone_marks_the_target(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    assert await world.complete(claim, RunState.FAILED, status=410, target_gone=True)
    target = await world.store.get_target(world.a.tenant_id, claim.definition.target.target_id)
    other = await world.store.get_target(world.b.tenant_id, claim.definition.target.target_id)
    assert target is not None
    assert (target.state, target.version) == ("GONE", 2)
    assert other is not None
    assert other.state == "APPROVED"


async def test_a_released_claim_is_due_at_once_and_costs_no_attempt(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    (member,) = await world.store.release([claim], host_id=world.host_id)
    run = await world.run(claim)
    assert (run.state, run.attempt, run.attempts) == (RunState.RETRY_WAIT, 0, [])
    (again,) = (await world.claim(member)).claims
    assert (again.attempt, again.epoch) == (1, claim.epoch + 1)
    assert not any(body.counts for body in await world.journal())


async def test_a_crash_between_claim_and_completion_is_repaired(world: World) -> None:
    """The dead host's runs are due again at once; a new claim outranks what it may still send."""
    job = new_job(seconds_ago(2), once(seconds_ago(2)))
    claim = await world.claimed(job)
    other = await world.store.register_host(name="h2", roles=[], lease_ms=60_000)
    assert await world.store.reap(host_id=other.host_id) == []
    await world.sql.execute(b"UPDATE hosts SET lease_expires_at = now() WHERE host_id = %s", [world.host_id])
    (member,) = await world.store.reap(host_id=other.host_id)
    run = await world.run(claim)
    assert (run.state, run.attempt) == (RunState.RETRY_WAIT, 0)
    (lost,) = run.attempts
    assert (lost.outcome, lost.number, lost.epoch, lost.host) == (
        AttemptOutcome.LOST,
        1,
        claim.epoch,
        "host-1",
    )
    assert lost.claimed_at.endswith("Z")
    assert lost.finished_at >= lost.claimed_at
    (again,) = (await world.claim(member, host_id=other.host_id)).claims
    assert (again.attempt, again.epoch) == (1, claim.epoch + 1)
    late = completion(claim, RunState.SUCCEEDED)
    assert list((await world.store.complete([late], host_id=other.host_id)).applied) == [False]
    done = completion(again, RunState.SUCCEEDED)
    assert list((await world.store.complete([done], host_id=other.host_id)).applied) == [True]
    assert (await world.job(job)).state is JobState.DONE


async def test_a_run_whose_lease_ended_is_reclaimed_after_the_margin(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    await world.sql.execute(b"UPDATE runs SET lease_expires_at = clock_timestamp() - interval '4 s'")
    assert await world.store.reap(host_id=world.host_id) == []
    await world.sql.execute(b"UPDATE runs SET lease_expires_at = clock_timestamp() - interval '6 s'")
    assert len(await world.store.reap(host_id=world.host_id)) == 1
    assert (await world.run(claim)).state is RunState.RETRY_WAIT


async def test_of_live_hosts_only_leases_that_ended_lately_are_looked_at(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    await world.sql.execute(b"UPDATE runs SET lease_expires_at = clock_timestamp() - interval '50 s'")
    assert await world.store.reap(host_id=world.host_id, back_ms=40_000) == []
    # Nor by the auditor: whose lease has ended is the reaper's.
    assert await world.store.reap_orphans(host_id=world.host_id, held=[], older_than_ms=0) == []
    assert (await world.run(claim)).state is RunState.RUNNING
    assert len(await world.store.reap(host_id=world.host_id, back_ms=60_000)) == 1


async def test_looking_for_lost_runs_does_not_walk_what_has_ended(
    world: World, cell_database_url: str
) -> None:
    """An open transaction keeps the entries of ended runs in the index of leases."""
    claim = await world.claimed(new_job(seconds_ago(2)))
    ended = 2000
    with psycopg.connect(cell_database_url) as another:
        another.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        another.execute("SELECT count(*) FROM runs")
        for _ in range(ended // 100):
            # As many claims whose leases have been over for a minute, each entry dead by the next one.
            await world.sql.execute(
                b"DO $$ BEGIN FOR i IN 1..100 LOOP UPDATE runs SET lease_expires_at = clock_timestamp()"
                b" - interval '1 minute' - i * interval '1 ms'; END LOOP; END $$"
            )
        await world.sql.execute(b"UPDATE runs SET lease_expires_at = clock_timestamp() + interval '1 minute'")
        looks = (
            {"auditor": None, "back_ms": 31_000},
            {"auditor": world.host_id, "back_ms": 0},
        )
        for look in looks:
            assert await _pages_of_suspects(world, look) < 60
        assert await _pages_of_suspects(world, {"auditor": None, "back_ms": 366 * 86_400_000}) > 60
        another.rollback()
    assert (await world.run(claim)).state is RunState.RUNNING


async def _pages_of_suspects(world: World, look: dict[str, Any]) -> int:
    """How many pages `reap_suspects` reads."""
    asked = {**look, "older_than_ms": 0, "limit": 1000}
    asked |= {name: [] for name in ("tenants", "parents", "instants", "ordinals", "epochs")}
    question = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + QUERIES["reap_suspects"]
    async with world.store._database.transaction() as connection:
        cursor = await connection.execute(question, asked)
        ((plan,),) = await cursor.fetchall()
    top = plan[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


async def test_of_many_reapers_one_takes_each_run(world: World) -> None:
    for _ in range(20):
        await world.claimed(new_job(seconds_ago(2)))
    other = await world.store.register_host(name="h2", roles=[], lease_ms=60_000)
    await world.store.retire_host(host_id=world.host_id)
    found = await asyncio.gather(*(world.store.reap(host_id=other.host_id, limit=7) for _ in range(8)))
    ids = [member.parent_id for members in found for member in members]
    assert len(ids) == len(set(ids)) == 20
    assert max(len(members) for members in found) <= 7


async def test_a_run_whose_executors_keep_dying_is_poison(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    await world.sql.execute(b"UPDATE runs SET deaths = %s", [POISON_DEATHS - 1])
    other = await world.store.register_host(name="h2", roles=[], lease_ms=60_000)
    await world.store.retire_host(host_id=world.host_id)
    assert await world.store.reap(host_id=other.host_id) == []
    run = await world.run(claim)
    assert (run.state, run.reason) == (RunState.FAILED, "poison")
    (dead,) = await world.store.list_dlq(
        world.a.tenant_id, target_id=None, fingerprint=None, after=None, limit=10
    )
    assert (dead["reason"], dead["key"]) == ("POISON", claim.key)
    ((group,), _) = await world.store.dlq_groups(world.a.tenant_id, limit=10)
    assert (group["count"], group["fingerprint"]) == (1, dead["fingerprint"])


async def test_a_letter_of_the_same_series_is_open_again(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    assert await world.complete(claim, RunState.FAILED)
    await world.sql.execute(b"UPDATE dlq SET state = 'PURGED', reason = 'x'")
    await world.sql.execute(
        b"UPDATE runs SET state = 'RUNNING', finished_at = NULL, lease_expires_at = now() + '1 minute'"
    )
    assert await world.complete(claim, RunState.UNKNOWN)
    assert await world.rows("SELECT state, reason FROM dlq") == [("OPEN", "UNKNOWN")]


async def test_one_run_that_cannot_be_written_does_not_keep_the_others(world: World) -> None:
    claims = [await world.claimed(new_job(seconds_ago(2))) for _ in range(5)]
    stuck = claims[2]
    await world.sql.execute(b"UPDATE runs SET deaths = 32767 WHERE parent_id = %s", [stuck.key.parent_id])
    other = await world.store.register_host(name="h2", roles=[], lease_ms=60_000)
    await world.store.retire_host(host_id=world.host_id)
    members = await world.store.reap(host_id=other.host_id)
    assert {m.parent_id for m in members} == {c.key.parent_id for c in claims if c is not stuck}
    assert (await world.run(stuck)).state is RunState.RUNNING


async def test_a_lost_run_that_was_to_be_cancelled_is(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(2)))
    await world.store.cancel_run(world.a, key=claim.key, actor="key:x", host_id=world.host_id)
    other = await world.store.register_host(name="h2", roles=[], lease_ms=60_000)
    await world.store.retire_host(host_id=world.host_id)
    assert await world.store.reap(host_id=other.host_id) == []
    assert (await world.run(claim)).state is RunState.CANCELLED


async def test_a_failed_member_of_a_big_batch_of_mixed_outcomes(world: World) -> None:
    """Every kind of outcome in one statement, each applied to its own run."""
    states = [RunState.SUCCEEDED, RunState.FAILED, RunState.RETRY_WAIT, RunState.UNKNOWN, RunState.CANCELLED]
    claims: list[Claim] = [await world.claimed(new_job(seconds_ago(2))) for _ in states]
    batch = [completion(c, s, status=None, error="timeout") for c, s in zip(claims, states, strict=True)]
    batch.append(replace(batch[0], epoch=batch[0].epoch + 1))
    applied = await world.store.complete(batch, host_id=world.host_id)
    assert list(applied.applied) == [True] * 5 + [False]
    assert [(await world.run(c)).state for c in claims] == states


async def test_lag_and_split_are_kept(world: World) -> None:
    job = new_job(seconds_ago(2))
    await world.create(job)
    member = member_of(job, world.a.tenant_id)
    (claim,) = (await world.claim(member)).claims
    started = claim.claimed_ms + 12
    assert await world.complete(
        claim, RunState.SUCCEEDED, started_ms=started, finished_ms=started + 30, first_attempt_lag_ms=2012
    )
    run = await world.run(claim)
    assert run.released_at is not None
    assert run.started_at is not None
    assert run.finished_at is not None
    assert (ms(run.released_at), ms(run.started_at), ms(run.finished_at)) == (
        member.released_ms,
        started,
        started + 30,
    )
    *_, body = await world.journal()
    assert body.finished[0][5:] == ("SUCCEEDED", 2012)


async def test_a_host_takes_back_what_it_holds_without_knowing_it(world: World) -> None:
    known, unknown = [await world.claimed(new_job(seconds_ago(2))) for _ in range(2)]
    other = await world.store.register_host(name="h2", roles=[], lease_ms=60_000)
    # Not what is too young (its answer may be on its way), nor what another host holds.
    young = await world.store.reap_orphans(host_id=world.host_id, held=[known], older_than_ms=60_000)
    foreign = await world.store.reap_orphans(host_id=other.host_id, held=[], older_than_ms=0)
    assert (young, foreign) == ([], [])
    (member,) = await world.store.reap_orphans(host_id=world.host_id, held=[known], older_than_ms=0)
    assert (member.parent_id, member.is_run) == (unknown.key.parent_id, True)
    assert (await world.run(known)).state is RunState.RUNNING
    lost = await world.run(unknown)
    assert (lost.state, lost.attempt) == (RunState.RETRY_WAIT, 0)
    assert [a.outcome for a in lost.attempts] == [AttemptOutcome.LOST]


@pytest.mark.parametrize("how", ["complete", "release"])
async def test_runs_are_locked_in_one_order(world: World, cell_database_url: str, how: str) -> None:
    """Somebody who cancels several jobs holds the lesser run and wants the greater one: the batch
    must wait for the lesser with nothing in hand."""
    claims = [await world.claimed(new_job(seconds_ago(2))) for _ in range(2)]
    lesser, greater = sorted(claims, key=lambda c: c.key.parent_id.int)
    lock = b"SELECT FROM runs WHERE tenant_id = %s AND parent_id = %s FOR NO KEY UPDATE"
    async with await psycopg.AsyncConnection.connect(cell_database_url) as other:
        await other.execute(lock, [lesser.tenant_id, lesser.key.parent_id])
        if how == "complete":
            ended = [completion(c, RunState.SUCCEEDED) for c in (greater, lesser)]
            ending = asyncio.create_task(world.store.complete(ended, host_id=world.host_id))
        else:
            ending = asyncio.create_task(world.store.release([greater, lesser], host_id=world.host_id))
        await eventually(lambda: world.value("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"))
        await other.execute(b"SET lock_timeout = '100ms'")
        await other.execute(lock, [greater.tenant_id, greater.key.parent_id])
        await other.commit()
    await ending
    assert {(await world.run(c)).state for c in claims} == {
        RunState.SUCCEEDED if how == "complete" else RunState.RETRY_WAIT
    }
