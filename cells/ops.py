"""What every process of a cell answers, whatever its roles: /healthz, /readyz, /metrics.

Healthy means the event loop turns. Ready means that this process can do its work now: engines
answer and the host's lease is live. An engine that is away makes it unready, never unhealthy:
a restart would not bring the engine back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cells.observability.logs import logger
from cells.observability.metrics import CONTENT_TYPE, Metrics

log = logger(__name__)

PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
#: A check that takes longer has failed (seconds).
CHECK_SECONDS = 2.0
#: Answers are kept this long: probes of several balancers must not become load (seconds).
_KEPT_SECONDS = 0.5

#: Returns, or raises and says what is wrong.
Check = Callable[[], Awaitable[None]]


class Readiness:
    """Runs named checks, together, at most every half second."""

    def __init__(self, checks: Mapping[str, Check]):
        self._checks = dict(checks)
        self._answer: dict[str, str] = {}
        self._logged: dict[str, str] = {}
        self._at = float("-inf")
        self._lock = asyncio.Lock()

    async def __call__(self) -> dict[str, str]:
        """`ok`, `no answer` or `unavailable`, by check; what is wrong is logged."""
        async with self._lock:
            if time.monotonic() - self._at > _KEPT_SECONDS:
                results = await asyncio.gather(*(self._run(*each) for each in self._checks.items()))
                self._answer = dict(zip(self._checks, results, strict=True))
                self._at = time.monotonic()
            return self._answer

    async def _run(self, name: str, check: Check) -> str:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await check()
        except TimeoutError:
            return "no answer"
        except Exception as fault:  # noqa: BLE001 - whatever a check raises is its answer
            # Anybody may ask: addresses and names of engines are for the log alone.
            text = str(fault)[:200] or type(fault).__name__
            if self._logged.get(name) != text:
                log.warning("not ready", check=name, fault=text)
            self._logged[name] = text
            return "unavailable"
        self._logged.pop(name, None)
        return "ok"


def ops_app(readiness: Readiness, metrics: Metrics) -> Starlette:
    """The three routes."""

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        checks = await readiness()
        ready = all(answer == "ok" for answer in checks.values())
        return JSONResponse(
            {"status": "ready" if ready else "not ready", "checks": checks},
            status_code=200 if ready else 503,
        )

    async def metrics_text(_: Request) -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics_text),
        ]
    )


def in_front(ops: ASGIApp, api: ASGIApp | None) -> ASGIApp:
    """One application: the ops paths, and the API for the rest (with its lifespan)."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        mine = api is None or (scope["type"] == "http" and scope["path"] in PATHS)
        await (ops if api is None or mine else api)(scope, receive, send)

    return app
