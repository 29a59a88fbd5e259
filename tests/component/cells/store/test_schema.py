"""Migrations, partitions, and that the statements that matter use their indexes."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from cells.ports import Retryable, Terminal
from cells.store.database import Purpose
from cells.store.migrate import _SAME, migrate, migrations
from cells.store.postgres import PostgresStore
from cells.store.queries import QUERIES
from tests.component.cells.store.world import World, make_world, new_id, new_job, seconds_ago
from tests.waiting import eventually, eventually_sync


def test_migrations_are_applied_once(empty_database_url: str) -> None:
    environment = {**os.environ, "CELL_DATABASE_URL": empty_database_url}
    command = [sys.executable, "-m", "cells.store", "migrate"]
    racers = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [racer.communicate()[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 3
    assert sorted("".join(outputs).splitlines()) == [f"applied {name}" for name, _, _ in migrations()]
    assert migrate(empty_database_url) == []


def test_a_changed_or_unknown_migration_stops(empty_database_url: str) -> None:
    migrate(empty_database_url)
    with psycopg.connect(empty_database_url, autocommit=True) as sql:
        sql.execute(b"INSERT INTO schema_migrations (name, checksum) VALUES ('9999_later.sql', 'x')")
        with pytest.raises(Terminal, match="newer"):
            migrate(empty_database_url)
        sql.execute(b"DELETE FROM schema_migrations WHERE name = '9999_later.sql'")
        sql.execute(b"UPDATE schema_migrations SET checksum = 'y' WHERE name = '0001_cell.sql'")
        with pytest.raises(Terminal, match="changed"):
            migrate(empty_database_url)


def test_a_migration_steps_back_where_somebody_holds_its_locks(empty_database_url: str) -> None:
    """And what an interrupted build has left is built anew."""
    migrate(empty_database_url)
    again = ["0080_engine_looks.sql", "0081_turns_of_job_workflows.sql", "0100_lateness.sql"]
    with psycopg.connect(empty_database_url, autocommit=True) as sql:

        def indexes() -> list[tuple[object, ...]]:
            return sql.execute(
                b"SELECT i.indexdef, x.indisvalid FROM pg_indexes i"
                b" JOIN pg_index x ON x.indexrelid = i.indexname::regclass"
                b" WHERE i.schemaname = 'public' ORDER BY 1"
            ).fetchall()

        def waits() -> bool:
            return sql.execute(b"SELECT FROM pg_locks WHERE NOT granted").fetchone() is not None

        before = indexes()
        sql.execute("DELETE FROM schema_migrations WHERE name = ANY(%s)", [again])
        sql.execute(b"ALTER TABLE tenants DROP COLUMN late_since")
        sql.execute(b"CREATE INDEX workflows_named ON workflows (run_id)")
        sql.execute(b"UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'workflows_named'::regclass")
        with psycopg.connect(empty_database_url) as reader, ThreadPoolExecutor(1) as threads:
            reader.execute(b"SELECT FROM tenants")
            applying = threads.submit(migrate, empty_database_url)
            eventually_sync(waits)
            eventually_sync(lambda: not waits())
            assert not applying.done()
            reader.commit()
            assert applying.result() == again
        assert indexes() == before


def test_files_that_lead_to_the_same_on_another_way_count_as_applied(empty_database_url: str) -> None:
    migrate(empty_database_url)
    with psycopg.connect(empty_database_url, autocommit=True) as sql:
        for name, checksum in _SAME.items():
            sql.execute("UPDATE schema_migrations SET checksum = %s WHERE name = %s", [checksum, name])
    assert migrate(empty_database_url) == []


def test_the_command_wants_an_order() -> None:
    assert subprocess.run([sys.executable, "-m", "cells.store"], capture_output=True).returncode == 2


async def test_a_database_belongs_to_one_cell(world: World, cell_database_url: str) -> None:
    with pytest.raises(Terminal, match="cell-1"):
        await PostgresStore(cell_database_url, cell_name="cell-2", pool_size=1).open()


async def test_an_engine_that_is_away_is_retryable() -> None:
    store = PostgresStore("postgresql://nobody@127.0.0.1:1/none", cell_name="c", pool_size=1)
    store._database._pools[Purpose.COMMON].timeout = 0.2
    with pytest.raises(Retryable):
        await store.get_tenant(new_id())


async def test_partitions_are_made_ahead_once(store: PostgresStore, cell_database_url: str) -> None:
    await asyncio.gather(*(store.ensure_partitions(days_ahead=2) for _ in range(3)))
    await store.ensure_partitions(days_ahead=3)
    today = datetime.now(UTC).date()
    days = [f"{today + timedelta(days=i):%Y%m%d}" for i in range(-1, 4)]
    expected = [f"{table}_{day}" for table in ("journal", "runs") for day in [*days, "default"]]
    async with await psycopg.AsyncConnection.connect(cell_database_url, autocommit=True) as sql:
        cursor = await sql.execute(
            b"SELECT relname, reloptions::text FROM pg_class WHERE relispartition AND relkind = 'r'"
        )
        found: dict[str, str] = dict(await cursor.fetchall())
        assert sorted(found) == sorted(expected)
        assert "fillfactor=80" in found[f"runs_{days[1]}"]
        world = await make_world(store, sql)
        claim = await world.claimed(new_job(seconds_ago(1)))
        assert await world.rows("SELECT tableoid::regclass::text FROM runs") == [
            (f"runs_{claim.key.scheduled_for:%Y%m%d}",)
        ]


async def test_a_write_that_meets_a_new_partition_may_be_tried_again(
    world: World, cell_database_url: str
) -> None:
    now = datetime.now(UTC)
    async with await psycopg.AsyncConnection.connect(cell_database_url) as maker:
        await maker.execute(b"CREATE TABLE journal_now (LIKE journal INCLUDING ALL)")
        values = f"FROM ('{now}') TO ('{now + timedelta(days=1)}')"
        await maker.execute(f"ALTER TABLE journal ATTACH PARTITION journal_now FOR VALUES {values}".encode())
        writing = asyncio.create_task(world.create(new_job(seconds_ago(-60))))

        async def waits() -> bool:
            assert not writing.done()
            return bool(await world.value("SELECT count(*) FROM pg_locks WHERE NOT granted"))

        await eventually(waits)
        await maker.commit()
    with pytest.raises(Retryable, match="partition"):
        await writing
    await world.create(new_job(seconds_ago(-60)))


async def test_a_day_that_lies_in_the_default_partition_stays_there(world: World) -> None:
    claim = await world.claimed(new_job(seconds_ago(1)))
    await world.store.ensure_partitions(days_ahead=1)
    assert (await world.run(claim)).epoch == claim.epoch
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    assert await world.value("SELECT to_regclass(%s) IS NOT NULL", f"runs_{tomorrow:%Y%m%d}")


HOT = [
    "claim_lock_jobs",
    "claim_lock_runs",
    "claim_advance_jobs",
    "claim_update_runs",
    "claim_definitions",
    "complete_runs",
    "release_runs",
    "reap_suspects",
    "reap_runs",
    "due_jobs",
    "due_runs",
    "create_strict_counts",
    "create_known_keys",
    "job_get",
    "job_list",
    "job_list_by_facet",
    "run_get",
    "run_list",
    "run_list_of_job",
    "run_list_reached",
    "run_list_of_job_reached",
    "dlq_groups",
    "fold_rows",
    "seal_bodies",
    "meters_unshipped",
    "events_after",
    "events_newest",
    "operation_next",
    "operation_list",
    "letters_slice",
    "letters_redrive",
    "letters_returned",
    "letters_canaries",
    "herd_timers",
    "herd_recurring",
    "target_stats_read",
    "target_in_flight",
    "job_stats_read",
    "job_get_by_key",
    "concurrency_held",
]


async def test_hot_statements_use_indexes(store: PostgresStore) -> None:
    """On fresh partitions without statistics, with the store's own settings and generic plans."""
    await store.ensure_partitions(days_ahead=2)
    for name in HOT:
        plan = await explained(store, name)
        assert "Seq Scan" not in plan, (name, plan)
        assert "Hash Join" not in plan, (name, plan)
        assert "Merge Join" not in plan, (name, plan)


#: As of tables that nobody has looked at. The locks that this takes keep autovacuum out until the
#: transaction ends: otherwise it decides which plan a test sees.
FORGET_STATISTICS = """
SELECT count(pg_clear_relation_stats('public', relname)) FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'i', 'I')
UNION ALL
SELECT count(pg_clear_attribute_stats(schemaname, tablename, attname, inherited)) FROM pg_stats
WHERE schemaname = 'public'
"""
#: Of a table that statistics call tiny, the planner rather sorts the few rows there are. Forbidden to,
#: it sorts only what no index can give in order.
SORTING = ("sort", "incremental_sort", "bitmapscan")


async def explained(
    store: PostgresStore, name: str, *, without: Sequence[str] = (), statistics: bool = False
) -> str:
    """The generic plan of a named statement, without these ways of the planner where it has another."""
    statement = QUERIES[name].decode()
    names = dict.fromkeys(re.findall(r"%\((\w+)\)s", statement))
    for i, parameter in enumerate(names, 1):
        statement = statement.replace(f"%({parameter})s", f"${i}")
    explain = f"EXPLAIN (GENERIC_PLAN) {statement}"
    settings = [f"SET LOCAL enable_{way} = off" for way in without]
    async with store._database.transaction() as connection:
        for text in [*([] if statistics else [FORGET_STATISTICS]), *settings, explain]:
            cursor = await connection.execute(text.encode(), prepare=False)
        rows = await cursor.fetchall()
    return "\n".join(row[0] for row in rows)


async def test_feeds_and_lists_are_read_in_the_order_of_their_index(
    store: PostgresStore, world: World
) -> None:
    await world.sql.execute(b"ANALYZE events, jobs, job_versions, job_facets, runs")
    for statistics in (True, False):
        for name in (
            "events_after",
            "events_newest",
            "job_list",
            "job_list_by_facet",
            "run_list",
            "run_list_of_job",
            "run_list_reached",
            "run_list_of_job_reached",
        ):
            assert "Sort" not in await explained(store, name, without=SORTING, statistics=statistics), name
        # What has to be sorted is seen to be.
        assert "Sort" in await explained(store, "job_list_by_name", without=SORTING, statistics=statistics)
    # What no index finds is looked for below a limit of its own.
    for name in ("run_list", "run_list_of_job", "dlq_groups"):
        assert (await explained(store, name)).count("Limit") >= 2, name
    assert "host_id = h.host_id" in await explained(store, "target_in_flight")
    # Probes of a second term name the whole key.
    assert "(facet = $5) AND (created_at = f.created_at)" in await explained(store, "job_list_by_facet")
