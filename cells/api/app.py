"""The cell's HTTP API as an ASGI application."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from cells.api import (
    backfills,
    batches,
    calendars,
    declaring,
    definition_checks,
    definitions,
    delays,
    dlq,
    erasures,
    events,
    herd,
    internal,
    job_changes,
    jobs,
    ledger,
    lengthening,
    moves,
    openapi,
    problems,
    punctuality,
    reconciling,
    redrives,
    returned,
    runs,
    schedules,
    selections,
    snapshots,
    stats,
    target_health,
    targets,
    task_queues,
    telling,
    tenant_metrics,
    usage,
    worker_calls,
    workflow_changes,
    workflows,
)
from cells.api.auth import Gate
from cells.api.services import Host, Services
from cells.config import Settings
from cells.contract import CELLS_KID, cells_key
from cells.erasure_ports import Erasures
from cells.observability.metrics import Metrics
from cells.observability.traces import Traces
from cells.ports import Clock, History, Queue, Secrets, Store, TargetTrial
from cells.stores.elsewhere import Elsewhere
from cells.stores.ports import LocalStores
from cells.transfer_ports import Transfers

#: Tried in this order, the busiest first.
_RESOURCES = (
    *(jobs, task_queues, worker_calls, batches, declaring, ledger, runs, job_changes),
    *(
        schedules,
        calendars,
        backfills,
        targets,
        target_health,
        selections,
        redrives,
        dlq,
        stats,
        delays,
        tenant_metrics,
        herd,
        events,
    ),
    *(reconciling, returned, workflows, workflow_changes, definitions, definition_checks),
    *(internal, usage, punctuality, lengthening, telling, moves, snapshots, erasures),
)


def create_app(
    *,
    store: Store,
    queue: Queue,
    secrets: Secrets,
    settings: Settings,
    clock: Clock,
    metrics: Metrics,
    host: Host,
    trial: TargetTrial,
    history: History | None = None,
    traces: Traces | None = None,
    transfers: Transfers | None = None,
    erasures: Erasures | None = None,
    elsewhere: Elsewhere | None = None,
    local: LocalStores | None = None,
) -> FastAPI:
    """The application. `app.state.services.feed.flush()` waits for what the queue is yet to be told;
    call it before the queue is closed."""
    services = Services(
        store=store,
        queue=queue,
        secrets=secrets,
        settings=settings,
        clock=clock,
        metrics=metrics,
        host=host,
        trial=trial,
        history=history,
        traces=traces,
        transfers=transfers,
        erasures=erasures,
        elsewhere=elsewhere,
        local=local,
    )
    app = _with_routes(services)
    app.state.services = services
    # Cells of one installation hand ends of calls on to each other.
    others = {CELLS_KID: cells_key(settings.installation_keys[0])}
    owns = host.live if settings.leased else None
    app.add_middleware(Gate, keys={**others, **settings.keys}, clock=clock, owns=owns)
    return app


def _with_routes(services: Services) -> FastAPI:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_exception_handler(HTTPException, _framework_error)
    for resource in _RESOURCES:
        resource.routes.install(app, services)

    async def show_openapi(_: Request) -> Response:
        return Response(msgspec.json.encode(openapi.document(app)), media_type="application/json")

    app.add_route("/v1/openapi.json", show_openapi, methods=["GET"], include_in_schema=False)
    return app


async def _framework_error(request: Request, error: Exception) -> Response:
    problem = problems.of_exception(error) or problems.internal_error()
    if problem.status == 405:
        problem.headers["Allow"] = ", ".join(_methods_at(request))
    return problem.response(request.scope)


def _methods_at(request: Request) -> list[str]:
    """All methods of a path: each has a route of its own, and the framework names the first one's."""
    routes = [route for route in request.app.routes if isinstance(route, Route | APIRoute)]
    return sorted(
        method
        for route in routes
        if route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    )


def routes_only() -> FastAPI:
    """The routes without engines, for the OpenAPI document."""
    nothing: Any = None
    settings = Settings(
        cell_name="none",
        region="none",
        database_url="",
        valkey_url="",
        bind_host="",
        bind_port=0,
        keys={},
        installation_keys=(),
    )
    return _with_routes(
        Services(
            store=nothing,
            queue=nothing,
            secrets=nothing,
            settings=settings,
            clock=nothing,
            metrics=Metrics(),
            host=nothing,
            trial=nothing,
        )
    )
