from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.component.cells.api.harness import Api, Cell, cell


@pytest.fixture
async def running(cell_database_url: str, valkey_url: str) -> AsyncIterator[Cell]:
    """The API on real engines, with one tenant."""
    async with cell(cell_database_url, valkey_url) as made:
        yield made


@pytest.fixture
def api(running: Cell) -> Api:
    """That tenant's way to it."""
    return running.api
