"""The control plane on a real database."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.management.commands.setup_database import ensure_database
from controlplane.ownership import OwnershipStore
from controlplane.ownership.installed import installed_store
from controlplane.ownership.postgres import migrate
from tests.engines import TestEngines


@pytest.fixture(scope="session")
def ownership_url(engines: TestEngines) -> str:
    """URL of this process's ownership database: the one the settings name."""
    url = engines.database_url("ownership")
    ensure_database(url)  # other folders' conftests ask for it as well
    migrate(url)
    return url


@pytest.fixture
def ownership(ownership_url: str) -> OwnershipStore:
    """The installation's ownership store."""
    return installed_store()


@pytest.fixture
def control(db: None, ownership: OwnershipStore, settings: Any) -> None:
    """Both databases; what a test writes to the first is rolled back. Passwords are hashed fast."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
