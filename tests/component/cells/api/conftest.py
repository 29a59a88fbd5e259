"""One cell for all tests of the API; each test has a tenant of its own in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import psycopg
import pytest
import pytest_asyncio

from cells.stores.registry import LocalStore, Registry
from tests.component.cells.api.harness import Api, Cell, cell
from tests.component.cells.api.two_stores import Door, Two
from tests.engines import TestEngines


@pytest.fixture(scope="session")
def shared_database_url(postgres_url: str, cell_template: str, engines: TestEngines) -> Iterator[str]:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "cell_api" TEMPLATE "{cell_template}" STRATEGY FILE_COPY')
        yield engines.database_url("cell_api")
        admin.execute('DROP DATABASE "cell_api" WITH (FORCE)')


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared(shared_database_url: str, engines: TestEngines) -> AsyncIterator[Cell]:
    async with cell(shared_database_url, engines.valkey_url(14)) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def running(shared: Cell) -> AsyncIterator[Cell]:
    """The API on real engines, with a fresh tenant."""
    made = shared.for_tenant()
    # Between two of these tests the loop may have stood still for longer than a lease.
    await made.host.wait_live()
    await made.place(made.api.tenant)
    yield made
    made.clock.ahead_ms = 0


@pytest.fixture
def api(running: Cell) -> Api:
    """That tenant's way to it."""
    return running.api


@pytest_asyncio.fixture(loop_scope="session")
async def own(cell_database_url: str, valkey_url: str) -> AsyncIterator[Cell]:
    """A cell of this test alone, to be broken."""
    async with cell(cell_database_url, valkey_url) as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pair(postgres_url: str, cell_template: str, engines: TestEngines) -> AsyncIterator[Two]:
    """One pair of stores for all tests; each has a tenant of its own."""
    names = ("cell_stores_own", "cell_stores_local")
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        for name in names:
            admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{cell_template}" STRATEGY FILE_COPY')
    own_url, local_url = (engines.database_url(name) for name in names)
    valkey_url = engines.valkey_url(14)
    try:
        async with cell(local_url, valkey_url, stores=Registry(own=1)) as local:
            door = Door(local)
            await door.open()
            store = LocalStore(number=1, region="east", url=f"http://127.0.0.1:{door.port}")
            async with cell(own_url, valkey_url, stores=Registry(local=(store,))) as main:
                yield Two(main, local, door)
            await door.close()
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            for name in names:
                admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest_asyncio.fixture(loop_scope="session")
async def two(pair: Two) -> Two:
    """A cell with a local store, and a fresh tenant."""
    main = pair.main.for_tenant()
    for each in (main, pair.local):
        await each.host.wait_live()
    await main.place(main.api.tenant)
    return replace(pair, main=main)
