"""A cell with two stores: its own one, and a local one whose API can be taken away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from cells.contract import Scope
from cells.domain import ids
from cells.ports import JobFilter
from cells.serving import HttpServer
from cells.stores.elsewhere import Elsewhere
from tests.component.cells.api.harness import Api, Cell

EVERY = JobFilter()
AT_HOME = {"region_policy": "SINGLE_REGION"}


class Door:
    """The API of the local store: closed, its region is away."""

    def __init__(self, cell_: Cell) -> None:
        self._cell, self.port = cell_, 0

    async def open(self) -> None:
        self._server = HttpServer(
            self._cell.api.app, host="127.0.0.1", port=self.port, lifespan=False, drain_seconds=1
        )
        self.port = self._server.port
        self._serving = asyncio.create_task(self._server.serve())

    async def close(self) -> None:
        self._server.stop()
        await self._serving


@dataclass
class Two:
    """The cell's own store and a local one, with a way to take the latter's API away."""

    main: Cell
    local: Cell
    door: Door

    @property
    def api(self) -> Api:
        return self.main.api

    @property
    def control(self) -> Api:
        """The control plane."""
        return replace(self.api, scopes=(Scope.INTERNAL.value,), actor="service:control-plane")

    @property
    def elsewhere(self) -> Elsewhere:
        found = self.main.services.elsewhere
        assert found is not None
        return found

    async def local_jobs(self) -> set[str]:
        """Ids of the tenant's jobs in the local store."""
        rows = await self.local.store.list_jobs(self.api.tenant, EVERY, after=None, limit=100)
        return {ids.encode(ids.JOB, row.job_id) for row in rows}

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """The role `stores`."""
        stop = asyncio.Event()
        task = asyncio.create_task(self.elsewhere.run(stop))
        yield
        stop.set()
        await task
