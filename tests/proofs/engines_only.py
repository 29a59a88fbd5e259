"""Workflows on a PostgreSQL of their own, with fsync, for proofs that need nothing else of the product."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import uvloop

from cells.store.migrate import migrate
from cells.store.postgres import PostgresStore
from deploy.engines import temporary_postgres
from tests.component.cells.store.world import make_world
from tests.component.cells.workflows.harness import Flows


def flows_on_fresh_engines(prove: Callable[[Flows], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Run a proof on a store that nobody else uses."""

    async def run(url: str) -> dict[str, Any]:
        async with (
            PostgresStore(url, cell_name="cell-1", pool_size=12) as store,
            await psycopg.AsyncConnection.connect(url, autocommit=True) as sql,
        ):
            await store.ensure_partitions(days_ahead=1)
            world = await make_world(store, sql)
            host = await store.register_host(name="host-2", roles=["engine"], lease_ms=3_600_000)
            world.host_id = host.host_id
            return await prove(Flows(world=world, url=url))

    with temporary_postgres(durable=True) as postgres:
        migrate(postgres.url)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run(postgres.url))
