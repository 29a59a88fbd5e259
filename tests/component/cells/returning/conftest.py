"""A region and the one that took its cell over: two databases that were one until the loss."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psycopg
import pytest

from cells.clock import SystemClock
from cells.observability.metrics import Metrics
from cells.ownership.handing_in import HandedIn, hand_in
from cells.ownership.tail import tail_of
from cells.ports import Fence
from cells.returning.service import Returning
from cells.store.postgres import PostgresStore
from cells.timers.queue import ValkeyQueue
from tests.component.cells.store.world import World, make_world

#: The cell's epochs before and after the loss.
BEFORE, AFTER = 5, 9


@dataclass(kw_only=True)
class Owner:
    """The region that owns the cell now."""

    url: str
    world: World
    service: Returning

    async def judge(self) -> int:
        judged = await self.service.step()
        await self.service.step()
        return judged

    async def outcomes(self, tenant: uuid.UUID) -> list[tuple[str, str]]:
        """(verb or kind, outcome) of a tenant's entries, in order."""
        entries = await self.world.store.reconciliation(tenant, after=None, limit=1000)
        return [(entry.verb or entry.kind, entry.outcome.value) for entry in entries]


@dataclass(kw_only=True)
class Lost:
    """The region that owned the cell."""

    url: str
    world: World
    owner_url: str
    queue: ValkeyQueue

    def hand_in(self, *gone: uuid.UUID) -> HandedIn:
        tail = tail_of(self.url, owner_url=self.owner_url, epoch=AFTER)
        return hand_in(
            self.url, tail, owner_url=self.owner_url, region="a", epoch=AFTER, gone=lambda one: one in gone
        )

    @asynccontextmanager
    async def taken_over(self, postgres_url: str) -> AsyncIterator[Owner]:
        """The copy, under a new epoch."""
        fences = [Fence(tenant_id=one.tenant_id, epoch=one.epoch + 7) for one in (self.world.a, self.world.b)]
        async with await psycopg.AsyncConnection.connect(self.owner_url, autocommit=True) as sql:
            await sql.execute(b"UPDATE tenants SET ownership_epoch = ownership_epoch + 7")
            await sql.execute(b"UPDATE cell SET epoch = %s, lease_until = now() + interval '1 hour'", [AFTER])
            async with PostgresStore(self.owner_url, cell_name="cell-1", pool_size=4, leased=True) as store:
                host = await store.register_host(name="h-after", roles=["reaper"], lease_ms=60_000)
                world = World(
                    store=store, sql=sql, a=fences[0], b=fences[1], host_id=host.host_id, host_name="h-after"
                )
                service = Returning(store, self.queue, SystemClock(), Metrics(), host_id=lambda: host.host_id)
                yield Owner(url=self.owner_url, world=world, service=service)


@pytest.fixture
def owner_database(postgres_url: str) -> Iterator[str]:
    name = f"owner_{uuid.uuid4().hex[:12]}"
    yield name
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())


@pytest.fixture
async def lost(
    cell_database_url: str, owner_database: str, postgres_url: str, valkey_url: str
) -> AsyncIterator[Lost]:
    """What both have is written and copied; what `world` writes from here on, only the lost region has."""
    with psycopg.connect(cell_database_url, autocommit=True) as sql:
        sql.execute(
            b"INSERT INTO cell (name, epoch, lease_until) VALUES ('cell-1', %s, now() + interval '1 hour')",
            [BEFORE],
        )
    async with (
        PostgresStore(cell_database_url, cell_name="cell-1", pool_size=4, leased=True) as store,
        await psycopg.AsyncConnection.connect(cell_database_url, autocommit=True) as sql_,
    ):
        world = await make_world(store, sql_)
    _copy(postgres_url, cell_database_url.rsplit("/", 1)[1], owner_database)
    queue = ValkeyQueue(valkey_url, cell="cell-1", clock=SystemClock())
    await queue.open()
    async with (
        PostgresStore(cell_database_url, cell_name="cell-1", pool_size=4, leased=True) as store,
        await psycopg.AsyncConnection.connect(cell_database_url, autocommit=True) as sql_,
    ):
        host = await store.register_host(name="h-before", roles=["executor"], lease_ms=60_000)
        world = World(store=store, sql=sql_, a=world.a, b=world.b, host_id=host.host_id, host_name="h-before")
        owner_url = cell_database_url.rsplit("/", 1)[0] + f"/{owner_database}"
        yield Lost(url=cell_database_url, world=world, owner_url=owner_url, queue=queue)
    await queue.close()


def _copy(postgres_url: str, name: str, copy: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{copy}" TEMPLATE "{name}" STRATEGY FILE_COPY'.encode())
