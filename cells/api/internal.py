"""What the control plane asks and tells: tenants placed here, and how the cell is."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from cells.api.documents import Document, instant
from cells.api.problems import Problem, body_fault, erased, invalid, not_found
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.spread.sums import use_of_all
from cells.contract import BODY_HASH_HEADER, UNSIGNED_BODY, ErrorCode, Scope
from cells.domain import ids
from cells.domain.job import Priority
from cells.ports import Retryable, TenantConfig, TenantPlacement

routes = Routes("Internal")

#: How far back a cell's load is looked at, and how many of its busiest tenants are told one by one.
_LOAD_MINUTES, _BUSIEST = 5, 50


class TenantIn(BaseModel):
    """A tenant's placement and configuration. Later versions of the control plane may send more."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    state: Literal["ACTIVE", "BARRIER", "SEALED", "MOVED", "SUSPENDED"]
    ownership_epoch: int = Field(ge=1, lt=2**32)
    config_version: int = Field(ge=0, lt=2**63)
    config: dict[str, Any]


TenantId = Annotated[str, Path(description="A tenant's id.")]


@routes.add(
    "PUT",
    "/internal/tenants/{tenant_id}",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("What holds now.", None)},
)
async def put_tenant(call: Call, tenant_id: TenantId, body: TenantIn) -> Response:
    """Take over a tenant's placement and configuration, unless a later version is known."""
    if (call.header(BODY_HASH_HEADER.lower().encode()) or UNSIGNED_BODY) == UNSIGNED_BODY:
        raise Problem(401, ErrorCode.UNAUTHENTICATED, "The body of this request must be signed.")
    uuid = ids.decode(ids.TENANT, tenant_id)
    if uuid is None:
        raise not_found("tenant")
    try:
        config = msgspec.convert(body.config, TenantConfig, strict=True)
    except msgspec.ValidationError as fault:
        raise invalid([body_fault("/config", str(fault))]) from None
    tenant = TenantPlacement(
        tenant_id=uuid,
        state=body.state,
        ownership_epoch=body.ownership_epoch,
        config_version=body.config_version,
        config=config,
    )
    services = call.services
    applied = await services.store.put_tenant(tenant)
    services.placements.forget(uuid)
    if not applied and await services.store.is_erased(uuid):
        raise erased()
    current = await services.store.get_tenant(uuid)
    return answer({"applied": applied} | (tenant_document(current) if current is not None else {}))


@routes.add(
    "GET",
    "/internal/tenants/{tenant_id}",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("The tenant as this cell knows it.", None)},
)
async def get_tenant(call: Call, tenant_id: TenantId) -> Response:
    """Read one tenant."""
    uuid = ids.decode(ids.TENANT, tenant_id)
    found = await call.services.store.get_tenant(uuid) if uuid is not None else None
    if found is None:
        raise not_found("tenant")
    return answer(tenant_document(found))


@routes.add(
    "GET",
    "/internal/tenants/{tenant_id}/use",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("What the tenant uses of its quotas.", None)},
)
async def read_use(call: Call, tenant_id: TenantId) -> Response:
    """Read what a tenant uses now in all stores, each number to one beyond its quota; runs a second are
    those of the busiest of the last five minutes."""
    services = call.services
    uuid = ids.decode(ids.TENANT, tenant_id)
    found = await services.store.get_tenant(uuid) if uuid is not None else None
    if uuid is None or found is None:
        raise not_found("tenant")
    now = services.now()
    use = await services.store.tenant_use(
        uuid,
        most_timers=found.whole.pending_timers,
        most_runs=found.whole.running_runs,
        now=now,
    )
    since = now.replace(second=0, microsecond=0) - timedelta(minutes=5)
    minutes = await services.store.stats(uuid, since=since, until=now)
    busiest = max((int(str(row["started"])) for row in minutes), default=0)
    own = {
        "at": instant(now),
        "job_runs_per_second": busiest / 60,
        "pending_timers": use.pending_timers,
        "running_runs": use.running_runs,
        "strict_jobs_per_second": use.strict_in_busiest_second,
    }
    return answer(await use_of_all(call, uuid, own))


@routes.add(
    "GET",
    "/internal/tenants",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("All tenants this cell knows.", None)},
)
async def list_tenants(call: Call) -> Response:
    """Read all tenants, for the check against drift."""
    found = await call.services.store.list_tenants()
    return answer({"cell": call.services.settings.cell_name, "items": [tenant_document(t) for t in found]})


@routes.add(
    "GET",
    "/internal/status",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("How the cell is.", None)},
)
async def read_status(call: Call) -> Response:
    """Read how the cell is: hosts, queues, how late it is, and what its tenants were promised."""
    services = call.services
    status = await services.store.status()
    try:
        queued, past_quota = await services.queue.depths()
        queue: Document | None = {priority.name: queued[priority] for priority in Priority}
    except Retryable:
        queue, past_quota = None, None  # known to be unknown: jobs run from the store meanwhile
    tenants = await services.store.list_tenants()
    active = [tenant for tenant in tenants if tenant.state == "ACTIVE"]
    late = (status.database_time - status.oldest_due_at) if status.oldest_due_at is not None else timedelta()
    return answer(
        {
            "cell": services.settings.cell_name,
            "region": services.settings.region,
            "at": instant(status.database_time),
            "hosts": [
                {
                    "name": host.name,
                    "roles": host.roles,
                    "started_at": instant(host.started_at),
                    "live": host.live,
                }
                for host in status.hosts
            ],
            "queue": queue,
            "past_quota": past_quota,
            "oldest_due_at": instant(status.oldest_due_at),
            "lag_ms": max(0, late // timedelta(milliseconds=1)),
            "jobs_estimated": status.jobs_estimated,
            "tenants": dict(Counter(tenant.state for tenant in tenants)),
            "load": await _load(call),
            "meters": msgspec.to_builtins(await services.store.meters_left()),
            "promised_runs_per_second": sum(tenant.whole.job_runs_per_second for tenant in active),
        }
    )


async def _load(call: Call) -> Document:
    """How busy the cell has been in its last full minutes, and who keeps it so."""
    until = call.services.now().replace(second=0, microsecond=0)
    loads = await call.services.store.load(since=until - _LOAD_MINUTES * timedelta(minutes=1), until=until)
    seconds = 60 * _LOAD_MINUTES
    return {
        "minutes": _LOAD_MINUTES,
        "runs_per_second": sum(load.began for load in loads) / seconds,
        "tenants": [
            {
                "tenant_id": ids.encode(ids.TENANT, load.tenant_id),
                "runs_per_second": load.began / seconds,
                "busiest_runs_per_second": load.busiest_minute / 60,
                "lag_max_ms": load.lag_max_ms,
            }
            for load in loads[:_BUSIEST]
        ],
    }


def tenant_document(tenant: TenantPlacement) -> Document:
    """A tenant as the control plane reads it."""
    return {
        "tenant_id": ids.encode(ids.TENANT, tenant.tenant_id),
        "state": tenant.state,
        "ownership_epoch": tenant.ownership_epoch,
        "config_version": tenant.config_version,
        "config": msgspec.to_builtins(tenant.whole),
    }
