"""Usage and cost of a month: by day, metric, region policy or job, and the meter records behind a day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpResponse

from billing import grouping
from billing.budgets import watching
from billing.cells import CellAway as CountsAway
from billing.charging.documents import POLICIES as PRICED
from billing.grouping import By
from billing.invoices import tracing
from billing.live import received_by_cell
from billing.refusals import NotFound
from cells.contract import Metric, Scope
from controlplane.api.pagination import decode_cursor, encode_cursor
from controlplane.api.problems import Problem
from controlplane.console.cells_client import CellAway
from controlplane.console.cost import Line, Month, chart, money, month_of, months_around, prices_on
from controlplane.console.lists import PAGE, asked, labels_of, next_page
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.wording import instant

_EARLIEST = date(2020, 1, 1)
_FILTERS = ("month", "by", "metric", "policy")
METRICS = tuple(metric.value for metric in Metric)
#: Beside "any", which is no policy of usage.
POLICIES = PRICED[1:]


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRow:
    """A job and its runs that ended in the month. `cost` is its share of what runs came to."""

    job_id: str
    label: str
    runs: int
    cost: str
    href: str


@tenant_page(Scope.USAGE_READ)
def usage(visit: Visit) -> HttpResponse:
    """GET …/usage?month=2026-11&by=day|metric|region_policy|job&metric=&policy=&cursor="""
    today = visit.now.astimezone(UTC).date()
    filters = asked(visit, *_FILTERS)
    by = By(filters["by"]) if filters.get("by") in list(By) else By.DAY
    metric = filters.get("metric", "") if filters.get("metric") in METRICS else ""
    policy = filters.get("policy", "") if filters.get("policy") in POLICIES else ""
    first = _month(filters.get("month", ""), today)
    month = month_of(visit.tenant.id, first, today, metric=metric, policy=policy)
    earlier, later = months_around(first, today)
    context: dict[str, Any] = _by_job(visit, month, filters) if by is By.JOB else {}
    return visit.page(
        "console/money/usage.html",
        section="usage",
        tab="usage",
        month=month,
        by=by.value,
        ways=[(way.value, way.value.replace("_", " ")) for way in By],
        metric=metric,
        policy=policy,
        metrics=METRICS,
        policies=POLICIES,
        lines=month.by_policy() if by is By.REGION_POLICY else month.by_metric(),
        chart=chart(month),
        budget=_budget(visit, today),
        prices=prices_on(visit.tenant.id, min(month.last, today)),
        earlier=earlier,
        later=later,
        current=first == today.replace(day=1),
        counted_at=received_by_cell().get(visit.tenant.placement.cell_id) if _placed(visit) else None,
        **context,
    )


def _budget(visit: Visit, today: date) -> watching.BudgetState | None:
    try:
        return watching.budget_state(visit.tenant.id, today)
    except NotFound:
        return None


def _by_job(visit: Visit, month: Month, filters: dict[str, str]) -> dict[str, Any]:
    """Jobs of the month, a page at a time; why there are none where cells do not answer."""
    cursor = visit.request.GET.get("cursor", "")
    if cursor and not grouping.fits(By.JOB, [cursor]):
        raise Http404
    until = month.last + timedelta(days=1)
    try:
        found = grouping.by_job(
            visit.tenant.id, month.first, until, after=(cursor,) if cursor else None, limit=PAGE
        )
    except CountsAway as away:
        return {"jobs_away": ", ".join(away.cells)}
    ids = [row.job_id for row in found.rows if row.job_id is not None]
    try:
        labels = labels_of(visit, ids)
    except CellAway:
        labels = {}
    span = {"finished_from": _start(month.first), "finished_until": _start(until)}
    each = {line.policy: line for line in month.by_policy() if line.metric == Metric.JOB_RUNS}
    return {
        "jobs": [
            JobRow(
                job_id=row.job_id,
                label=labels.get(row.job_id, row.job_id),
                runs=row.quantity,
                cost=_share(row.quantity, each.get(row.region_policy or "")),
                href=f"{visit.url('runs')}?{urlencode({'job_id': row.job_id, **span})}",
            )
            for row in found.rows
            if row.job_id is not None
        ],
        "complete_until": found.complete_until,
        "next": next_page(visit, filters, ids[-1] if found.more else None),
        "paged": bool(cursor),
    }


def _share(runs: int, line: Line | None) -> str:
    """What runs of a policy come to if all of them cost the same."""
    if line is None or line.exact is None or not line.quantity:
        return "–"
    return money(line.exact * Decimal(runs) / Decimal(line.quantity))


def _start(day: date) -> str:
    return instant(datetime.combine(day, time(), UTC))


@tenant_page(Scope.USAGE_READ)
def usage_records(visit: Visit) -> HttpResponse:
    """GET …/usage/records?day=2026-11-01&metric=&policy=&cursor=: what a day's figure was added up from."""
    filters = asked(visit, "day", "metric", "policy")
    metric, policy = filters.get("metric", ""), filters.get("policy", "")
    try:
        day = date.fromisoformat(filters.get("day", ""))
    except ValueError:
        raise Http404 from None
    if metric not in METRICS or policy not in ("", *POLICIES) or not _EARLIEST <= day < date(9999, 1, 1):
        raise Http404
    found = tracing.records_of(
        visit.tenant.id, day, metric=metric, region_policy=policy, after=mark_of(visit), limit=PAGE + 1
    )
    return visit.page(
        "console/money/records.html",
        section="usage",
        tab="usage",
        day=day,
        metric=metric.replace("_", " "),
        policy=policy,
        title=f"{metric.replace('_', ' ').capitalize()} of {day:%d %B %Y}",
        back=f"{visit.url('usage')}?month={day:%Y-%m}",
        back_word=f"{day:%B %Y}",
        **page_of_records(visit, filters, found),
    )


def page_of_records(visit: Visit, filters: dict[str, str], found: list[tracing.Record]) -> dict[str, Any]:
    """A page of records out of up to one more than fit."""
    shown = found[:PAGE]
    cursor = encode_cursor(tracing.mark_text(shown[-1].mark)) if len(found) > PAGE else None
    return {
        "records": shown,
        "next": next_page(visit, filters, cursor),
        "paged": bool(visit.request.GET.get("cursor")),
    }


def mark_of(visit: Visit) -> tracing.Mark | None:
    """Where the page before ended. What is no cursor of ours is not found."""
    text = visit.request.GET.get("cursor", "")
    if not text:
        return None
    try:
        found = tracing.mark_of(decode_cursor(text, 6))
    except Problem:
        found = None
    if found is None:
        raise Http404
    return found


def _placed(visit: Visit) -> bool:
    return hasattr(visit.tenant, "placement")


def _month(text: str, today: date) -> date:
    """The first day of the month asked for; this one where none, or nonsense, is asked for."""
    try:
        first = date.fromisoformat(f"{text}-01")
    except ValueError:
        first = today
    return max(_EARLIEST, min(first, today)).replace(day=1)
