"""The PostgreSQL ownership store: conformance, migrations, outages."""

from __future__ import annotations

import uuid

import pytest

from controlplane.ownership import OwnershipStore
from controlplane.ownership.postgres import PostgresOwnershipStore, migrate
from controlplane.ownership.store import OwnershipUnavailable
from tests.conformance.ownership.suite import OwnershipConformance


class TestPostgres(OwnershipConformance):
    @pytest.fixture
    def store(self, ownership: OwnershipStore) -> OwnershipStore:
        return ownership


def test_migrations_apply_once(empty_database_url: str) -> None:
    assert migrate(empty_database_url) >= 1
    assert migrate(empty_database_url) == 0
    store = PostgresOwnershipStore(empty_database_url)
    assert store.claim_cell("c", region="a", expected=None).epoch == 1
    store.close()


def test_a_store_that_is_away_says_so() -> None:
    store = PostgresOwnershipStore("postgresql://nobody@127.0.0.1:1/none", timeout_seconds=0.2)
    with pytest.raises(OwnershipUnavailable):
        store.tenant(uuid.uuid4())
    store.close()
