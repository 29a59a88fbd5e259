from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.component.cells.execution.harness import Cell, cell
from tests.component.cells.execution.http_target import HttpTarget, http_target


@pytest.fixture
async def target() -> AsyncIterator[HttpTarget]:
    """An HTTP server that says ok."""
    async with http_target() as running:
        yield running


@pytest.fixture
async def running_cell(cell_database_url: str, valkey_url: str) -> AsyncIterator[Cell]:
    """Host, dispatcher and executor."""
    async with cell(cell_database_url, valkey_url) as made:
        yield made
