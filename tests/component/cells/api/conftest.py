"""One cell for all tests of the API; each test has a tenant of its own in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
import pytest_asyncio

from tests.component.cells.api.harness import Api, Cell, cell
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
