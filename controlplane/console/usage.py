"""Usage and cost of the month, day by day."""

from __future__ import annotations

from django.http import HttpResponse

from cells.contract import Scope
from controlplane.console.cost import month_so_far
from controlplane.console.visit import Visit, tenant_page


@tenant_page(Scope.USAGE_READ)
def usage(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/usage"""
    return visit.page("console/usage.html", section="usage", month=month_so_far(visit))
