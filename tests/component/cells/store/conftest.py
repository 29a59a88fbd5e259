"""A store on a clean database, with two tenants, a host and an approved target each."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from cells.store.postgres import PostgresStore
from tests.component.cells.store.world import World, make_world
from tests.engines import TestEngines

_NAME = "store_tests"

#: As after the migrations. Many times faster than a database of its own for each test.
_CLEAN = b"""
DO $$
DECLARE
    names text;
    partition regclass;
    used boolean;
BEGIN
    FOR partition IN SELECT oid::regclass FROM pg_class
                     WHERE relispartition AND relkind = 'r' AND relname NOT LIKE '%_default' LOOP
        EXECUTE format('DROP TABLE %s', partition);
    END LOOP;
    -- Emptying a table makes new files for it and its indexes; most tests write to few.
    FOR partition IN SELECT oid::regclass FROM pg_class
                     WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
                       AND NOT relispartition AND relname <> 'schema_migrations' LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', partition) INTO used;
        IF used THEN
            names := concat_ws(', ', names, partition::text);
        END IF;
    END LOOP;
    IF names IS NOT NULL THEN
        EXECUTE 'TRUNCATE ' || names || ' RESTART IDENTITY CASCADE';
    END IF;
    INSERT INTO shard_leases (shard) SELECT generate_series(0, 255);
    INSERT INTO meter_state (gauged_at, stored_next, jobs_since, jobs_until)
    VALUES ('epoch', 'epoch', 'epoch', date_trunc('minute', now()));
END $$
"""


@pytest.fixture(scope="session")
def store_database_url(postgres_url: str, cell_template: str, engines: TestEngines) -> str:
    """One database for all tests of this process that work on the store's world; packages that borrow
    this fixture have an instance of their own, and find it made."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        made = admin.execute("SELECT FROM pg_database WHERE datname = %s", [_NAME]).fetchone()
        if made is None:
            admin.execute(f'CREATE DATABASE "{_NAME}" TEMPLATE "{cell_template}" STRATEGY FILE_COPY'.encode())
    return engines.database_url(_NAME)


@pytest.fixture
def cell_database_url(store_database_url: str) -> str:
    """Instead of a fresh database: the shared one, cleaned."""
    with psycopg.connect(store_database_url, autocommit=True) as sql:
        sql.execute(b"SET lock_timeout = '10s'")
        sql.execute(_CLEAN)
    return store_database_url


@pytest.fixture
async def store(cell_database_url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(cell_database_url, cell_name="cell-1", pool_size=12) as store:
        yield store


@pytest.fixture
async def world(store: PostgresStore, cell_database_url: str) -> AsyncIterator[World]:
    async with await psycopg.AsyncConnection.connect(cell_database_url, autocommit=True) as sql:
        yield await make_world(store, sql)
