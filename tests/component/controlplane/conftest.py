"""The control plane on a real database."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from controlplane.ownership.postgres import PostgresOwnershipStore, installed_store, migrate
from tests.engines import TestEngines


@pytest.fixture(scope="session")
def ownership_url(engines: TestEngines) -> str:
    """URL of this process's ownership database: the one the settings name."""
    url = engines.database_url("ownership")
    with psycopg.connect(engines.postgres.url, autocommit=True) as admin:
        admin.execute('CREATE DATABASE "ownership"')
    migrate(url)
    return url


@pytest.fixture
def ownership(ownership_url: str) -> Iterator[PostgresOwnershipStore]:
    """The installation's ownership store."""
    yield installed_store()


@pytest.fixture
def control(db: None, ownership: PostgresOwnershipStore) -> None:
    """Both databases; what a test writes to the first is rolled back."""
