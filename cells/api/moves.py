"""Moves of tenants: what the control plane asks of this cell; ends of calls that another cell hands on."""

from __future__ import annotations

import uuid
from typing import Annotated, TypeVar

import msgspec
from fastapi import Path
from starlette.responses import Response

from cells.api.problems import Problem, body_fault, invalid, not_found
from cells.api.routing import Call, Routes, Rule, answer
from cells.contract import (
    BODY_HASH_HEADER,
    UNSIGNED_BODY,
    ErrorCode,
    MoveOrder,
    MoveSide,
    MoveVerb,
    Scope,
)
from cells.domain import ids
from cells.ports import Completion
from cells.returns import AwayPage
from cells.transfer_ports import Transfers

routes = Routes("Internal")
_T = TypeVar("_T")

MoveId = Annotated[str, Path(description="A move's id, a UUID.")]
_CELL = "cell:"


@routes.add(
    "POST",
    "/internal/moves/{move_id}/{side}/{verb}",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("What was done, or how far it is.", None)},
)
async def act(call: Call, move_id: MoveId, side: str, verb: str) -> Response:
    """Do one step of a move; asked again it changes nothing more."""
    _signed(call)
    move, transfers = _move(move_id), _transfers(call)
    if side not in MoveSide.__members__.values() or verb not in MoveVerb.__members__.values():
        raise not_found("step of a move")
    order = _read(call, MoveOrder)
    told = await transfers.act(move, MoveSide(side), MoveVerb(verb), order)
    call.services.placements.forget_all()
    if verb == MoveVerb.DEPART and (tenant := ids.decode(ids.TENANT, order.tenant_id)) is not None:
        call.services.desk.dismiss(tenant)
    return answer(told)


@routes.add(
    "POST",
    "/internal/moves/{move_id}/completions",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("Which took effect, in order.", None)},
)
async def take_over(call: Call, move_id: MoveId) -> Response:
    """Ends of calls that began in the cell which a tenant came from."""
    _signed(call)
    if not call.caller.actor.startswith(_CELL):
        raise Problem(403, ErrorCode.FORBIDDEN, "Cells hand on ends of calls, nobody else.")
    completions = _read(call, list[Completion])
    sender = call.caller.actor.removeprefix(_CELL)
    applied = await _transfers(call).take_over(_move(move_id), sender, completions)
    return answer({"applied": list(applied)})


@routes.add(
    "POST",
    "/internal/moves/{move_id}/returned",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("It is reported here.", None)},
)
async def take_report(call: Call, move_id: MoveId) -> Response:
    """What a region that came back had done for a tenant who has left the cell it came back to."""
    _signed(call)
    if not call.caller.actor.startswith(_CELL):
        raise Problem(403, ErrorCode.FORBIDDEN, "Cells hand on what came back, nobody else.")
    sender = call.caller.actor.removeprefix(_CELL)
    await _transfers(call).take_report(_move(move_id), sender, _read(call, AwayPage))
    return answer({})


def _signed(call: Call) -> None:
    if (call.header(BODY_HASH_HEADER.lower().encode()) or UNSIGNED_BODY) == UNSIGNED_BODY:
        raise Problem(401, ErrorCode.UNAUTHENTICATED, "The body of this request must be signed.")


def _move(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise not_found("move") from None


def _transfers(call: Call) -> Transfers:
    if call.services.transfers is None:
        raise not_found("step of a move")
    return call.services.transfers


def _read(call: Call, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(call.raw_body, type=kind)
    except msgspec.DecodeError as fault:
        raise invalid([body_fault("", str(fault))]) from None
