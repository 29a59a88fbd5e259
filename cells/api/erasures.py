"""Erasing tenants, as the control plane asks for it."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from cells.api.problems import Problem, body_fault, invalid, not_found
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.spread.erasing import erased_everywhere
from cells.contract import BODY_HASH_HEADER, UNSIGNED_BODY, ErrorCode, Scope
from cells.domain import ids
from cells.erasure_ports import Erasures

routes = Routes("Internal")

TenantId = Annotated[str, Path(description="A tenant's id.")]


class ErasureIn(BaseModel):
    """Which erasure it is part of."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    erasure_id: str


@routes.add(
    "POST",
    "/internal/tenants/{tenant_id}/erase",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("What was removed so far, and whether that is all.", None)},
)
async def erase_tenant(call: Call, tenant_id: TenantId, body: ErasureIn) -> Response:
    """Remove a part of what is here of a tenant; ask again until `done`. `stores`: the same of each local
    store, which is asked along."""
    if (call.header(BODY_HASH_HEADER.lower().encode()) or UNSIGNED_BODY) == UNSIGNED_BODY:
        raise Problem(401, ErrorCode.UNAUTHENTICATED, "The body of this request must be signed.")
    tenant = ids.decode(ids.TENANT, tenant_id)
    if tenant is None:
        raise not_found("tenant")
    try:
        erasure = uuid.UUID(body.erasure_id)
    except ValueError:
        raise invalid([body_fault("/erasure_id", "is no UUID")]) from None
    told = await _erasures(call).erase(tenant, erasure)
    call.services.placements.forget(tenant)
    call.services.desk.dismiss(tenant)
    return answer(await erased_everywhere(call, told, erasure_id=body.erasure_id))


@routes.add(
    "GET",
    "/internal/erased-tenants",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("Every tenant that was erased here, or is being erased.", None)},
)
async def list_erased(call: Call) -> Response:
    """Read which tenants this cell refuses for good."""
    found = await _erasures(call).erased()
    return answer(
        {"items": [{"tenant_id": ids.encode(ids.TENANT, tenant), "done": done} for tenant, done in found]}
    )


def _erasures(call: Call) -> Erasures:
    if call.services.erasures is None:
        raise not_found("erasure")
    return call.services.erasures
