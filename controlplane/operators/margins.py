"""What tenants are charged for a month, what they cost us, and what is left of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from decimal import Decimal

from django.db.models import Count, Sum
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from billing.charging.charge import Statement
from billing.charging.machine import InvoiceState
from billing.charging.money import quantize
from billing.invoices.models import Invoice
from billing.models import BillingPeriod
from billing.months import next_month
from billing.pricing.many import rated
from billing.rating import Rated
from billing.reports import daily_cost_of
from billing.usage_models import PeriodState
from cells.contract import Metric
from controlplane.operators.pages import operator_page, page
from controlplane.tenants.models import Tenant

#: Each row rates a whole month.
_PAGE = 25


@dataclass(frozen=True, kw_only=True)
class Margin:
    """A tenant's month. `left` is None where charge and cost are in different currencies."""

    tenant: Tenant
    charged: Decimal
    currency: str
    cost: Decimal
    cost_currency: str
    replication: int | None  # percent of the cost
    driver: str  # the metric that costs most
    unpriced: tuple[str, ...]  # used, and in no price book

    @property
    def left(self) -> Decimal | None:
        return self.charged - self.cost if self.currency == self.cost_currency else None

    @property
    def percent(self) -> int | None:
        left = self.left
        return None if left is None or not self.charged else round(left / self.charged * 100)

    @property
    def loses(self) -> bool:
        return self.left is not None and self.left < 0


def margins(tenants: Sequence[Tenant], month: date, today: date) -> list[Margin]:
    """Some tenants' month, as far as it has come."""
    until = min(next_month(month), max(month, today) + timedelta(days=1))
    ids = [tenant.id for tenant in tenants]
    costs = daily_cost_of(ids, month, until) if tenants else {}
    charged = {each.tenant_id: each.statement for each in rated(ids, month)}
    return [_margin(tenant, charged[tenant.id], costs.get(tenant.id, [])) for tenant in tenants]


def _margin(tenant: Tenant, statement: Statement, days: list[Rated]) -> Margin:
    by_metric: dict[str, Decimal] = {}
    for day in days:
        for line in day.lines:
            metric = line.usage.metric
            by_metric[metric] = by_metric.get(metric, Decimal(0)) + line.cost
    cost = sum(by_metric.values(), Decimal(0))
    replicated = by_metric.get(Metric.REPLICATED_WRITES, Decimal(0))
    return Margin(
        tenant=tenant,
        charged=statement.net,
        currency=statement.currency,
        cost=cost,
        cost_currency=days[-1].currency if days else statement.currency,
        replication=round(replicated / cost * 100) if cost else None,
        driver=max(by_metric, key=lambda metric: by_metric[metric]).replace("_", " ") if cost else "",
        unpriced=tuple(dict.fromkeys(metric.replace("_", " ") for metric, _ in statement.unpriced)),
    )


def month_asked(text: str, today: date) -> date:
    """The month that `YYYY-MM` names; this one where none, or nonsense, is asked for."""
    try:
        found = date.fromisoformat(f"{text}-01")
    except ValueError:
        return today.replace(day=1)
    return max(date(2020, 1, 1), min(found, today.replace(day=1)))


@operator_page()
def margin_list(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/money/?month=&q=&after="""
    today = timezone.now().astimezone(UTC).date()
    month = month_asked(request.GET.get("month", ""), today)
    q = request.GET.get("q", "").strip()[:100]
    tenants = Tenant.objects.order_by("slug")
    if q:
        tenants = tenants.filter(slug__icontains=q)
    if after := request.GET.get("after", "")[:48]:
        tenants = tenants.filter(slug__gt=after)
    found = list(tenants[: _PAGE + 1])
    more, found = len(found) > _PAGE, found[:_PAGE]
    return page(
        request,
        "margins.html",
        f"Money in {month:%B %Y}",
        month=month,
        earlier=(month - timedelta(days=1)).replace(day=1),
        later=next_month(month) if next_month(month) <= today else None,
        q=q,
        rows=margins(found, month, today),
        invoiced=_invoiced(month),
        open_periods=BillingPeriod.objects.filter(month=month).exclude(state=PeriodState.CLOSED).count(),
        after=found[-1].slug if more else None,
    )


def _invoiced(month: date) -> list[dict[str, str | int]]:
    """The month's invoices by state and currency."""
    sums = (
        Invoice.objects.filter(period_start=month)
        .exclude(state=InvoiceState.VOID)
        .values("state", "currency")
        .annotate(count=Count("id"), sum=Sum("total"), credited=Sum("credited"))
        .order_by("state", "currency")
    )
    return [
        {
            "state": row["state"],
            "count": row["count"],
            "total": f"{quantize(row['sum'] - row['credited'], row['currency']):,} {row['currency']}",
        }
        for row in sums
    ]
