"""A small real HTTP server that answers as a test tells it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from controlplane.client import Clockhouse, Retries
from controlplane.client.cli import app


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """A request as it arrived."""

    at: float
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


Handler = Callable[[Received], Any]


@dataclass
class Server:
    """Answers with what `script` has next, or with what `handler` makes. An answer is a body (200), a
    (status, body) or (status, body, headers), or an exception: the connection is cut."""

    handler: Handler | None = None
    script: list[Any] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._up.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        received = Received(
            at=time.monotonic(),
            method=request.method,
            path=request.raw_path.partition("?")[0],
            query=dict(request.query),
            headers={name.lower(): value for name, value in request.headers.items()},
            body=json.loads(body) if body else None,
        )
        self.received.append(received)
        made = self.script.pop(0) if self.script else None
        if made is None:
            assert self.handler is not None, "nothing is scripted any more"
            made = self.handler(received)
        if asyncio.iscoroutine(made):
            made = await made
        if isinstance(made, BaseException):
            assert request.transport is not None
            request.transport.abort()
            raise made
        status, document, headers = (*made, {})[:3] if isinstance(made, tuple) else (200, made, {})
        text = document if isinstance(document, str) else json.dumps(document)
        return web.Response(status=status, text=text, headers=headers, content_type="application/json")

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)

        async def start() -> web.AppRunner:
            app = web.Application()
            app.router.add_route("*", "/{tail:.*}", self._answer)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            return runner

        runner = self._loop.run_until_complete(start())
        self._up.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(server: Server) -> Iterator[Clockhouse]:
    """A client whose pauses are short."""
    with Clockhouse(server.url, "ch_live_test", timeout=5, retries=QUICK) as client:
        yield client


QUICK = Retries(attempts=4, first_seconds=0.01, most_seconds=0.02)


@pytest.fixture
def cli(server: Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command line against that server, by its words."""
    monkeypatch.setenv("CLOCKHOUSE_API_URL", server.url)
    monkeypatch.setenv("CLOCKHOUSE_API_KEY", "ch_live_test")

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, list(words))

    return run
