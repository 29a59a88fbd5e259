"""What a local store is told of a tenant by the owner of its cell, and what it says of itself."""

from __future__ import annotations

import uuid
from typing import Annotated

import msgspec
from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from cells.api import queries
from cells.api.problems import body_fault, invalid, not_found
from cells.api.routing import Call, Routes, Rule, answer
from cells.contract import Scope
from cells.domain import ids
from cells.ports import Retryable
from cells.stores.link import Unreachable
from cells.stores.ports import Snapshot

routes = Routes("Internal")

TenantId = Annotated[str, Path(description="A tenant's id.")]
#: Tenants of one page.
_PAGE = 1000


class After(queries.Query):
    """Behind which tenant a page begins."""

    after: str | None = Field(default=None, max_length=80)


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
    "/internal/snapshots",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("Tenants that this local store knows.", None)},
)
async def list_snapshots(call: Call, query: Annotated[After, Query()]) -> Response:
    """Read a page of the tenants that this local store has a snapshot of: a new owner asks who uses it."""
    services = call.services
    after = uuid.UUID(int=0) if query.after is None else ids.decode(ids.TENANT, query.after)
    if services.local is None or not services.settings.stores.own or after is None:
        raise not_found("local store")
    found = await services.local.snapshots_after(after, limit=_PAGE)
    named = [ids.encode(ids.TENANT, tenant) for tenant in found]
    return answer({"items": named, "next": named[-1] if len(named) == _PAGE else None})


@routes.add(
    "GET",
    "/internal/tenants/{tenant_id}/stores",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("The stores that hold rows of the tenant.", None)},
)
async def list_stores(call: Call, tenant_id: TenantId) -> Response:
    """Read which local stores hold rows of a tenant, and how many; `reachable` says whether one answers.
    A move leaves nothing behind, so it asks here first. `strict`: how much another region has to confirm."""
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
    jobs, workflows = await services.local.count_strict_rows(tenant)
    return answer({"items": items, "strict": {"jobs": jobs, "workflows": workflows}})
