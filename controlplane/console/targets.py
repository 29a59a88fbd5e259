"""Targets: list and register. One target is in `target_pages.py`."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import quote

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.cells_client import CellAway, Fault, Refused, path
from controlplane.console.job_changes import merge_patch
from controlplane.console.lists import PAGE, asked, at_most_shown, next_page, sentences
from controlplane.console.target_pages import secret_page
from controlplane.console.visit import Visit, tenant_page

_TEXTS = ("target_id", "base_url", "owner_team", "description")
_STATES = ("PENDING", "APPROVED", "DISABLED", "GONE")
#: Jobs of each listed target are counted up to here.
_COUNTED = 100
_NUMBERS = ("max_concurrency", "latency_slo_ms")
#: A share of the calls, in percent, that are delivered twice on purpose.
_DRILL = "duplicate_percent"
_EDITED = ("base_url", "owner_team", "description", *_NUMBERS, _DRILL)
_OVERTAKEN = "Somebody saved another version while you were editing. Saving now puts yours in its place."
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
    context: dict[str, Any] = {"section": "targets", "filters": filters, "states": _STATES, "targets": []}
    try:
        found = visit.cell.get(
            "/v1/targets", limit=PAGE, cursor=visit.request.GET.get("cursor", ""), **filters
        )
    except Refused as refused:
        if refused.status != 422:
            raise
        context["faults"] = sentences(refused.faults, refused.detail)
        return visit.page("console/targets/list.html", status=422, **context)
    counts = visit.cell.get_many(_jobs_of(target["target_id"]) for target in found["items"])
    context["targets"] = [
        {**target, "jobs": at_most_shown(jobs)}
        for target in found["items"]
        if (jobs := counts.get(_jobs_of(target["target_id"]))) is not None
    ]
    context["next"] = next_page(visit, filters, found["next_cursor"])
    context["paged"] = bool(visit.request.GET.get("cursor"))
    return visit.page("console/targets/list.html", **context)


def _jobs_of(target_id: str) -> str:
    return f"/v1/jobs?target={quote(target_id)}&state=SCHEDULED&limit={_COUNTED}"


@tenant_page(Scope.JOBS_WRITE, "GET", "POST")
def target_new(visit: Visit) -> HttpResponse:
    """GET shows the form; POST registers and shows the signing secret, once."""
    if not visit.may_edit_targets:
        raise PermissionDenied
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
    return secret_page(visit, answer.document, "is registered")


@tenant_page(Scope.JOBS_WRITE, "GET", "POST")
def target_edit(visit: Visit, target_id: str) -> HttpResponse:
    """GET shows what can be changed; POST changes it, over the version that was seen."""
    if not visit.may_edit_targets:
        raise PermissionDenied
    target = visit.cell.get(path("targets", target_id))
    flat = {**target, **(target.get("drill") or {})}
    saved = {name: str(flat[name]) for name in _EDITED if flat.get(name) is not None}
    if visit.request.method == "GET":
        return _form(visit, saved, str(target["version"]), [], target=target)
    typed = {name: visit.request.POST.get(name, "").strip() for name in _EDITED}
    seen = visit.request.POST.get("version", "")
    changed = merge_patch(_fields(saved), _fields(typed))
    if not changed:
        messages.info(visit.request, "Nothing was changed.")
        return redirect(visit.url("target", target_id))
    try:
        version = int(seen) if seen.isdecimal() else 0
        after = visit.cell.patch(path("targets", target_id), changed, version=version).document
    except Refused as refused:
        if refused.status in (403, 404):
            raise
        if refused.status == 412:
            now = Fault(place="", detail=_OVERTAKEN)
            return _form(visit, typed, str(target["version"]), [now], 409, target=target)
        faults = refused.faults or [Fault(place="", detail=refused.detail)]
        return _form(visit, typed, seen, faults, 422, target=target)
    except CellAway as away:
        return _form(
            visit, typed, seen, [Fault(place="", detail=f"{away} Nothing was changed.")], 503, target=target
        )
    again = " It needs a new approval: its address is another one." if after["state"] == "PENDING" else ""
    messages.success(visit.request, f"Saved as version {after['version']}.{again}")
    return redirect(visit.url("target", target_id))


def _fields(values: dict[str, str]) -> dict[str, Any]:
    fields = {
        name: int(text) if name in (*_NUMBERS, _DRILL) and text.isdecimal() else text
        for name, text in values.items()
        if text
    }
    percent = fields.pop(_DRILL, 0)
    # Nought is how a person says: none.
    return fields if percent == 0 else {**fields, "drill": {_DRILL: percent}}


def _body(values: dict[str, str]) -> dict[str, Any]:
    body: dict[str, Any] = {name: values[name] for name in _TEXTS if values.get(name)}
    body |= _fields({name: values.get(name, "") for name in (*_NUMBERS, _DRILL)})
    kind = values.get("auth_type", "HMAC_SHA256")
    body["auth"] = {"type": kind} | {
        name: values.get(name, "") for name in _CREDENTIALS.get(kind, ()) if values.get(name)
    }
    body.setdefault("base_url", "")
    return body


def _form(
    visit: Visit, values: dict[str, str], token: str, faults: list[Fault], status: int = 200, **more: Any
) -> HttpResponse:
    placed: dict[str, list[str]] = {}
    general: list[str] = []
    for fault in faults:
        name = fault.place.strip("/").replace("auth/", "").replace("drill/", "") or ""
        name = "auth_type" if name in ("auth", "type") else name
        if name in (*_TEXTS, *_NUMBERS, _DRILL, "auth_type", "token", "username", "password"):
            placed.setdefault(name, []).append(fault.detail)
        else:
            general.append(f"{fault.place} {fault.detail}".strip())
    # A credential is never sent back to a browser.
    shown = {name: text for name, text in values.items() if name not in ("token", "password")}
    form = {"values": shown, "token": token, "faults": placed, "general": general}
    return visit.page(
        "console/targets/new.html", status=status, section="targets", form=form, kinds=_KINDS, **more
    )
