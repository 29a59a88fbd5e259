"""A target that remembers every call it gets: the witness in proofs, chaos and acceptance tests."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType

from aiohttp import web


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call as it arrived. `at` is wall time in seconds."""

    at: float
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers.get("Idempotency-Key", "")


@dataclass
class Recorder:
    """An HTTP server on a free loopback port, in a thread of its own.

    `delay_seconds` is how long each answer takes; `status` is what it says.
    """

    delay_seconds: float = 0.0
    status: int = 200
    calls: list[Call] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="recorder", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def keys(self) -> Counter[str]:
        """How often each idempotency key was seen."""
        return Counter(call.key for call in list(self.calls))

    def __enter__(self) -> Recorder:
        self._thread.start()
        if not self._up.wait(10):
            raise RuntimeError("the recording target did not start within 10 s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _answer(self, request: web.Request) -> web.Response:
        arrived = time.time()
        body = await request.read()
        self.calls.append(
            Call(
                at=arrived,
                method=request.method,
                path=request.path_qs,
                headers=request.headers.copy(),
                body=body,
            )
        )
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        return web.Response(status=self.status, text="seen")

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)

        async def start() -> web.AppRunner:
            app = web.Application(client_max_size=16 * 1024 * 1024)
            app.router.add_route("*", "/{tail:.*}", self._answer)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
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
