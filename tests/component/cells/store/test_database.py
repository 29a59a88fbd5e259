"""Connections: what is kept for what, and a start while the engine is away."""

from __future__ import annotations

from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import psycopg
import pytest

from cells.ports import Retryable
from cells.store import database
from cells.store.database import Database, Purpose
from cells.store.postgres import PostgresStore
from tests.component.cells.store.world import World


async def test_a_lease_is_renewed_while_everything_else_waits(world: World, cell_database_url: str) -> None:
    async with (
        PostgresStore(cell_database_url, cell_name="cell-1", pool_size=6) as store,
        AsyncExitStack() as held,
    ):
        host = await store.register_host(name="h", roles=["api"], lease_ms=60_000)
        for purpose in (Purpose.URGENT, Purpose.URGENT, *[Purpose.COMMON] * 3):
            await held.enter_async_context(store._database.transaction(purpose))
        assert await store.renew_host(host_id=host.host_id, lease_ms=60_000) is not None
        await store.register_host(name="again", roles=["api"], lease_ms=60_000)
        await store.retire_host(host_id=host.host_id)
        assert await world.value("SELECT count(*) FROM live_hosts WHERE name IN ('h', 'again')") == 1


async def test_a_start_is_repeated_until_the_engine_has_room(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `Host` does it."""
    name = "not_there_at_first"
    url = urlsplit(postgres_url)._replace(path=f"/{name}").geturl()
    made = Database(url, pool_size=6, application_name="test")
    with monkeypatch.context() as impatient:
        impatient.setattr(database, "OPEN_SECONDS", 0.2)
        for _ in range(2):
            with pytest.raises(Retryable):
                await made.open()
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"'.encode())
        try:
            await made.open()
            for purpose in Purpose:
                async with made.transaction(purpose) as connection:
                    assert await (await connection.execute("SELECT 1")).fetchone() == (1,)
            await made.open()  # once more is no harm
            await made.close()
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
