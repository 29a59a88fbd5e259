"""A real store, and a receiver listening on a port of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.component.cells.metering.ledger import Ledger
from tests.component.cells.store.conftest import store, world

__all__ = ["store", "world"]


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    ledger = Ledger()
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/control/internal/meters", ledger.meters)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    ledger.url = f"http://{host}:{port}/control/"
    yield ledger
    await runner.cleanup()
