"""A bulk operation under way: its progress, and its end."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.bulk import ACTS
from controlplane.console.cells_client import CellAway, Refused, path
from controlplane.console.lists import labels_of
from controlplane.console.visit import Visit, tenant_page


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
    faults = found.get("faults") or []
    labels = labels_of(visit, (fault["job_id"] for fault in faults))
    touched = found["done"] + found["unchanged"] + found["failed"]
    return {
        "operation": found,
        "act": ACTS.get(str(found["action"]).lower()),
        "over": found["state"] != "RUNNING",
        "touched": touched,
        "left": found["count"] - touched,
        "share": round(100 * touched / found["count"], 1) if found["count"] else 100.0,
        "faults": [{**fault, "label": labels.get(fault["job_id"])} for fault in faults],
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
