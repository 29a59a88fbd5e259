"""The installation's ownership store, by the address in the settings."""

from __future__ import annotations

from functools import lru_cache

from controlplane.ownership import dynamo, postgres
from controlplane.ownership.store import OwnershipStore


def is_dynamo(url: str) -> bool:
    """Whether an address names a DynamoDB table (else: a PostgreSQL database)."""
    return url.startswith(f"{dynamo.SCHEME}://")


def open_store(url: str) -> OwnershipStore:
    """The store at an address."""
    return dynamo.from_url(url) if is_dynamo(url) else postgres.PostgresOwnershipStore(url)


def prepare(url: str) -> None:
    """Makes what the store needs: the table, or the newest schema. Safe to run twice at once."""
    if is_dynamo(url):
        dynamo.from_url(url).ensure_table()
    else:
        postgres.migrate(url)


@lru_cache(maxsize=1)
def installed_store() -> OwnershipStore:
    """The installation's store, from the settings."""
    from django.conf import settings

    return open_store(settings.CONFIGURATION.ownership_url)
