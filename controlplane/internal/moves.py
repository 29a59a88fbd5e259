"""Cells asking about moves that nobody drives on."""

from __future__ import annotations

import uuid

import msgspec
from django.http import HttpRequest, HttpResponse

from cells.contract import BadSignature, ErrorCode, MoveSide, Scope
from controlplane.errors import Conflicting, NotFound, Unavailable
from controlplane.internal.views import calling_cell, json_answer, method, problem_answer
from controlplane.moves import settling
from controlplane.tenants.models import tenant_uuid


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    tenant_id: str
    move_id: uuid.UUID
    side: MoveSide


@method("POST")
def settle(request: HttpRequest) -> HttpResponse:
    """POST /internal/moves/settle {tenant_id, move_id, side} → {cell, epoch, url}: where the tenant lives."""
    try:
        cell, caller = calling_cell(request)
    except BadSignature as e:
        return problem_answer(401, ErrorCode.UNAUTHENTICATED, str(e))
    if Scope.INTERNAL not in caller.scopes:
        return problem_answer(403, ErrorCode.FORBIDDEN, "needs the scope internal")
    try:
        asked = msgspec.json.decode(request.body, type=_Asked)
    except msgspec.DecodeError as e:
        return problem_answer(422, ErrorCode.INVALID, str(e))
    tenant_id = tenant_uuid(asked.tenant_id)
    if tenant_id is None:
        return problem_answer(422, ErrorCode.INVALID, "/tenant_id: not a tenant's id")
    try:
        found = settling.settle(tenant_id=tenant_id, move_id=asked.move_id, side=asked.side, cell=cell)
    except NotFound as e:
        return problem_answer(404, ErrorCode.NOT_FOUND, str(e))
    except Conflicting as e:
        return problem_answer(409, ErrorCode.CONFLICT, str(e))
    except Unavailable as e:
        return problem_answer(503, ErrorCode.UNAVAILABLE, str(e))
    return json_answer({"cell": found.cell, "epoch": found.epoch, "url": found.url})
