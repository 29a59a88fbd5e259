"""What only grows has an end: it goes when its time is over, and not before."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from cells.observability.metrics import Metrics
from cells.ports import Retryable
from cells.store.upkeep import JOURNAL_KEPT, KEPT
from cells.upkeep import Upkeep
from tests.component.cells.store.world import TARGET, World, new_job, seconds_ago
from tests.waiting import eventually

_INSERTS = {
    "idempotency_keys": (
        "INSERT INTO idempotency_keys (tenant_id, route, key, fingerprint, status, body, created_at)"
        " VALUES (%s, 'POST /v1/jobs', %s, '', 201, '', %s)"
    ),
    "meters": (
        "INSERT INTO meter_minutes (tenant_id, store, epoch, host, minute, metric, region_policy, quantity,"
        " shipped_at) VALUES (%s, 0, 3, %s, '2020-01-01Z', 'job_runs', 'STRICT', 1, %s)"
    ),
    "job_usage": (
        "WITH v AS (SELECT %s::uuid AS tenant, %s::int AS n, (%s::timestamptz AT TIME ZONE 'UTC')::date"
        " AS day)"
        " INSERT INTO job_usage (tenant_id, day, job_id, region_policy, runs) SELECT tenant,"
        " day + CASE WHEN n = 4 THEN 1 ELSE -1 END, lpad(n::text, 32, '0')::uuid, 'STRICT', 1 FROM v"
    ),
    "stats": "INSERT INTO run_stats (tenant_id, lag_le, started, minute) VALUES (%s, '{}', %s::int, %s)",
    "target_stats": (
        "INSERT INTO target_stats (tenant_id, target_id, ms_le, succeeded, minute)"
        " VALUES (%s, 'tgt_reports', '{}', %s::int, %s)"
    ),
    "secrets": (
        "INSERT INTO target_secrets (tenant_id, target_id, purpose, sealed, generation, expires_at)"
        " VALUES (%s, 'tgt_reports', 'SIGNING', '', 1 + %s::int, %s)"
    ),
    "hosts": (
        "INSERT INTO hosts (name, roles, state, lease_expires_at)"
        " VALUES (%s::text || %s, '{executor}', 'GONE', %s)"
    ),
    "selections": (
        "WITH v AS (SELECT %s::uuid AS tenant, lpad(%s, 32, '0')::uuid AS id, %s::timestamptz AS at), s AS ("
        " INSERT INTO selections (tenant_id, selection_id, action, filter, count, hash, created_by,"
        " expires_at) SELECT tenant, id, 'pause', '', 0, '', 'user:1', '2020-01-01Z' FROM v)"
        " INSERT INTO operations (tenant_id, operation_id, selection_id, action, state, total,"
        " max_per_second, created_by, finished_at)"
        " SELECT tenant, id, id, 'pause', 'DONE', 0, 1, 'user:1', at FROM v"
    ),
    "workers": (
        "INSERT INTO task_workers (tenant_id, task_queue, worker_id, last_seen_at)"
        " VALUES (%s, 'ledger', %s, %s)"
    ),
    "lengthenings": ("INSERT INTO lengthened_pages (operation, page, at) VALUES (%s::uuid::text, %s, %s)"),
    "events": (
        "INSERT INTO events (tenant_id, type, subject, data, at) VALUES (%s, 'job.created', %s, '{}', %s)"
    ),
    "reconciliation": (
        "INSERT INTO reconciliation (tenant_id, region, epoch, host_id, seq, position, kind, thing, detail,"
        " at) VALUES (%s, 'a', 1, 1, %s, 1, 'INTENT', 'job:1', '{}', %s)"
    ),
}
_COUNTS = {
    "idempotency_keys": "SELECT count(*) FROM idempotency_keys",
    "meters": "SELECT count(*) FROM meter_minutes",
    "job_usage": "SELECT count(*) FROM job_usage",
    "stats": "SELECT count(*) FROM run_stats",
    "target_stats": "SELECT count(*) FROM target_stats",
    "secrets": "SELECT count(*) FROM target_secrets",
    "hosts": "SELECT count(*) FROM hosts",
    "selections": "SELECT count(*) FROM selections",
    "workers": "SELECT count(*) FROM task_workers",
    "lengthenings": "SELECT count(*) FROM lengthened_pages",
    "events": "SELECT count(*) FROM events",
    "reconciliation": "SELECT count(*) FROM reconciliation",
}


async def grown(world: World) -> dict[str, int]:
    """Of each kind three rows that are over by a moment and one that is not; how many stay."""
    for what, statement in _INSERTS.items():
        for n in range(4):
            at = datetime.now(UTC) - KEPT[what] + timedelta(minutes=1 if n == 3 else -1 - n)
            await world.sql.execute(statement.encode(), [world.a.tenant_id, str(n + 1), at])
    return {what: count - 3 for what, count in (await left(world)).items()}


async def left(world: World) -> dict[str, int]:
    return {what: await world.value(count) for what, count in _COUNTS.items()}


async def test_rows_go_when_their_time_is_over_a_page_at_a_time(world: World) -> None:
    stay = await grown(world)
    assert stay.keys() == KEPT.keys()
    assert await world.store.purge(page=2) == dict.fromkeys(KEPT, 2)
    assert await world.store.purge(page=2) == dict.fromkeys(KEPT, 1)
    assert await world.store.purge(page=2) == dict.fromkeys(KEPT, 0)
    assert await left(world) == stay
    assert len(await world.store.target_secrets(world.a.tenant_id, TARGET)) == 1


async def test_upkeep_goes_on_until_nothing_is_over(world: World) -> None:
    """One page a round would never catch up with a tenant that sends keys all day."""
    stay = await grown(world)
    stop = asyncio.Event()
    upkeep = asyncio.create_task(Upkeep(world.store, Metrics(), page=1).run(stop))
    await eventually(lambda: _same(world, stay))
    stop.set()
    await upkeep


async def _same(world: World, stay: dict[str, int]) -> bool:
    return await left(world) == stay


async def test_meters_nobody_acknowledged_and_hosts_they_are_counted_for_stay(world: World) -> None:
    await grown(world)
    await world.sql.execute(b"UPDATE meter_minutes SET shipped_at = NULL, refused = 'conflict'")
    await world.sql.execute(b"UPDATE cell SET metered_until = now() - interval '60 days'")
    gone = await world.store.purge(page=10)
    assert (gone["meters"], gone["hosts"]) == (0, 0)


async def old_day(world: World, days: int, *, xid: int = 5) -> str:
    """A day of the journal with one row."""
    day = (datetime.now(UTC) - timedelta(days=days)).date()
    name = f"journal_{day:%Y%m%d}"
    await world.sql.execute(f"SELECT ensure_day_partition('journal', '{day}', 'fillfactor=100')".encode())
    await world.sql.execute(
        b"INSERT INTO journal (host_id, seq, epoch, body, at, xid)"
        b" VALUES (1, 1, 1, '{}', %s, %s::text::xid8)",
        [datetime(day.year, day.month, day.day, 12, tzinfo=UTC), str(xid)],
    )
    return name


async def exists(world: World, table: str) -> bool:
    return bool(await world.value("SELECT to_regclass(%s) IS NOT NULL", table))


async def test_days_of_the_journal_go_oldest_first(world: World) -> None:
    kept = JOURNAL_KEPT.days
    oldest, old, young = [await old_day(world, kept + n) for n in (2, 1, 0)]
    await world.store.fold_stats()
    assert await world.store.drop_journal_day()
    assert [await exists(world, name) for name in (oldest, old, young)] == [False, True, True]
    assert await world.store.drop_journal_day()
    assert not await world.store.drop_journal_day()
    assert [await exists(world, name) for name in (old, young)] == [False, True]
    await world.claimed(new_job(seconds_ago(1)))


async def test_a_day_stays_until_it_is_metered_and_read(world: World) -> None:
    name = await old_day(world, JOURNAL_KEPT.days + 1, xid=5)
    assert not await world.store.drop_journal_day(), "nobody has read it"
    await world.sql.execute(b"INSERT INTO journal_readers (name, xid) VALUES ('stats', '100'), ('late', '5')")
    assert not await world.store.drop_journal_day(), "one reader is behind"
    await world.sql.execute(b"UPDATE journal_readers SET xid = '6' WHERE name = 'late'")
    await world.sql.execute(b"UPDATE cell SET metered_until = now() - interval '90 days'")
    assert not await world.store.drop_journal_day(), "not metered"
    await world.sql.execute(b"UPDATE cell SET metered_until = now()")
    assert await world.store.drop_journal_day()
    assert not await exists(world, name)


async def test_a_busy_journal_is_left_alone(world: World, cell_database_url: str) -> None:
    await old_day(world, JOURNAL_KEPT.days + 1)
    await world.store.fold_stats()
    async with await psycopg.AsyncConnection.connect(cell_database_url) as reader:
        await reader.execute(b"SELECT count(*) FROM journal")
        with pytest.raises(Retryable):
            await world.store.drop_journal_day()
    assert await world.store.drop_journal_day()
