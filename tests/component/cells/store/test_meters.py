"""Sealing, shipping and folding: exactly once, from the journal alone."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg

from cells.contract import MeterRecord, Metric
from cells.domain.ids import TENANT, encode
from cells.domain.run import RunState
from cells.ports import LAG_BOUNDS_MS
from tests.component.cells.store.world import (
    World,
    completion,
    definition,
    member_of,
    new_job,
    seconds_ago,
)


async def minutes_pass(world: World, minutes: int = 2) -> None:
    """Date back what was journalled and the cell's marks, as if time had passed since."""
    back = timedelta(minutes=minutes)
    await world.sql.execute(b"UPDATE journal SET at = at - %s", [back])
    await world.sql.execute(
        b"UPDATE cell SET sealed_until = sealed_until - %s, metered_until = metered_until - %s", [back, back]
    )


async def sealed(world: World) -> list[MeterRecord]:
    return list(await world.store.unshipped_meters(cell="cell-1", limit=10_000))


def totals(records: list[MeterRecord], metric: Metric) -> dict[str, int]:
    found: dict[str, int] = {}
    for r in records:
        if r.metric is metric:
            found[r.tenant_id] = found.get(r.tenant_id, 0) + r.quantity
    return found


async def work(world: World) -> None:
    """5 runs of a (one fails, one retries and succeeds), 2 of b."""
    for fence, n in ((world.a, 5), (world.b, 2)):
        jobs = [new_job(seconds_ago(2)) for _ in range(n)]
        await world.create(*jobs, fence=fence)
        claims = (await world.claim(*(member_of(job, fence.tenant_id) for job in jobs))).claims
        states = [RunState.FAILED, RunState.RETRY_WAIT] if n == 5 else []
        states += [RunState.SUCCEEDED] * (n - len(states))
        applied = await world.store.complete(
            [completion(c, s, egress_bytes=100) for c, s in zip(claims, states, strict=True)],
            host_id=world.host_id,
        )
        for claim in (await world.claim(*applied.retries)).claims:
            await world.complete(claim, RunState.SUCCEEDED, egress_bytes=100)


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


async def test_timers_are_counted_under_their_own_policies(world: World) -> None:
    usual = [new_job(seconds_ago(-600)) for _ in range(3)]
    kept = [new_job(seconds_ago(-600), definition(region_policy="SINGLE_REGION")) for _ in range(2)]
    await world.create(*usual, *kept)
    await world.create(new_job(seconds_ago(-600), kept[0].definition), fence=world.b)
    await minutes_pass(world, 1)
    n = await world.store.seal_minutes()
    counted: dict[tuple[str, str], int] = {}
    for record in await sealed(world):
        if record.metric is Metric.PENDING_TIMER_MINUTES:
            key = (record.tenant_id, record.region_policy)
            counted[key] = counted.get(key, 0) + record.quantity
    a, b = (encode(TENANT, fence.tenant_id) for fence in (world.a, world.b))
    assert counted == {(a, "HOME_ASYNC"): 3 * n, (a, "SINGLE_REGION"): 2 * n, (b, "SINGLE_REGION"): n}


async def test_timers_are_counted_once_a_minute(world: World) -> None:
    await world.create(*(new_job(seconds_ago(-600)) for _ in range(4)))
    claim = await world.claimed(new_job(seconds_ago(2)), world.b)
    await world.complete(claim, RunState.RETRY_WAIT)
    await minutes_pass(world, 3)
    n = await world.store.seal_minutes()
    assert n >= 3
    a, b = (encode(TENANT, fence.tenant_id) for fence in (world.a, world.b))
    # b's job waits for its next hour, and its run for a retry.
    assert totals(await sealed(world), Metric.PENDING_TIMER_MINUTES) == {a: 4 * n, b: 2 * n}


async def test_a_backlog_is_sealed_in_parts_and_only_its_end_has_gauges(world: World) -> None:
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
    assert len({r.minute for r in records if r.metric is Metric.PENDING_TIMER_MINUTES}) == 20


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
