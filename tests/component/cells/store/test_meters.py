"""Sealing, shipping and folding: exactly once, from the journal alone."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from cells.contract import Metric
from cells.domain.ids import TENANT, encode
from cells.domain.run import RunState
from cells.ports import LAG_BOUNDS_MS, LeaseLost
from cells.store import job_usage as store_job_usage
from cells.store import meters as store_meters
from tests.component.cells.store.sealing import levels, minutes_pass, sealed, totals, work
from tests.component.cells.store.world import (
    World,
    definition,
    new_job,
    seconds_ago,
)
from tests.waiting import eventually

MINUTE = timedelta(minutes=1)


async def test_meters_are_what_the_runs_say(world: World) -> None:
    await work(world)
    await minutes_pass(world)
    assert await world.store.seal_minutes() >= 2
    records = await sealed(world)
    a, b = (encode(TENANT, fence.tenant_id) for fence in (world.a, world.b))
    assert totals(records, Metric.JOB_RUNS) == {a: 5, b: 2}
    assert totals(records, Metric.RUN_ATTEMPTS) == {a: 6, b: 2}
    assert totals(records, Metric.EGRESS_BYTES) == {a: 600, b: 200}
    terminal = await world.value("SELECT count(*) FROM runs WHERE finished_at IS NOT NULL")
    attempts = await world.value("SELECT sum(jsonb_array_length(attempts)) FROM runs")
    assert sum(totals(records, Metric.JOB_RUNS).values()) == terminal
    assert sum(totals(records, Metric.RUN_ATTEMPTS).values()) == attempts
    assert {(r.cell, r.store, r.epoch, r.host, r.region_policy) for r in records} == {
        ("cell-1", 0, 1, "host-1", "HOME_ASYNC")
    }
    assert all(r.minute.endswith(":00Z") for r in records)


async def gauge(world: World) -> bool:
    return await world.store.gauge_minute(host_id=world.host_id)


async def test_timers_are_counted_under_their_own_policies(world: World) -> None:
    usual = [new_job(seconds_ago(-600)) for _ in range(3)]
    kept = [new_job(seconds_ago(-600), definition(region_policy="SINGLE_REGION")) for _ in range(2)]
    await world.create(*usual, *kept)
    await world.create(new_job(seconds_ago(-600), kept[0].definition), fence=world.b)
    assert await gauge(world)
    await minutes_pass(world, 1)
    await world.store.seal_minutes()
    a, b = (encode(TENANT, fence.tenant_id) for fence in (world.a, world.b))
    assert levels(await sealed(world), Metric.PENDING_TIMER_MINUTES) == {
        (a, "HOME_ASYNC"): 3, (a, "SINGLE_REGION"): 2, (b, "SINGLE_REGION"): 1,
    }  # fmt: skip


async def test_levels_are_counted_once_a_minute(world: World) -> None:
    await world.create(*(new_job(seconds_ago(-600)) for _ in range(4)))
    claim = await world.claimed(new_job(seconds_ago(2)), world.b)
    await world.complete(claim, RunState.RETRY_WAIT)
    for _ in range(3):
        # Whoever comes again in the same minute, or at the same moment, counts nothing; a gauge that was
        # overtaken by the next minute may count that one, too.
        counted = await asyncio.gather(*(gauge(world) for _ in range(4)))
        assert sum(counted) == 1
        await minutes_pass(world, 1)
        await world.sql.execute(b"UPDATE meter_state SET gauged_at = gauged_at - interval '1 minute'")
    await world.store.seal_minutes()
    a, b = (encode(TENANT, fence.tenant_id) for fence in (world.a, world.b))
    # b's job waits for its next hour, and its run for a retry.
    assert totals(await sealed(world), Metric.PENDING_TIMER_MINUTES) == {a: 12, b: 6}


async def test_a_minute_that_is_closed_under_its_gauge_has_none(world: World, cell_database_url: str) -> None:
    await world.create(new_job(seconds_ago(-600)))
    async with await psycopg.AsyncConnection.connect(cell_database_url) as other:
        # The gauge waits for this row; meanwhile its minute is closed.
        await other.execute(b"SELECT FROM meter_state FOR UPDATE")
        gauging = asyncio.create_task(gauge(world))
        await eventually(lambda: waits_for_a_lock(world))
        await world.sql.execute(b"UPDATE cell SET sealed_until = now() + interval '10 minutes'")
        await other.commit()
        counted = await gauging
    rows = await world.value("SELECT count(*) FROM journal WHERE at >= now() + interval '9 minutes'")
    state = await world.value("SELECT gauged_at > now() + interval '8 minutes' FROM meter_state")
    # Either it was dated into the new minute and took that one, or it took none at all.
    assert (bool(rows), state) == (counted, counted)


async def waits_for_a_lock(world: World) -> bool:
    return bool(await world.value("SELECT count(*) FROM pg_locks WHERE NOT granted"))


async def test_a_lapsed_host_counts_no_levels(world: World) -> None:
    await world.create(new_job(seconds_ago(-600)))
    await world.store.retire_host(host_id=world.host_id)
    with pytest.raises(LeaseLost):
        await gauge(world)
    assert await world.value("SELECT gauged_at = 'epoch' FROM meter_state") is True


async def test_stored_bytes_are_those_of_jobs(world: World) -> None:
    await world.create(*(new_job(seconds_ago(-600)) for _ in range(4)))
    assert await world.store.count_stored()
    assert not await world.store.count_stored()  # not yet time again
    assert await gauge(world)
    await minutes_pass(world, 1)
    await world.store.seal_minutes()
    stored = await world.value(
        "SELECT sum(octet_length(definition) + coalesce(octet_length(payload), 0))::bigint FROM job_versions"
    )
    a = encode(TENANT, world.a.tenant_id)
    assert stored > 0
    assert totals(await sealed(world), Metric.STORED_BYTE_MINUTES) == {a: stored}


async def test_what_is_gone_is_stored_no_more(world: World) -> None:
    await world.create(new_job(seconds_ago(-600)))
    await world.store.count_stored()
    await world.sql.execute(b"TRUNCATE jobs, job_versions")
    await world.sql.execute(b"UPDATE meter_state SET stored_next = 'epoch'")
    assert await world.store.count_stored()
    assert await world.value("SELECT sum(bytes)::bigint FROM meter_stored") == 0


async def test_a_backlog_is_sealed_in_parts_and_has_no_levels(world: World) -> None:
    await work(world)
    await minutes_pass(world, 1000)
    first = await world.store.seal_minutes()
    counted = totals(await sealed(world), Metric.JOB_RUNS)
    assert (first, len(counted)) == (720, 2)
    second = await world.store.seal_minutes()
    assert second >= 280
    assert await world.store.seal_minutes() == 0
    records = await sealed(world)
    assert totals(records, Metric.JOB_RUNS) == counted
    assert totals(records, Metric.PENDING_TIMER_MINUTES) == {}


async def test_a_change_of_epoch_divides_a_minute(world: World) -> None:
    await work(world)
    await world.sql.execute(b"UPDATE cell SET epoch = 9")
    await work(world)
    await minutes_pass(world)
    await world.store.seal_minutes()
    records = await sealed(world)
    a, b = (encode(TENANT, fence.tenant_id) for fence in (world.a, world.b))
    for epoch in (1, 9):
        mine = [r for r in records if r.epoch == epoch]
        assert totals(mine, Metric.JOB_RUNS) == {a: 5, b: 2}
    assert (await world.store.meters_sealed_until()).epoch == 9


async def test_the_word_waits_for_what_is_not_answered_for(world: World) -> None:
    await work(world)
    await minutes_pass(world)
    await world.store.seal_minutes()
    records = await sealed(world)
    assert (await world.store.meters_sealed_until()).sealed_until == records[0].minute
    await world.store.mark_shipped(records[1:])
    assert (await world.store.meters_sealed_until()).sealed_until == records[0].minute
    await world.store.mark_shipped(records[:1], refused="conflict")
    until = await world.value('SELECT to_char(metered_until, \'YYYY-MM-DD"T"HH24:MI:00"Z"\') FROM cell')
    assert (await world.store.meters_sealed_until()).sealed_until == until


async def test_runs_are_counted_by_job_and_day(world: World) -> None:
    await work(world)
    await world.store.fold_job_usage(step=MINUTE)
    assert await world.value("SELECT count(*) FROM job_usage") == 0  # nothing is sealed
    await minutes_pass(world)
    await world.sql.execute(b"UPDATE meter_state SET jobs_until = jobs_until - interval '5 minutes'")
    await world.store.seal_minutes()
    counted = await asyncio.gather(*(world.store.fold_job_usage(step=MINUTE) for _ in range(3)))
    assert sum(counted) == 1
    assert not await world.store.fold_job_usage(step=MINUTE)
    since = (datetime.now(UTC) - timedelta(days=1)).date()
    found = await world.store.usage_by_job(
        world.a.tenant_id, since=since, until=since + timedelta(days=3), after=None, limit=10
    )
    assert [usage.runs for usage in found] == [1] * 5
    assert [usage.job_id for usage in found] == sorted(usage.job_id for usage in found)
    rest = await world.store.usage_by_job(
        world.a.tenant_id, since=since, until=since + timedelta(days=3), after=found[1].job_id, limit=2
    )
    assert rest == found[2:4]
    days = [await world.store.runs_of_day(since + timedelta(days=n)) for n in range(3)]
    sums: dict[tuple[uuid.UUID, str], int] = {}
    for day in days:
        for tenant, policy, runs in day:
            sums[tenant, policy] = sums.get((tenant, policy), 0) + runs
    assert sums == {(world.a.tenant_id, "HOME_ASYNC"): 5, (world.b.tenant_id, "HOME_ASYNC"): 2}
    span = await world.store.usage_span()
    assert span.until == await world.value("SELECT metered_until FROM cell")


async def test_sealing_again_changes_nothing(world: World) -> None:
    await work(world)
    await minutes_pass(world)
    minutes = await asyncio.gather(*(world.store.seal_minutes() for _ in range(4)))
    # Sealers may hold each other up once, being open transactions themselves.
    assert sum(minutes) + await world.store.seal_minutes() >= 2
    first = await sealed(world)
    assert len(totals(first, Metric.JOB_RUNS)) == 2
    assert await world.store.seal_minutes() == 0
    assert await sealed(world) == first


async def test_no_minute_is_sealed_past_an_open_transaction(world: World, cell_database_url: str) -> None:
    await work(world)
    await minutes_pass(world)
    async with await psycopg.AsyncConnection.connect(cell_database_url) as open_:
        await open_.execute(b"SELECT 1")
        assert await world.store.seal_minutes() == 0
        assert await world.store.seal_minutes() == 0
        assert await sealed(world) == []
        await open_.commit()
        assert await world.store.seal_minutes() >= 2
    assert totals(await sealed(world), Metric.JOB_RUNS) != {}


async def test_newer_transactions_do_not_hold_a_minute_open(world: World, cell_database_url: str) -> None:
    """Transactions that overlap each other for ever: only the first one is waited for."""
    await work(world)
    await minutes_pass(world)
    async with (
        await psycopg.AsyncConnection.connect(cell_database_url) as first,
        await psycopg.AsyncConnection.connect(cell_database_url) as second,
    ):
        await first.execute(b"SELECT 1")
        assert await world.store.seal_minutes() == 0
        await second.execute(b"SELECT 1")
        await first.commit()
        assert await world.store.seal_minutes() >= 2


async def test_nothing_is_dated_into_a_closed_minute(world: World) -> None:
    """Not even after the database's clock was set back."""
    ahead = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=10)
    await world.sql.execute(b"UPDATE cell SET sealed_until = %s", [ahead])
    claim = await world.claimed(new_job(seconds_ago(2)))
    await world.complete(claim, RunState.SUCCEEDED)
    assert await world.value("SELECT count(*) FROM journal WHERE at = %s", ahead) == 3


async def test_shipped_and_refused_records_are_not_sent_again(world: World) -> None:
    await work(world)
    await minutes_pass(world)
    await world.store.seal_minutes()
    records = await sealed(world)
    await world.store.mark_shipped(records[:2])
    await world.store.mark_shipped(records[2:3], refused="conflict")
    assert await sealed(world) == records[3:]
    await world.store.mark_shipped(records)
    assert await sealed(world) == []
    assert await world.value("SELECT count(*) FROM meter_minutes WHERE shipped_at IS NULL") == 0


async def test_statistics_are_folded_exactly_once(world: World) -> None:
    await work(world)
    claim = await world.claimed(new_job(seconds_ago(2)))
    await world.complete(claim, RunState.SUCCEEDED, first_attempt_lag_ms=7)
    folded = await asyncio.gather(*(world.store.fold_stats() for _ in range(5)))
    assert sum(folded) == await world.value("SELECT count(*) FROM journal")
    assert await world.store.fold_stats() == 0
    since = datetime.now(UTC) - timedelta(hours=1)
    rows = await world.store.stats(world.a.tenant_id, since=since, until=since + timedelta(hours=2))

    def total(name: str) -> int:
        return sum(row[name] for row in rows)  # type: ignore[misc]

    assert [total(n) for n in ("started", "succeeded", "failed", "retried")] == [7, 5, 1, 1]
    assert (total("lag_sum_ms"), max(row["lag_max_ms"] for row in rows)) == (7, 7)  # type: ignore[type-var]
    buckets = [sum(column) for column in zip(*(row["lag_le"] for row in rows), strict=True)]
    assert buckets == [0, 1] + [0] * (len(LAG_BOUNDS_MS) - 1)


async def test_what_is_not_final_is_folded_later(world: World, cell_database_url: str) -> None:
    """A transaction with an older id is still open: the rows after it wait, and none is lost."""
    async with await psycopg.AsyncConnection.connect(cell_database_url) as open_:
        await open_.execute(b"SELECT pg_current_xact_id()")
        before = await world.store.fold_stats()
        await work(world)
        assert await world.store.fold_stats() == 0
        await open_.rollback()
        rows = await world.value("SELECT count(*) FROM journal")
        assert before + await world.store.fold_stats() == rows


async def test_a_backlog_is_counted_as_far_as_there_is_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (store_meters, store_job_usage):
        monkeypatch.setattr(module, "_COUNTING_SECONDS", -1.0)
        monkeypatch.setattr(module, "_PAGE", 1)
    for _ in range(3):
        await work(world)
        await minutes_pass(world)
    await world.sql.execute(b"UPDATE meter_state SET jobs_until = jobs_until - interval '10 minutes'")
    sealings = 0
    while await world.store.seal_minutes():
        sealings += 1
    assert sealings >= 3
    a, b = (encode(TENANT, fence.tenant_id) for fence in (world.a, world.b))
    assert totals(await sealed(world), Metric.JOB_RUNS) == {a: 15, b: 6}
    folds = 0
    while await world.store.fold_job_usage(step=MINUTE):
        folds += 1
    assert folds >= 3
    assert await world.value("SELECT sum(runs) FROM job_usage") == 21
