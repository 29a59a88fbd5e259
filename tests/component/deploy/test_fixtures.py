"""What the fixtures promise the other tests."""

from __future__ import annotations

import time

import psycopg
import redis


def test_a_cell_database_is_migrated_and_cheap(cell_database_url: str) -> None:
    started = time.monotonic()
    with psycopg.connect(cell_database_url) as database:
        shards = database.execute("SELECT count(*) FROM shard_leases").fetchone()
    assert shards == (256,)
    assert time.monotonic() - started < 5


def test_cell_databases_do_not_share_rows(cell_database_url: str) -> None:
    with psycopg.connect(cell_database_url) as database:
        assert database.execute("SELECT count(*) FROM cell").fetchone() == (0,)
        database.execute("INSERT INTO cell (name) VALUES ('first')")


def test_cell_databases_do_not_share_rows_either_way(cell_database_url: str) -> None:
    test_cell_databases_do_not_share_rows(cell_database_url)


def test_a_logical_valkey_database_is_empty(valkey_url: str) -> None:
    with redis.Redis.from_url(valkey_url) as client:
        assert client.dbsize() == 0
        client.set("left", "behind")
