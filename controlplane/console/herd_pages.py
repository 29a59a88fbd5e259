"""The herd map: what is due in each minute of the coming day, on a page of its own and on the overview."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse

from cells.contract import Scope
from cells.domain.job import Priority
from controlplane.console.cells_client import Refused
from controlplane.console.herd import herd
from controlplane.console.lists import asked, sentences
from controlplane.console.visit import Visit, tenant_page


@tenant_page(Scope.JOBS_READ)
def herd_map(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/herd"""
    filters = asked(visit, "target", "priority")
    context: dict[str, Any] = {
        "section": "overview",
        "filters": filters,
        "priorities": [priority.name for priority in Priority],
    }
    try:
        context |= _herd(visit, filters)
    except Refused as refused:
        if refused.status != 422:
            raise
        context["faults"] = sentences(refused.faults, refused.detail)
        return visit.page("console/herd.html", status=422, **context)
    return visit.page("console/herd.html", **context)


@tenant_page(Scope.JOBS_READ)
def herd_part(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/herd/part: the map alone."""
    return visit.page("console/parts/herd_part.html", **_herd(visit, {}))


def _herd(visit: Visit, filters: dict[str, str]) -> dict[str, Any]:
    found = visit.cell.get("/v1/herd", **filters)
    listed = {"target": filters["target"]} if "target" in filters else {}
    return {
        "herd": herd(found["minutes"], now=visit.now, zone=visit.zone),
        "herd_filters": f"&{urlencode(listed)}" if listed else "",
        "left_out": found["jobs_left_out"],
    }
