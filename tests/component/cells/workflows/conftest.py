"""Workflows on a clean store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from cells.store.postgres import PostgresStore
from tests.component.cells.store.conftest import _CLEAN
from tests.component.cells.store.world import make_world
from tests.component.cells.workflows.harness import Flows
from tests.engines import TestEngines

_NAME = "workflow_tests"


@pytest.fixture(scope="session")
def workflow_database_url(postgres_url: str, cell_template: str, engines: TestEngines) -> str:
    """One database for all of these tests."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{_NAME}" TEMPLATE "{cell_template}" STRATEGY FILE_COPY'.encode())
    return engines.database_url(_NAME)


@pytest.fixture
async def flows(workflow_database_url: str) -> AsyncIterator[Flows]:
    """A tenant that has workflows, and an engine that goes round when it is asked to."""
    with psycopg.connect(workflow_database_url, autocommit=True) as sql:
        sql.execute(b"SET lock_timeout = '10s'")
        sql.execute(_CLEAN)
    async with (
        PostgresStore(workflow_database_url, cell_name="cell-1", pool_size=12) as store,
        await psycopg.AsyncConnection.connect(workflow_database_url, autocommit=True) as sql,
    ):
        yield Flows(world=await make_world(store, sql), url=workflow_database_url)
