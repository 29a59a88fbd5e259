"""Bulk operations: those there were, and one with its progress and its end."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.bulk import ACTS
from controlplane.console.cells_client import CellAway, Refused, path
from controlplane.console.lists import PAGE, labels_of, next_page
from controlplane.console.visit import Visit, tenant_page


@tenant_page(Scope.JOBS_READ)
def operation_list(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/operations/"""
    found = visit.cell.get("/v1/operations", limit=PAGE, cursor=visit.request.GET.get("cursor", ""))
    return visit.page(
        "console/jobs/operations.html",
        section="jobs",
        operations=[{**item, "act": ACTS.get(item["action"])} for item in found["items"]],
        next=next_page(visit, {}, found["next_cursor"]),
        paged=bool(visit.request.GET.get("cursor")),
    )


@tenant_page(Scope.JOBS_READ)
def operation(visit: Visit, operation_id: str) -> HttpResponse:
    """GET /t/<slug>/operations/<operation_id>/"""
    return visit.page("console/jobs/operation.html", section="jobs", **_operation(visit, operation_id))


@tenant_page(Scope.JOBS_READ)
def operation_live(visit: Visit, operation_id: str) -> HttpResponse:
    """GET /t/<slug>/operations/<operation_id>/live: the parts that change."""
    return visit.page("console/jobs/operation_live.html", **_operation(visit, operation_id))


def _operation(visit: Visit, operation_id: str) -> dict[str, Any]:
    found = visit.cell.get(path("operations", operation_id))
    failures = found["failures"]
    labels = labels_of(visit, (failure["job_id"] for failure in failures))
    total, touched = found["total"], found["processed"]
    return {
        "operation": found,
        "act": ACTS.get(str(found["action"]).lower()),
        "over": found["state"] != "RUNNING",
        "touched": touched,
        "left": total - touched,
        "share": round(100 * touched / total, 1) if total else 100.0,
        "failures": [{**failure, "label": labels.get(failure["job_id"])} for failure in failures],
    }


@tenant_page(Scope.JOBS_WRITE, "POST")
def operation_stop(visit: Visit, operation_id: str) -> HttpResponse:
    """POST /t/<slug>/operations/<operation_id>/stop"""
    try:
        visit.cell.post(path("operations", operation_id, verb="stop"), {})
        messages.success(visit.request, "It stops. What is done stays done; nothing else will be touched.")
    except Refused as refused:
        if refused.status == 404:
            raise
        messages.error(visit.request, refused.detail)
    except CellAway as away:
        messages.error(visit.request, str(away))
    return redirect(visit.url("operation", operation_id))
