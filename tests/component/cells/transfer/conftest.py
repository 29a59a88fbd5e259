"""Two cells with a database each, the verbs of both, and a tenant in the first."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import psycopg
import pytest

from cells.clock import SystemClock
from cells.store.postgres import PostgresStore
from cells.store.transfer import TransferStore
from cells.timers.queue import ValkeyQueue
from cells.transfer.service import TransferService
from tests.component.cells.store.world import make_world
from tests.component.cells.transfer.pair import Pair, Side
from tests.engines import TestEngines

_KEY = secrets.token_bytes(32)


@pytest.fixture
def two_databases(postgres_url: str, cell_template: str, engines: TestEngines) -> Iterator[tuple[str, str]]:
    """Two fresh, migrated cells' databases."""
    names = [f"move_{uuid.uuid4().hex[:12]}" for _ in range(2)]
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        for name in names:
            admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{cell_template}" STRATEGY FILE_COPY'.encode())
        yield engines.database_url(names[0]), engines.database_url(names[1])
        for name in reversed(names):
            _forget(engines.database_url(name))
        for name in names:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def _forget(url: str) -> None:
    """Subscriptions and slots keep a database; roles outlive it."""
    with psycopg.connect(url, autocommit=True) as sql:
        for (link,) in sql.execute(
            "SELECT subname FROM pg_subscription WHERE subdbid ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())"
        ).fetchall():
            sql.execute("SELECT transfer_unsubscribe(%s)", [link])
        for (pid,) in sql.execute(
            "SELECT active_pid FROM pg_replication_slots"
            " WHERE database = current_database() AND active_pid IS NOT NULL"
        ).fetchall():
            sql.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        sql.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = current_database()"
        )
        for (link,) in sql.execute("SELECT link FROM transfers WHERE side = 'SOURCE'").fetchall():
            sql.execute("SELECT transfer_unpublish(%s)", [link])


@pytest.fixture
async def pair(two_databases: tuple[str, str], valkey_url: str) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        clock = SystemClock()
        sides = []
        for name, url in zip(("cell-1", "cell-2"), two_databases, strict=True):
            store = await stack.enter_async_context(PostgresStore(url, cell_name=name, pool_size=6))
            await store.ensure_partitions(days_ahead=1)
            queue = ValkeyQueue(valkey_url, cell=name, clock=clock)
            await queue.open()
            stack.push_async_callback(queue.close)
            sql = await stack.enter_async_context(
                await psycopg.AsyncConnection.connect(url, autocommit=True, application_name="test")
            )
            world = await make_world(store, sql)
            service = TransferService(
                store,
                TransferStore(url, cell_name=name),
                queue,
                clock,
                installation_key=_KEY,
                host_id=lambda world=world: world.host_id,  # type: ignore[misc]
            )
            sides.append(Side(name=name, url=url, store=store, world=world, service=service))
        yield Pair(source=sides[0], destination=sides[1])
