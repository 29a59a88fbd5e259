"""Rehearsals of a lost region: a plan first, then what is seen, and the report."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect

from controlplane.adminsite import operator
from controlplane.errors import Refused
from controlplane.identity import decode
from controlplane.operators.pages import operator_page, page
from controlplane.rehearsals.actions import LEAST_SECONDS, MOST_SECONDS, plan_rehearsal, start_rehearsal
from controlplane.rehearsals.models import REHEARSAL, Rehearsal, Stage
from controlplane.rehearsals.report import as_csv, sums_of
from controlplane.topology.models import Region

#: While one is under way its page is asked for again after so many seconds.
_AGAIN_SECONDS = 2
_WAY = (Stage.CUTTING, Stage.CUT, Stage.RETURNING, Stage.COUNTING, Stage.DONE)
_KEYS_SHOWN = 200


@operator_page("GET", "POST")
def plan(request: HttpRequest, name: str) -> HttpResponse:
    """GET /admin/pages/regions/<name>/rehearse?cell= shows what a cut would touch; POST begins it."""
    if not Region.objects.filter(pk=name).exists():
        raise Http404
    if request.method == "POST":
        return _begun(request, name)
    try:
        found = plan_rehearsal(region=name, cells=request.GET.getlist("cell")[:1_000])
    except Refused as refused:
        messages.error(request, f"There is no plan: {refused}")
        return redirect("operators:regions")
    return page(
        request,
        "rehearsal_plan.html",
        f"Rehearse the loss of {name}",
        region=name,
        plan=found,
        tenants=sum(one.tenants for one in found.cells),
        least=LEAST_SECONDS,
        most=MOST_SECONDS,
    )


def _begun(request: HttpRequest, name: str) -> HttpResponse:
    given = request.POST
    seconds = given.get("seconds", "")
    try:
        made = start_rehearsal(
            region=name,
            cells=given.getlist("cell")[:1_000],
            seconds=int(seconds) if seconds.isascii() and seconds.isdecimal() and len(seconds) < 5 else 0,
            actor=operator(request),
            reason=given.get("reason", "").strip()[:300],
        )
    except Refused as refused:
        messages.error(request, f"Nothing was begun: {refused}")
        return redirect("operators:rehearsal-plan", name)
    messages.success(request, f"{name} is being cut off for {made.seconds} s; that ends by itself.")
    return redirect("operators:rehearsal", made.public_id)


def _rehearsal(text: str) -> Rehearsal:
    uuid = decode(REHEARSAL, text)
    found = None if uuid is None else Rehearsal.objects.filter(pk=uuid).first()
    if found is None:
        raise Http404
    return found


@operator_page()
def one_rehearsal(request: HttpRequest, rehearsal: str) -> HttpResponse:
    """GET /admin/pages/rehearsals/<id>/"""
    found = _rehearsal(rehearsal)
    reports = [row.report for row in found.cells.order_by("cell") if row.report is not None]
    at = _WAY.index(found.at) if found.at in _WAY else -1
    repeats = [(report["cell"], one) for report in reports for one in report["repeats"]]
    answer = page(
        request,
        "rehearsal.html",
        f"Rehearsal of {found.region_id}",
        rehearsal=found,
        way=[
            (stage.value, "passed" if n < at else "present" if n == at else "to come")
            for n, stage in enumerate(_WAY)
        ],
        reports=reports,
        together=sums_of(reports) if reports else None,
        repeats=repeats[:_KEYS_SHOWN],
        more=max(0, len(repeats) - _KEYS_SHOWN),
    )
    if found.finished_at is None:
        answer["Refresh"] = str(_AGAIN_SECONDS)
    return answer


@operator_page()
def report_file(request: HttpRequest, rehearsal: str, form: str) -> HttpResponse:
    """GET /admin/pages/rehearsals/<id>/report.json (or .csv)"""
    found = _rehearsal(rehearsal)
    reports = [row.report for row in found.cells.order_by("cell") if row.report is not None]
    if form not in ("json", "csv") or not reports:
        raise Http404
    named = {"Content-Disposition": f'attachment; filename="{found.public_id}.{form}"'}
    if form == "csv":
        return HttpResponse(as_csv(reports), content_type="text/csv; charset=utf-8", headers=named)
    document = {
        "rehearsal_id": found.public_id, "region": found.region_id, "seconds": found.seconds,
        "cut_at": found.cut_at, "until": found.until, "cells": reports, "together": sums_of(reports),
    }  # fmt: skip
    return JsonResponse(document, headers=named)
