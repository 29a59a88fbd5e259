"""A store on a database of its own, with two tenants, a host and an approved target each."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from cells.store.postgres import PostgresStore
from tests.component.cells.store.world import World, make_world


@pytest.fixture
async def store(cell_database_url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(cell_database_url, cell_name="cell-1", pool_size=12) as store:
        yield store


@pytest.fixture
async def world(store: PostgresStore, cell_database_url: str) -> AsyncIterator[World]:
    async with await psycopg.AsyncConnection.connect(cell_database_url, autocommit=True) as sql:
        yield await make_world(store, sql)
