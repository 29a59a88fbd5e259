"""The routing feed for routers, meters from cells and routers.

No DRF here: these are the hottest calls Django answers, and their callers are our own.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any

import msgspec
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from billing.ingest import MOST_RECORDS, MalformedRecord, Result, ingest
from billing.watermarks import MalformedWatermark, hear_incarnations, raise_watermarks
from cells.contract import (
    PROBLEM_TITLES,
    SIGNATURE_HEADER,
    BadSignature,
    Caller,
    ErrorCode,
    HostSealed,
    MeterRecord,
    Metric,
    Scope,
    SealedUntil,
    problem_type,
)
from controlplane.events import feed
from controlplane.events.models import AuditEvent
from controlplane.identity import TENANT, decode
from controlplane.signatures import ROUTER_KID, verify
from controlplane.topology.cell_keys import open_cell_key
from controlplane.topology.models import Cell

#: Acts of operators that a call may hold.
_MOST_ACTS = 500
View = Callable[..., HttpResponse]
_KID = re.compile(r"\Av1;kid=([A-Za-z0-9-]{1,63});")


def json_answer(value: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(value), status=status, content_type="application/json")


def problem_answer(status: int, code: ErrorCode, detail: str) -> HttpResponse:
    document = {
        "type": problem_type(code),
        "title": PROBLEM_TITLES[code],
        "status": status,
        "detail": detail,
        "code": code,
    }
    return HttpResponse(msgspec.json.encode(document), status=status, content_type="application/problem+json")


def method(allowed: str) -> Callable[[View], View]:
    def decorate(view: View) -> View:
        @wraps(view)
        def checked(request: HttpRequest, *args: Any) -> HttpResponse:
            if request.method != allowed:
                return problem_answer(405, ErrorCode.METHOD_NOT_ALLOWED, f"only {allowed}")
            return view(request, *args)

        return csrf_exempt(checked)

    return decorate


def _from_router(view: View) -> View:
    @wraps(view)
    def checked(request: HttpRequest) -> HttpResponse:
        try:
            caller = verify(request, {ROUTER_KID: settings.CONFIGURATION.router_key}, whole_body=True)
        except BadSignature as e:
            return problem_answer(401, ErrorCode.UNAUTHENTICATED, str(e))
        # The router signs customers' requests with the same key; only its own carry this scope.
        if Scope.INTERNAL not in caller.scopes:
            return problem_answer(403, ErrorCode.FORBIDDEN, "needs the scope internal")
        return view(request)

    return checked


@method("GET")
@_from_router
def routing_snapshot(request: HttpRequest) -> HttpResponse:
    """GET /internal/routing/snapshot"""
    return json_answer(feed.snapshot())


@method("GET")
@_from_router
def routing_changes(request: HttpRequest) -> HttpResponse:
    """GET /internal/routing/changes?cursor=… ; 410: take a snapshot."""
    try:
        return json_answer(feed.changes(request.GET.get("cursor", "")))
    except feed.CursorGone:
        return problem_answer(410, ErrorCode.NOT_FOUND, "the cursor is too old: take a snapshot")


class _Used(msgspec.Struct, forbid_unknown_fields=True):
    keys: dict[str, int]


@method("POST")
@_from_router
def routing_used(request: HttpRequest) -> HttpResponse:
    """POST /internal/routing/used {"keys": {"<key id>": last_used_ms}}"""
    try:
        used = msgspec.json.decode(request.body, type=_Used)
    except msgspec.DecodeError as e:
        return problem_answer(400, ErrorCode.MALFORMED, str(e))
    if any(not 0 < ms < 10**14 for ms in used.keys.values()):
        return problem_answer(400, ErrorCode.MALFORMED, "times are Unix milliseconds")
    feed.mark_used(used.keys)
    return json_answer({})


class _Act(msgspec.Struct, forbid_unknown_fields=True):
    act_id: uuid.UUID
    at_ms: int
    actor: str
    tenant_id: str
    method: str
    path: str
    request_id: str
    client: str


class _Acts(msgspec.Struct, forbid_unknown_fields=True):
    acts: list[_Act]


@method("POST")
@_from_router
def operator_acts(request: HttpRequest) -> HttpResponse:
    """POST /internal/operator-acts {"acts": […]}: what operators' keys asked cells for. The id of an act
    is that of its audit event, so one that is told again is no second one."""
    try:
        acts = msgspec.json.decode(request.body, type=_Acts).acts
    except msgspec.DecodeError as e:
        return problem_answer(422, ErrorCode.INVALID, str(e))
    if len(acts) > _MOST_ACTS:
        return problem_answer(413, ErrorCode.PAYLOAD_TOO_LARGE, f"at most {_MOST_ACTS} acts")
    events = []
    for n, act in enumerate(acts):
        tenant_id = decode(TENANT, act.tenant_id)
        if tenant_id is None or not 0 < act.at_ms < 10**14:
            return problem_answer(422, ErrorCode.INVALID, f"/acts/{n}: no tenant's id, or no time")
        events.append(
            AuditEvent(
                id=act.act_id, at=datetime.fromtimestamp(act.at_ms / 1000, UTC), tenant_id=tenant_id,
                actor=act.actor[:200], source=f"api {act.client}".strip()[:200],
                action="operator.request", subject=f"{act.method} {act.path}"[:200],
                after={"method": act.method, "path": act.path, "request_id": act.request_id},
            )
        )  # fmt: skip
    AuditEvent.objects.bulk_create(events, ignore_conflicts=True)
    return json_answer({})


class _Meters(msgspec.Struct, forbid_unknown_fields=True):
    records: list[MeterRecord]
    watermarks: list[SealedUntil] = []
    incarnations: list[HostSealed] = []


def calling_cell(request: HttpRequest) -> tuple[str, Caller]:
    """(name of the sender, caller). Cells sign with their own key, routers with theirs."""
    match = _KID.match(request.headers.get(SIGNATURE_HEADER, ""))
    if match is None:
        raise BadSignature("no signature")
    kid = match[1]
    if kid == ROUTER_KID:
        keys = {ROUTER_KID: settings.CONFIGURATION.router_key}
    else:
        sealed = Cell.objects.filter(pk=kid).values_list("sealed_key", flat=True).first()
        keys = {} if sealed is None else {kid: open_cell_key(kid, bytes(sealed))}
    return kid, verify(request, keys, whole_body=True)


@method("POST")
def meters(request: HttpRequest) -> HttpResponse:
    """POST /internal/meters {"records": […], "watermarks": […]} → {"results": […]} in order; routers say
    `incarnations` in the place of `watermarks`.
    409: some record contradicts the ledger; `results` is there, too."""
    try:
        sender, caller = calling_cell(request)
    except BadSignature as e:
        return problem_answer(401, ErrorCode.UNAUTHENTICATED, str(e))
    if Scope.INTERNAL not in caller.scopes:
        return problem_answer(403, ErrorCode.FORBIDDEN, "needs the scope internal")
    try:
        sent = msgspec.json.decode(request.body, type=_Meters)
    except msgspec.DecodeError as e:
        return problem_answer(400, ErrorCode.MALFORMED, str(e))
    records, marks = sent.records, sent.watermarks
    if len(records) > MOST_RECORDS:
        return problem_answer(413, ErrorCode.PAYLOAD_TOO_LARGE, f"at most {MOST_RECORDS} records")
    for record in records:
        if record.cell != sender:
            return problem_answer(403, ErrorCode.FORBIDDEN, f"{sender} may not speak for {record.cell}")
        # Routers count requests, and nobody else does.
        if (record.metric is Metric.API_REQUESTS) != (sender == ROUTER_KID):
            return problem_answer(403, ErrorCode.FORBIDDEN, f"{sender} does not count {record.metric}")
    if marks and sender == ROUTER_KID:
        return problem_answer(403, ErrorCode.FORBIDDEN, "routers own no store")
    if sent.incarnations and sender != ROUTER_KID:
        return problem_answer(403, ErrorCode.FORBIDDEN, f"{sender} is no router")
    try:
        results = ingest(records, anywhere=sender == ROUTER_KID)
        raise_watermarks(sender, [(m.store, m.epoch, m.sealed_until) for m in marks])
        hear_incarnations(sent.incarnations)
    except (MalformedRecord, MalformedWatermark) as e:
        return problem_answer(422, ErrorCode.INVALID, str(e))
    if Result.CONFLICT in results:
        # The rest of the call was taken all the same: the words say what became of each record.
        document = {
            "type": problem_type(ErrorCode.CONFLICT),
            "title": PROBLEM_TITLES[ErrorCode.CONFLICT],
            "status": 409,
            "detail": "a record contradicts what stands in the ledger under its key",
            "code": ErrorCode.CONFLICT,
            "results": results,
        }
        return json_answer(document, status=409)
    return json_answer({"results": results})
