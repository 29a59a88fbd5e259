"""Editing, pausing, resuming, cancelling, starting by hand; and cancelling runs."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from cells.domain.job import JobState, Priority
from cells.domain.run import RunState
from cells.ports import (
    AllowanceExceeded,
    Conflict,
    Fence,
    JobFilter,
    KeyReused,
    LeaseLost,
    Member,
    NotOwner,
    RunRow,
    Terminal,
)
from tests.component.cells.store.world import (
    EPOCH,
    World,
    completion,
    definition,
    every,
    member_of,
    new_id,
    new_job,
    now,
    once,
    seconds_ago,
)
from tests.waiting import eventually


async def trigger(
    world: World,
    job_id: uuid.UUID,
    *,
    payload: bytes | None = None,
    key: tuple[str, str, bytes] | None = None,
) -> tuple[RunRow, Member | None, bool]:
    return await world.store.trigger_job(
        world.a,
        job_id=job_id,
        now=now(),
        payload=payload,
        actor="key:x",
        traceparent="00-1",
        idempotency=key,
        host_id=world.host_id,
    )


async def test_an_edit_makes_a_new_version_and_keeps_the_old_one(world: World) -> None:
    job = new_job(seconds_ago(-60), definition(name="old", tags=("x",)))
    await world.create(job)
    at = seconds_ago(-120)
    edited = replace(
        job, definition=definition(name="new", priority=Priority.HIGH), next_run_at=at, due_at=at
    )
    row = await world.store.edit_job(
        world.a, base_version=1, seen_next_run_at=job.next_run_at, job=edited, host_id=world.host_id
    )
    assert (row.version, row.definition, row.next_run_at) == (2, edited.definition, at)
    assert await world.value("SELECT count(*) FROM job_versions") == 2
    by_tag = await world.store.list_jobs(world.a.tenant_id, JobFilter(tag="x"), after=None, limit=5)
    by_name = await world.store.list_jobs(
        world.a.tenant_id, JobFilter(name_prefix="new"), after=None, limit=5
    )
    assert (by_tag, by_name) == ([], [row])


async def test_an_edit_of_what_has_changed_loses(world: World) -> None:
    job = new_job(seconds_ago(-60))
    await world.create(job)
    before = await world.everything()
    for base, seen in ((2, job.next_run_at), (1, seconds_ago(0)), (1, None)):
        with pytest.raises(Conflict) as lost:
            await world.store.edit_job(
                world.a, base_version=base, seen_next_run_at=seen, job=job, host_id=world.host_id
            )
        assert lost.value.version == 1
    with pytest.raises(Terminal):
        await world.store.edit_job(
            world.a,
            base_version=1,
            seen_next_run_at=None,
            job=replace(job, job_id=new_id()),
            host_id=world.host_id,
        )
    assert await world.everything() == before


async def test_an_edit_and_a_claim_cannot_both_win(world: World) -> None:
    start = seconds_ago(1)
    jobs = [new_job(start, every(3600, start)) for _ in range(10)]
    await world.create(*jobs)
    later = seconds_ago(-600)
    edits = [
        world.store.edit_job(
            world.a, base_version=1, seen_next_run_at=start, host_id=world.host_id,
            job=replace(job, next_run_at=later, due_at=later),
        )
        for job in jobs
    ]  # fmt: skip
    claims = [world.claim(member_of(job, world.a.tenant_id)) for job in jobs]
    edited, claimed = await asyncio.gather(
        asyncio.gather(*edits, return_exceptions=True), asyncio.gather(*claims)
    )
    for job, edit, claim in zip(jobs, edited, claimed, strict=True):
        row = await world.job(job)
        if isinstance(edit, Conflict):
            assert len(claim.claims) == 1
            assert row.next_run_at == start + timedelta(hours=1)
        else:
            assert not claim.claims
            assert row.next_run_at == later


async def test_a_key_in_use_refuses_an_edit(world: World) -> None:
    one, two = new_job(seconds_ago(-60), definition(key="k")), new_job(seconds_ago(-60))
    await world.create(one, two)
    with pytest.raises(Conflict):
        await world.store.edit_job(
            world.a, base_version=1, seen_next_run_at=two.next_run_at, host_id=world.host_id,
            job=replace(two, definition=definition(key="k")),
        )  # fmt: skip
    assert (await world.job(two)).version == 1


async def test_an_edit_to_strict_needs_room_but_not_twice(world: World) -> None:
    at = seconds_ago(-60)
    critical = every(3600, at, priority=Priority.CRITICAL, dispatch_window_seconds=0)
    full = [new_job(at, critical, window_ms=0) for _ in range(2)]
    plain = new_job(at)
    await world.create(*full, plain)
    row = await world.store.edit_job(
        world.a, base_version=1, seen_next_run_at=at, job=full[0], host_id=world.host_id
    )
    assert row.version == 2
    with pytest.raises(AllowanceExceeded):
        await world.store.edit_job(
            world.a, base_version=1, seen_next_run_at=at, host_id=world.host_id,
            job=replace(plain, definition=critical, window_ms=0),
        )  # fmt: skip


async def test_versions_are_immutable(world: World) -> None:
    await world.create(new_job(seconds_ago(-60)))
    with pytest.raises(psycopg.IntegrityError):
        await world.sql.execute(b"UPDATE job_versions SET payload = NULL")


async def test_pause_and_resume(world: World) -> None:
    job = new_job(seconds_ago(-60))
    await world.create(job)
    row = await world.set_state(job, JobState.PAUSED)
    assert (row.state, row.next_run_at, row.due_at, row.version) == (
        JobState.PAUSED,
        job.next_run_at,
        None,
        1,
    )
    before = await world.everything()
    assert await world.set_state(job, JobState.PAUSED) == row
    assert await world.everything() == before
    at = seconds_ago(-120)
    row = await world.set_state(job, JobState.ACTIVE, at)
    assert (row.state, row.next_run_at, row.due_at) == (JobState.ACTIVE, at, at)
    await world.set_state(job, JobState.PAUSED)
    row = await world.set_state(job, JobState.DONE)
    assert (row.state, row.next_run_at) == (JobState.DONE, None)


@pytest.mark.parametrize("end", [JobState.CANCELLED, JobState.DONE])
async def test_what_has_ended_stays_so(world: World, end: JobState) -> None:
    job = new_job(seconds_ago(-60))
    await world.create(job)
    await world.set_state(job, JobState.PAUSED)
    await world.set_state(job, end)
    before = await world.everything()
    for state in JobState:
        if state is not end:
            with pytest.raises(Conflict):
                await world.set_state(job, state, seconds_ago(-60))
    with pytest.raises(Conflict):
        await world.store.edit_job(
            world.a, base_version=1, seen_next_run_at=None, job=job, host_id=world.host_id
        )
    assert await world.everything() == before


async def test_a_state_change_can_be_conditional(world: World) -> None:
    job = new_job(seconds_ago(-60))
    await world.create(job)
    with pytest.raises(Conflict) as lost:
        await world.set_state(job, JobState.PAUSED, base_version=7)
    assert lost.value.version == 1
    with pytest.raises(Terminal):
        await world.set_state(new_job(seconds_ago(0)), JobState.PAUSED)


async def test_cancelling_a_job_cancels_what_waits_and_stops_retries(world: World) -> None:
    start = seconds_ago(2)
    job = new_job(start, every(3600, start))
    running = await world.claimed(job)
    waiting, _, _ = await trigger(world, job.job_id)
    row = await world.set_state(job, JobState.CANCELLED)
    assert (row.state, row.due_at) == (JobState.CANCELLED, None)
    cancelled = await world.store.get_run(world.a.tenant_id, waiting.key)
    assert cancelled is not None
    assert cancelled.state is RunState.CANCELLED
    assert (await world.run(running)).state is RunState.RUNNING
    *_, body = await world.journal()
    assert body.counts == [(world.a.tenant_id.hex, "job_runs", "HOME_ASYNC", 1)]
    assert await world.complete(running, RunState.RETRY_WAIT)
    assert (await world.run(running)).state is RunState.CANCELLED


async def test_no_run_escapes_a_cancel_by_becoming_a_retry_meanwhile(world: World) -> None:
    start = seconds_ago(2)
    job = new_job(start, every(3600, start))
    running = await world.claimed(job)
    async with world.sql.transaction():
        await world.sql.execute(
            "UPDATE runs SET state = 'RETRY_WAIT', timer_at = now(), lease_expires_at = NULL"
        )
        cancelling = asyncio.create_task(world.set_state(job, JobState.CANCELLED))
        await eventually(lambda: world.value("SELECT count(*) FROM pg_locks WHERE NOT granted"))
    await cancelling
    assert (await world.run(running)).state is RunState.CANCELLED


async def test_a_run_by_hand_is_due_at_once(world: World) -> None:
    job = new_job(seconds_ago(-3600))
    await world.create(job)
    run, member, replayed = await trigger(world, job.job_id, payload=b"by hand")
    assert (run.state, run.key.ordinal, run.series, replayed) == (RunState.DUE, 1, 1, False)
    assert member is not None
    assert member.is_run
    assert member.ordinal == 1
    (claim,) = (await world.claim(member)).claims
    assert (claim.key, claim.payload, claim.traceparent, claim.attempt) == (run.key, b"by hand", "00-1", 1)
    assert (await world.job(job)).next_run_at == job.next_run_at
    again, _, _ = await trigger(world, job.job_id)
    assert again.key.ordinal == 2


async def test_a_repeated_trigger_is_one_run(world: World) -> None:
    job = new_job(seconds_ago(-3600))
    await world.create(job)
    results = await asyncio.gather(*(trigger(world, job.job_id, key=("POST t", "k", b"f")) for _ in range(5)))
    assert len({str(run.key) for run, _, _ in results}) == 1
    assert sorted(replayed for _, _, replayed in results) == [False] + [True] * 4
    assert await world.value("SELECT count(*) FROM runs") == 1
    with pytest.raises(KeyReused):
        await trigger(world, job.job_id, key=("POST t", "k", b"other"))


async def test_no_run_by_hand_of_what_is_cancelled_or_unknown(world: World) -> None:
    job = new_job(seconds_ago(-3600))
    await world.create(job)
    await world.set_state(job, JobState.CANCELLED)
    with pytest.raises(Conflict):
        await trigger(world, job.job_id)
    with pytest.raises(Terminal):
        await trigger(world, new_id())
    assert await world.value("SELECT count(*) FROM runs") == 0


async def test_a_waiting_run_is_cancelled_at_once(world: World) -> None:
    job = new_job(seconds_ago(-3600))
    await world.create(job)
    run, member, _ = await trigger(world, job.job_id)
    cancelled = await world.store.cancel_run(world.a, key=run.key, actor="key:x", host_id=world.host_id)
    assert (cancelled.state, cancelled.timer_at) == (RunState.CANCELLED, None)
    assert member is not None
    assert (await world.claim(member)).stale == [member]
    *_, body = await world.journal()
    assert body.counts == [(world.a.tenant_id.hex, "job_runs", "HOME_ASYNC", 1)]


async def test_a_run_that_has_ended_cannot_be_cancelled(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(2), once(seconds_ago(2))))
    await world.complete(claim, RunState.SUCCEEDED)
    before = await world.everything()
    with pytest.raises(Conflict):
        await world.store.cancel_run(world.a, key=claim.key, actor="key:x", host_id=world.host_id)
    with pytest.raises(Terminal):
        await world.store.cancel_run(world.b, key=claim.key, actor="key:x", host_id=world.host_id)
    assert await world.everything() == before


@pytest.mark.parametrize("why", ["suspended", "epoch", "tenant", "host"])
async def test_no_write_passes_a_broken_fence(world: World, why: str) -> None:
    job = new_job(seconds_ago(-60))
    claim = await world.claimed(new_job(seconds_ago(2)))
    await world.create(job)
    fence, expected = world.a, (NotOwner,)
    if why == "suspended":
        await world.put_tenant(world.a, "SUSPENDED", version=2)
    elif why == "epoch":
        fence = Fence(tenant_id=world.a.tenant_id, epoch=EPOCH + 1)
    elif why == "tenant":
        fence = Fence(tenant_id=new_id(), epoch=EPOCH)
    else:
        await world.sql.execute(b"UPDATE hosts SET lease_expires_at = now()")
        expected = (LeaseLost,)  # type: ignore[assignment]
    before = await world.everything()
    host_id = world.host_id
    state: dict[str, Any] = {"base_version": None, "next_run_at": None, "due_at": None, "actor": "x"}
    cancelled = JobState.CANCELLED
    started: dict[str, Any] = {"now": now(), "payload": None, "traceparent": None, "idempotency": None}
    store = world.store
    writes = [
        store.edit_job(fence, base_version=1, seen_next_run_at=job.next_run_at, job=job, host_id=host_id),
        store.set_job_state(fence, job_id=job.job_id, state=cancelled, host_id=host_id, **state),
        store.trigger_job(fence, job_id=job.job_id, actor="x", host_id=host_id, **started),
        store.cancel_run(fence, key=claim.key, actor="x", host_id=host_id),
    ]
    for write in writes:
        with pytest.raises(expected):
            await write
    assert await world.everything() == before


async def test_runs_are_listed_newest_first_by_page(world: World) -> None:
    start = seconds_ago(50)
    jobs = [
        new_job(start + timedelta(seconds=i), every(3600, start + timedelta(seconds=i))) for i in range(5)
    ]
    await world.create(*jobs)
    claims = (await world.claim(*(member_of(job, world.a.tenant_id) for job in jobs))).claims
    await world.store.complete([completion(claims[1], RunState.SUCCEEDED)], host_id=world.host_id)
    store, tenant = world.store, world.a.tenant_id
    ordered = sorted((c.key.scheduled_for for c in claims), reverse=True)
    first = await store.list_runs(tenant, limit=3)
    rest = await store.list_runs(tenant, limit=3, after=first[-1].key)
    assert [run.key.scheduled_for for run in (*first, *rest)] == ordered
    done = await store.list_runs(tenant, state=RunState.SUCCEEDED)
    assert [run.key for run in done] == [claims[1].key]
    assert len(await store.list_runs(tenant, scheduled_from=start + timedelta(seconds=2))) == 3
    assert len(await store.list_runs(tenant, target_id="tgt_other")) == 0
    assert [run.key for run in await store.list_runs(tenant, job_id=jobs[0].job_id)] == [
        c.key for c in claims if c.key.parent_id == jobs[0].job_id
    ]
    assert await store.list_runs(world.b.tenant_id) == []


async def test_dead_letters_are_listed_by_page_and_group(world: World) -> None:
    keys = []
    for status in (500, 500, 404):
        claim = await world.claimed(new_job(seconds_ago(2)))
        await world.complete(claim, RunState.FAILED, status=status, fingerprint=f"f{status}")
        keys.append(claim.key)
    store, tenant = world.store, world.a.tenant_id
    first = await store.list_dlq(tenant, target_id=None, fingerprint=None, after=None, limit=2)
    after = (first[-1]["failed_at"], first[-1]["key"])
    rest = await store.list_dlq(tenant, target_id=None, fingerprint=None, after=after, limit=2)  # type: ignore[arg-type]
    assert [d["key"] for d in (*first, *rest)] == keys[::-1]
    only = await store.list_dlq(tenant, target_id=None, fingerprint="f404", after=None, limit=9)
    assert [d["key"] for d in only] == [keys[2]]
    groups, truncated = await store.dlq_groups(tenant, limit=5)
    assert not truncated
    assert [(g["fingerprint"], g["count"], g["http_status"]) for g in groups] == [
        ("f500", 2, 500),
        ("f404", 1, 404),
    ]
    assert await store.dlq_groups(tenant, limit=1) == (groups[:1], True)
    newest, more = await store.dlq_groups(tenant, limit=5, looks=2)
    assert ([(g["fingerprint"], g["count"]) for g in newest], more) == ([("f404", 1), ("f500", 1)], True)
    assert (await store.dlq_groups(tenant, limit=5, looks=3))[1] is False
    assert (
        await store.list_dlq(world.b.tenant_id, target_id=None, fingerprint=None, after=None, limit=9) == []
    )
