from __future__ import annotations

import httpx
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from cells.observability.metrics import Metrics
from cells.ops import Readiness, in_front, ops_app
from cells.ports import Retryable


async def good() -> None:
    return None


async def bad() -> None:
    raise Retryable("no connection")


async def get(app: ASGIApp, path: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://cell") as client:
        return await client.get(path)


async def test_ready_only_if_every_check_is() -> None:
    ready = await get(ops_app(Readiness({"store": good, "queue": good}), Metrics()), "/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    unready = await get(ops_app(Readiness({"store": good, "queue": bad}), Metrics()), "/readyz")
    assert unready.status_code == 503
    assert unready.json() == {"status": "not ready", "checks": {"store": "ok", "queue": "unavailable"}}


async def test_checks_are_shared_by_probes_that_come_together() -> None:
    runs = 0

    async def counted() -> None:
        nonlocal runs
        runs += 1

    app = ops_app(Readiness({"store": counted}), Metrics())
    for _ in range(5):
        assert (await get(app, "/readyz")).status_code == 200
    assert runs == 1


async def test_healthy_whatever_the_checks_say_and_the_rest_is_the_apis() -> None:
    async def jobs(_: object) -> PlainTextResponse:
        return PlainTextResponse("jobs")

    ops = ops_app(Readiness({"store": bad}), Metrics())
    app = in_front(ops, Starlette(routes=[Route("/v1/jobs", jobs)]))
    assert (await get(app, "/healthz")).json() == {"status": "ok"}
    assert "process_cpu_seconds_total" in (await get(app, "/metrics")).text
    assert (await get(app, "/v1/jobs")).text == "jobs"
    assert (await get(in_front(ops, None), "/v1/jobs")).status_code == 404
