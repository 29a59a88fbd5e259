"""A real HTTP server whose answers a test decides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from multidict import CIMultiDictProxy

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Received:
    """One request as it arrived."""

    method: str
    path: str
    headers: CIMultiDictProxy[str]
    body: bytes


@dataclass
class HttpTarget:
    """Remembers what it received; `answer` may be replaced at any time."""

    answer: Handler
    url: str = ""
    received: list[Received] = field(default_factory=list)
    connections: set[object] = field(default_factory=set)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.connections.add(request.transport)
        self.received.append(Received(request.method, request.path_qs, request.headers, await request.read()))
        return await self.answer(request)


def answering(status: int, text: str = "", **headers: str) -> Handler:
    """Always the same answer. Underscores in header names stand for hyphens."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(
            status=status, text=text, headers={name.replace("_", "-"): v for name, v in headers.items()}
        )

    return answer


def in_turn(*handlers: Handler) -> Handler:
    """Each answer once, the last one for ever."""
    left = list(handlers)

    async def answer(request: web.Request) -> web.StreamResponse:
        handler = left.pop(0) if len(left) > 1 else left[0]
        return await handler(request)

    return answer


@asynccontextmanager
async def http_target(answer: Handler | None = None) -> AsyncIterator[HttpTarget]:
    """A target on a free port of 127.0.0.1."""
    target = HttpTarget(answer or answering(200, "ok"))
    app = web.Application(client_max_size=10 << 20)
    app.router.add_route("*", "/{path:.*}", target.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    target.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield target
    finally:
        await runner.cleanup()
