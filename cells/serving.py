"""The HTTP server inside the process: uvicorn, without its own ideas about signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process decides when to stop."""
        yield


class HttpServer:
    """Serves one application on one address, from before the engines are there to the drain."""

    def __init__(self, app: ASGIApp, *, host: str, port: int, lifespan: bool, drain_seconds: float):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        #: Bound at once: a taken port is an error of the start, not of some later moment.
        self.socket = socket.create_server((host, port), family=family, backlog=2048)
        self._server = _Server(
            uvicorn.Config(
                app,
                lifespan="on" if lifespan else "off",
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=2048,
                timeout_graceful_shutdown=max(1, round(drain_seconds)),
            )
        )

    @property
    def port(self) -> int:
        """The port it listens on (a free one was chosen where 0 was asked for)."""
        return int(self.socket.getsockname()[1])

    async def serve(self) -> None:
        """Until `stop`."""
        await self._server.serve(sockets=[self.socket])

    def stop(self) -> None:
        """Accept nothing more, finish what was begun."""
        self._server.should_exit = True

    async def ended(self, task: asyncio.Task[None], seconds: float) -> None:
        """Wait for the end of `serve`, no longer than that."""
        await asyncio.wait([task], timeout=seconds)
