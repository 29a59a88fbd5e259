"""What failed for good: groups by how, and the runs in them."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.cells_client import Refused
from controlplane.console.lists import PAGE, asked, labels_of, next_page, sentences, settled, targets_of
from controlplane.console.redrives import ACTS
from controlplane.console.visit import Visit, tenant_page

_TIMES = ("failed_from", "failed_until")
#: reason → how people read it.
_REASONS = (
    ("FAILED", "failed"),
    ("UNKNOWN", "outcome unknown"),
    ("POISON", "ended hosts again and again"),
)


@tenant_page(Scope.JOBS_READ)
def dead_letters(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/dlq/"""
    if elsewhere := settled(visit, *_TIMES):
        return redirect(elsewhere)
    filters = asked(visit, "target", "fingerprint", "job_id", "reason", *_TIMES)
    cursor = visit.request.GET.get("cursor", "")
    context: dict[str, Any] = {
        "section": "dlq", "filters": filters, "groups": [], "items": [], "reasons": _REASONS,
        "acts": ACTS.values(),
    }  # fmt: skip
    try:
        found = visit.cell.get("/v1/dlq", limit=PAGE, cursor=cursor, **filters)
    except Refused as refused:
        if refused.status != 422:
            raise
        context["faults"] = sentences(refused.faults, refused.detail)
        return visit.page("console/runs/dlq.html", status=422, **context)
    # The groups are those of the whole queue; they are not repeated on later pages.
    groups = found["groups"] if not cursor else []
    if target := filters.get("target"):
        groups = [group for group in groups if group["target_id"] == target]
    labels = labels_of(visit, (item["job_id"] for item in found["items"]))
    chosen = [group for group in groups if group["fingerprint"] == filters.get("fingerprint")]
    context |= {
        "groups": groups,
        "truncated": bool(groups) and found["truncated"],
        "chosen": chosen[0] if chosen else None,
        "targets": targets_of(visit, (item["target_id"] for item in found["items"])),
        "items": [{**item, "label": labels.get(item["job_id"])} for item in found["items"]],
        "next": next_page(visit, filters, found["next_cursor"]),
        "paged": bool(cursor),
    }
    return visit.page("console/runs/dlq.html", **context)
