"""A small HTTP target for demo jobs and tests: it answers with what it received.

`GET /calls` lists recent calls, newest first (`?path=` narrows); `/status/<code>` answers with
that code, `/slow/<ms>` after that time; anything else answers 200.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import deque

from aiohttp import web

_KEPT = 10_000


class Record:
    """The calls we remember."""

    def __init__(self) -> None:
        self.calls: deque[dict[str, object]] = deque(maxlen=_KEPT)
        self.total = 0


_RECORD = web.AppKey("record", Record)


async def _record(request: web.Request) -> dict[str, object]:
    record = request.app[_RECORD]
    body = await request.text()
    record.total += 1
    call: dict[str, object] = {
        "number": record.total,
        "at_ms": time.time_ns() // 1_000_000,
        "method": request.method,
        "path": request.path,
        "query": request.query_string,
        "headers": dict(request.headers),
        "body": body,
    }
    record.calls.appendleft(call)
    return call


async def _list(request: web.Request) -> web.Response:
    path = request.query.get("path")
    limit = int(request.query.get("limit", "100"))
    calls = (call for call in request.app[_RECORD].calls if path is None or call["path"] == path)
    return web.json_response(
        {"total": request.app[_RECORD].total, "calls": list(itertools.islice(calls, limit))}
    )


async def _ready(_request: web.Request) -> web.Response:
    return web.json_response({"status": "ready"})


async def _echo(request: web.Request) -> web.Response:
    return web.json_response(await _record(request))


async def _status(request: web.Request) -> web.Response:
    return web.json_response(await _record(request), status=int(request.match_info["code"]))


async def _slow(request: web.Request) -> web.Response:
    call = await _record(request)
    await asyncio.sleep(int(request.match_info["ms"]) / 1000)
    return web.json_response(call)


def application() -> web.Application:
    """The echo target."""
    app = web.Application(client_max_size=2**21)
    app[_RECORD] = Record()
    app.router.add_get("/calls", _list)
    app.router.add_get("/healthz", _ready)
    app.router.add_get("/readyz", _ready)
    app.router.add_route("*", r"/status/{code:[2-5]\d\d}", _status)
    app.router.add_route("*", r"/slow/{ms:\d{1,6}}", _slow)
    app.router.add_route("*", "/{anything:.*}", _echo)
    return app


def main() -> None:
    """Serve on ECHO_BIND (`host:port`)."""
    host, _, port = os.environ["ECHO_BIND"].rpartition(":")
    web.run_app(application(), host=host, port=int(port), access_log=None, print=None)


if __name__ == "__main__":
    main()
