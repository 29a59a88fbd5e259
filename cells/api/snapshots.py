"""What a local store is told of a tenant by the owner of its cell, and what it says of itself."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Path
from starlette.responses import Response

from cells.api.problems import body_fault, invalid, not_found
from cells.api.routing import Call, Routes, Rule, answer
from cells.contract import Scope
from cells.domain import ids
from cells.ports import Retryable
from cells.stores.link import Unreachable
from cells.stores.ports import Snapshot

routes = Routes("Internal")

TenantId = Annotated[str, Path(description="A tenant's id.")]
_decode = msgspec.json.Decoder(Snapshot).decode


@routes.add(
    "PUT",
    "/internal/snapshots/{tenant_id}",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("Whether it was news.", None)},
)
async def put_snapshot(call: Call, tenant_id: TenantId) -> Response:
    """Take over what a tenant's owner says of it, whole, unless a later snapshot is known."""
    services = call.services
    tenant = ids.decode(ids.TENANT, tenant_id)
    if tenant is None or services.local is None or not services.settings.stores.own:
        raise not_found("local store")
    try:
        snapshot = _decode(call.raw_body)
    except msgspec.MsgspecError as fault:
        raise invalid([body_fault("", str(fault))]) from None
    applied = await services.local.take_snapshot(tenant, snapshot)
    services.placements.forget(tenant)
    return answer({"applied": applied})


@routes.add(
    "GET",
    "/internal/tenants/{tenant_id}/stores",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("The stores that hold rows of the tenant.", None)},
)
async def list_stores(call: Call, tenant_id: TenantId) -> Response:
    """Read which local stores hold rows of a tenant, and how many; `reachable` says whether one answers.
    A move leaves nothing behind, so it asks here first."""
    services = call.services
    tenant = ids.decode(ids.TENANT, tenant_id)
    if tenant is None or services.local is None:
        raise not_found("tenant")
    if services.settings.stores.own:
        jobs, workflows = await services.local.count_local_rows(tenant)
        return answer({"jobs": jobs, "workflows": workflows})
    elsewhere = services.elsewhere
    items = []
    for used in await services.local.local_stores_of(tenant):
        store = None if elsewhere is None else elsewhere.registry.get(used.store)
        item: dict[str, object] = {
            "store": used.store,
            "region": None if store is None else store.region,
            "reachable": False,
            "jobs": None,
            "workflows": None,
        }
        if store is not None and elsewhere is not None:
            try:
                item |= await elsewhere.rows_of(tenant, store)
            except (Unreachable, Retryable) as fault:
                item["why"] = str(fault)[:200]
        items.append(item)
    return answer({"items": items})
