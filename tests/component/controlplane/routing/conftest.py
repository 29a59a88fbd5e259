"""A router with everything around it, for one test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.component.controlplane.routing.surroundings import World


@pytest.fixture
async def world(tmp_path: Path, valkey_url: str) -> AsyncIterator[World]:
    """Started and ready."""
    world = World(tmp_path, valkey_url)
    try:
        await world.start()
        yield world
    finally:
        await world.stop()
    assert "Traceback" not in world.log(), world.log()
