"""Fixtures that give a test real engines, cheaply."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from cells.store.migrate import migrate
from tests.engines import ENGINES, TestEngines
from tests.stack import Stack

_TEMPLATE = "cell_template"
_names = itertools.count(1)
#: Logical databases for tests; the last one is Django's.
_logical = itertools.cycle(range(15))


@pytest.fixture(scope="session")
def engines() -> TestEngines:
    """Both engines, started."""
    ENGINES.start()
    return ENGINES


@pytest.fixture(scope="session")
def postgres_url(engines: TestEngines) -> str:
    """Admin URL of this process's PostgreSQL (fsync off)."""
    return engines.postgres.url


@pytest.fixture(scope="session")
def cell_template(postgres_url: str, engines: TestEngines) -> str:
    """Name of a migrated database that is copied for each test."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{_TEMPLATE}"')
    migrate(engines.database_url(_TEMPLATE))
    return _TEMPLATE


@pytest.fixture
def cell_database_url(postgres_url: str, cell_template: str, engines: TestEngines) -> Iterator[str]:
    """URL of a fresh, migrated cell database of this test alone."""
    name = f"cell_{next(_names)}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{cell_template}" STRATEGY FILE_COPY')
        yield engines.database_url(name)
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def empty_database_url(postgres_url: str, engines: TestEngines) -> Iterator[str]:
    """URL of a fresh, empty database of this test alone."""
    name = f"empty_{next(_names)}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
        yield engines.database_url(name)
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def valkey_url(engines: TestEngines) -> str:
    """URL of an empty logical database of this process's Valkey."""
    url = engines.valkey_url(next(_logical))
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


@pytest.fixture(scope="session")
def django_db_modify_db_settings(engines: TestEngines) -> None:
    """pytest-django asks for this before it makes its databases: the engines must be up."""


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The whole product, shared by the tests of this process that leave it as they found it."""
    with Stack() as stack:
        yield stack


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root folder."""
    return Path(__file__).resolve().parent.parent
