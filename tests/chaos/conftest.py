"""Tests that kill processes have the machine to themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.lock import whole_machine


@pytest.fixture(scope="session", autouse=True)
def machine() -> Iterator[None]:
    """Held for all chaos tests of a run."""
    with whole_machine("chaos tests"):
        yield
