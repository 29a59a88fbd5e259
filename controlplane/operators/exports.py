"""Operators' exports: everybody's data, or one tenant's, to the installation's place or another; and what is
exported by itself."""

from __future__ import annotations

import uuid
from datetime import date
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from billing.exports import requesting
from billing.exports.machine import Cadence, Dataset, ExportState, Format
from billing.exports.models import Export
from billing.exports.places import folder_of
from billing.ids import EXPORT, decode
from controlplane.adminsite import operator
from controlplane.api.downloads import download
from controlplane.console.acting import first_use, not_used
from controlplane.console.exports import (
    CADENCES,
    DATASETS,
    FORMATS,
    WORDS,
    Row,
    days_asked,
    scheduled,
    usual_days,
)
from controlplane.errors import Invalid, NotFound, Refused, invalid
from controlplane.operators.meters import slugs_of
from controlplane.operators.pages import act, operator_page, page
from controlplane.operators.reads import record_read
from controlplane.refusals import of_billing
from controlplane.tenants.models import Tenant

_PAGE = 50
_FIELDS = ("dataset", "format", "from", "to", "tenant", "token")


@operator_page("GET", "POST")
def export_list(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/exports/?state=&tenant=&after=; POST asks for one."""
    today = timezone.now().date()
    if request.method == "GET":
        return _list(request, {**usual_days(today), "token": uuid.uuid4().hex})
    values = {name: request.POST.get(name, "").strip()[:60] for name in _FIELDS}
    values |= {name: request.POST.get(name, "").strip()[:1000] for name in ("destination", "reason")}
    if not first_use(request, values["token"]):
        return redirect("operators:exports")  # a second click: it is in the list
    try:
        _ask(request, values, today)
    except Refused as refused:
        not_used(request, values["token"])
        faults = (
            [f"{fault.pointer.strip('/')}: {fault.detail}" for fault in refused.faults]
            if isinstance(refused, Invalid)
            else [str(refused)]
        )
        return _list(request, values, faults=faults, status=422)
    messages.success(request, "The export is asked for: it is the first of the list.")
    return redirect("operators:exports")


def _ask(request: HttpRequest, values: dict[str, str], today: date) -> None:
    about = Tenant.objects.filter(slug=values["tenant"]).first() if values["tenant"] else None
    if values["tenant"] and about is None:
        raise invalid("/tenant", "no tenant has this slug")
    if not values["reason"]:
        raise invalid("/reason", "say why, for the audit log")
    given = days_asked(values)
    with of_billing():
        requesting.request_export(
            tenant_id=None, about_tenant_id=about.id if about else None, **given, today=today,
            place=values["destination"] or None, actor=operator(request), reason=values["reason"],
        )  # fmt: skip


def _list(
    request: HttpRequest, values: dict[str, str], *, faults: list[str] | None = None, status: int = 200
) -> HttpResponse:
    asked = {name: request.GET.get(name, "").strip()[:48] for name in ("state", "tenant")}
    exports = Export.objects.filter(tenant_id=None).order_by("-id")
    if asked["state"] in list(ExportState):
        exports = exports.filter(state=asked["state"])
    if asked["tenant"]:
        exports = exports.filter(about_tenant_id__in=Tenant.objects.filter(slug=asked["tenant"]).values("pk"))
    if after := request.GET.get("after", ""):
        exports = exports.filter(pk__lt=_uuid(after))
    found = list(exports[: _PAGE + 1])
    more, found = len(found) > _PAGE, found[:_PAGE]
    slugs = slugs_of(each.about_tenant_id for each in found if each.about_tenant_id is not None)
    return page(
        request,
        "exports.html",
        "Exports",
        status=status,
        rows=[
            {
                "row": Row(export=each),
                "about": slugs.get(each.about_tenant_id, "") if each.about_tenant_id else "",
                "folder": f"{each.place.rstrip('/')}/{folder_of(each)}",
            }
            for each in found
        ],
        asked=asked,
        states=[(state.value, words[0].lower()) for state, words in WORDS.items()],
        after=found[-1].public_id if more else None,
        values=values,
        faults=faults or (),
        datasets=[(d.value, *words) for d, words in DATASETS.items()],
        formats=[(f.value, word) for f, word in FORMATS.items()],
        cadences=[(c.value, word) for c, word in CADENCES.items()],
        schedules=scheduled(None),
        place=settings.BILLING_EXPORTS["url"],
        kept_days=settings.BILLING_EXPORTS["kept_days"],
    )


def _uuid(text: str) -> uuid.UUID:
    found = decode(EXPORT, text)
    if found is None:
        raise Http404
    return found


@operator_page()
def export_file(request: HttpRequest, export_id: str, name: str) -> HttpResponse | FileResponse:
    """GET /admin/pages/exports/<id>/files/<name>"""
    found = Export.objects.filter(tenant_id=None, pk=_uuid(export_id)).first()
    if found is None:
        raise Http404
    if found.about_tenant_id is not None:
        record_read(tenant_id=found.about_tenant_id, actor=operator(request), what=request.path)
    try:
        return download(found, name)
    except NotFound:
        raise Http404 from None
    except Refused as refused:
        messages.error(request, f"It cannot be fetched: {refused}")
        return redirect("operators:exports")


@operator_page("POST")
def export_schedule(request: HttpRequest) -> HttpResponse:
    """POST /admin/pages/exports/schedules: `verb` is set or end."""
    reason = request.POST.get("reason", "").strip()[:300]
    try:
        dataset = Dataset(request.POST.get("dataset", ""))
        inputs: dict[str, Any] = {"tenant_id": None, "dataset": dataset, "reason": reason}
        if request.POST.get("verb") == "set":
            inputs |= {
                "cadence": Cadence(request.POST.get("cadence", "")),
                "file_format": Format(request.POST.get("format", "")),
            }
    except ValueError:
        raise Http404 from None
    name = DATASETS[dataset][0]
    if not reason:
        messages.error(request, "Nothing was changed: say why, for the audit log.")
    elif "cadence" in inputs:
        act(request, requesting.set_schedule, f"{name} is exported {CADENCES[inputs['cadence']]}.", **inputs)
    else:
        act(
            request,
            requesting.remove_schedule,
            f"No more of {name} is exported by itself.",
            **inputs,
        )
    return redirect("operators:exports")
