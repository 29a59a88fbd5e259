"""Targets: list, register, approve, rotate the secret."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.cells_client import CellAway, Fault, Refused, path
from controlplane.console.lists import PAGE, asked, next_page
from controlplane.console.visit import Visit, tenant_page

_TEXTS = ("target_id", "base_url", "owner_team", "description")
_NUMBERS = ("max_concurrency", "latency_slo_ms")
_CREDENTIALS = {"BEARER": ("token",), "BASIC": ("username", "password")}
_KINDS = (
    ("HMAC_SHA256", "Signature"),
    ("BEARER", "Signature and token"),
    ("BASIC", "Signature and password"),
)
_DEFAULTS = {"max_concurrency": "100", "latency_slo_ms": "2000", "auth_type": "HMAC_SHA256"}


@tenant_page(Scope.JOBS_READ)
def target_list(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/targets/"""
    filters = asked(visit, "state")
    found = visit.cell.get("/v1/targets", limit=PAGE, cursor=visit.request.GET.get("cursor", ""), **filters)
    return visit.page(
        "console/targets/list.html",
        section="targets",
        filters=filters,
        targets=found["items"],
        next=next_page(visit, filters, found["next_cursor"]),
    )


@tenant_page(Scope.JOBS_WRITE, "GET", "POST")
def target_new(visit: Visit) -> HttpResponse:
    """GET shows the form; POST registers and shows the signing secret, once."""
    if visit.request.method == "GET":
        return _form(visit, dict(_DEFAULTS), str(uuid.uuid4()), [])
    values = {name: text.strip() for name, text in visit.request.POST.dict().items()}
    token = values.get("request_token", "")[:64] or str(uuid.uuid4())
    try:
        answer = visit.cell.post("/v1/targets", _body(values), idempotency_key=token)
    except Refused as refused:
        return _form(visit, values, token, refused.faults or [Fault(place="", detail=refused.detail)], 422)
    except CellAway as away:
        return _form(visit, values, token, [Fault(place="", detail=f"{away} Nothing was registered.")], 503)
    return _secret(visit, answer.document, "is registered")


def _body(values: dict[str, str]) -> dict[str, Any]:
    body: dict[str, Any] = {name: values[name] for name in _TEXTS if values.get(name)}
    for name in _NUMBERS:
        text = values.get(name, "")
        if text:
            body[name] = int(text) if text.isdecimal() else text
    kind = values.get("auth_type", "HMAC_SHA256")
    body["auth"] = {"type": kind} | {
        name: values.get(name, "") for name in _CREDENTIALS.get(kind, ()) if values.get(name)
    }
    body.setdefault("base_url", "")
    return body


def _form(
    visit: Visit, values: dict[str, str], token: str, faults: list[Fault], status: int = 200
) -> HttpResponse:
    placed: dict[str, list[str]] = {}
    general: list[str] = []
    for fault in faults:
        name = fault.place.strip("/").replace("auth/", "") or ""
        name = "auth_type" if name in ("auth", "type") else name
        if name in (*_TEXTS, *_NUMBERS, "auth_type", "token", "username", "password"):
            placed.setdefault(name, []).append(fault.detail)
        else:
            general.append(f"{fault.place} {fault.detail}".strip())
    # A credential is never sent back to a browser.
    shown = {name: text for name, text in values.items() if name not in ("token", "password")}
    form = {"values": shown, "token": token, "faults": placed, "general": general}
    return visit.page("console/targets/new.html", status=status, section="targets", form=form, kinds=_KINDS)


@tenant_page(Scope.TARGETS_APPROVE, "GET", "POST")
def target_action(visit: Visit, target_id: str, verb: str) -> HttpResponse:
    """POST …/approve, …/rotate; GET …/rotate says what it will touch."""
    if visit.request.method == "GET":
        return _confirm(visit, target_id, verb)
    try:
        if verb == "approve":
            visit.cell.post(path("targets", target_id, verb="approve"), {})
            messages.success(visit.request, f"{target_id} is approved: jobs may call it.")
        elif verb == "rotate":
            answer = visit.cell.post(path("targets", target_id, verb="rotate-secret"), {})
            return _secret(visit, answer.document, "has a new secret")
        else:
            raise Http404
    except Refused as refused:
        if refused.status in (403, 404):
            raise
        messages.error(visit.request, refused.detail)
    except CellAway as away:
        messages.error(visit.request, str(away))
    return redirect(visit.url("targets"))


def _confirm(visit: Visit, target_id: str, verb: str) -> HttpResponse:
    if verb != "rotate":
        return redirect(visit.url("targets"))
    part = visit.request.htmx  # type: ignore[attr-defined]
    template = "console/targets/confirm_part.html" if part else "console/targets/confirm.html"
    target = visit.cell.get(path("targets", target_id))
    jobs = visit.cell.get("/v1/jobs", target=target_id, state="SCHEDULED", limit=200)
    number = f"{len(jobs['items'])}{' or more' if jobs['next_cursor'] else ''}"
    return visit.page(template, section="targets", target=target, number=number)


def _secret(visit: Visit, target: dict[str, Any], happened: str) -> HttpResponse:
    return visit.page("console/targets/secret.html", section="targets", target=target, happened=happened)
