"""Usage and cost of a month, day by day: a chart, a table, the prices behind it."""

from __future__ import annotations

from datetime import UTC, date

from django.http import HttpResponse

from billing.live import received_by_cell
from cells.contract import Scope
from controlplane.console.cost import chart, month_of, months_around, prices_on
from controlplane.console.visit import Visit, tenant_page

_EARLIEST = date(2020, 1, 1)


@tenant_page(Scope.USAGE_READ)
def usage(visit: Visit) -> HttpResponse:
    """GET …/usage?month=2026-11"""
    today = visit.now.astimezone(UTC).date()
    first = _month(visit.request.GET.get("month", ""), today)
    month = month_of(visit.tenant.id, first, today)
    earlier, later = months_around(first, today)
    return visit.page(
        "console/usage.html",
        section="usage",
        month=month,
        chart=chart(month),
        prices=prices_on(min(month.last, today)),
        earlier=earlier,
        later=later,
        current=first == today.replace(day=1),
        counted_at=received_by_cell().get(visit.tenant.placement.cell_id) if _placed(visit) else None,
    )


def _placed(visit: Visit) -> bool:
    return hasattr(visit.tenant, "placement")


def _month(text: str, today: date) -> date:
    """The first day of the month asked for; this one where none, or nonsense, is asked for."""
    try:
        first = date.fromisoformat(f"{text}-01")
    except ValueError:
        first = today
    return max(_EARLIEST, min(first, today)).replace(day=1)
