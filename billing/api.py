"""/v1/cost-reports, and what reports have in common. Knows its caller only as something with a tenant
and scopes: authentication, permissions and error documents are the project's defaults for DRF."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Protocol

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.hooks import Actor, note_read
from billing.rating import STEP, Line, Rated
from billing.reports import daily_cost, daily_cost_of, tenants_with_usage
from cells.contract import Scope
from cells.domain.ids import TENANT, decode, encode

#: Days a report may span, and spans if nothing is said.
MOST_DAYS = 400
USUAL_DAYS = 31
MOST_TENANTS = 100


class Principal(Protocol):
    """What billing needs to know of who asks."""

    tenant_id: uuid.UUID | None
    operator: bool

    def as_actor(self) -> Actor: ...


class Range(serializers.Serializer[Any]):
    """First and last day of a report, both included; UTC."""

    vars()["from"] = serializers.DateField()  # no name for a Python attribute
    to = serializers.DateField()


class CostLine(serializers.Serializer[Any]):
    """`unit_price` for each `per` units; null where the price book has none."""

    metric = serializers.CharField()
    region_policy = serializers.CharField()
    quantity = serializers.IntegerField()
    unit_price = serializers.CharField(allow_null=True)
    per = serializers.IntegerField(allow_null=True)
    cost = serializers.CharField()


class CostDay(serializers.Serializer[Any]):
    day = serializers.DateField()
    currency = serializers.CharField()
    price_book = serializers.CharField(allow_null=True)
    total = serializers.CharField()
    lines = CostLine(many=True)


class CostDocument(Range):
    """Totals are the exact sums of their lines."""

    total = serializers.CharField()
    items = CostDay(many=True)


class TenantCost(serializers.Serializer[Any]):
    tenant_id = serializers.CharField()
    total = serializers.CharField()
    days = CostDay(many=True)


class OperatorCostDocument(Range):
    items = TenantCost(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class BadQuery(serializers.ValidationError):
    """A fault of the query, not of a body; the project's error documents ask for `in_query`."""

    in_query = True


def fault(parameter: str, detail: str) -> BadQuery:
    """What is wrong with a parameter of the query."""
    return BadQuery({parameter: [detail]})


def _day(request: Request, name: str, default: date) -> date:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        return date.fromisoformat(text)
    except ValueError as e:
        raise fault(name, "a day: YYYY-MM-DD") from e


def range_of(request: Request) -> tuple[date, date]:
    """Both `from` and `to` are included, as people mean it; given back half-open."""
    today = datetime.now(UTC).date()
    last = _day(request, "to", today)
    first = _day(request, "from", last - timedelta(days=USUAL_DAYS - 1))
    if first > last:
        raise fault("from", "lies behind `to`")
    if (last - first).days >= MOST_DAYS:
        raise fault("from", f"a report spans at most {MOST_DAYS} days")
    if last >= date.max:
        raise fault("to", "too far away")
    return first, last + timedelta(days=1)


def shown_range(since: date, until: date) -> dict[str, str]:
    """A half-open range as documents show it: both days included."""
    return {"from": since.isoformat(), "to": (until - timedelta(days=1)).isoformat()}


def _money(amount: Decimal) -> str:
    return f"{amount:f}"


def _show_line(line: Line) -> dict[str, Any]:
    return {
        "metric": line.usage.metric,
        "region_policy": line.usage.region_policy,
        "quantity": line.usage.quantity,
        "unit_price": _money(line.price.amount) if line.price else None,
        "per": line.price.per if line.price else None,
        "cost": _money(line.cost),
    }


def _show_day(rated: Rated) -> dict[str, Any]:
    return {
        "day": rated.day.isoformat(),
        "currency": rated.currency,
        "price_book": rated.book,
        "total": _money(rated.total),
        "lines": [_show_line(line) for line in rated.lines],
    }


def _total(days: list[Rated]) -> str:
    return _money(sum((d.total for d in days), Decimal(0).quantize(STEP)))


class Report(APIView):
    """Read by the project's permission class: which scope, which parameters."""

    scopes = MappingProxyType({"GET": Scope.USAGE_READ})
    parameters = frozenset({"from", "to"})

    def tenant_of(self, request: Request) -> uuid.UUID:
        principal: Principal = request.user
        if principal.tenant_id is None:
            raise ParseError("Name the tenant in X-Tenant-Id.")
        return principal.tenant_id

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        unknown = [name for name in request.query_params if name not in self.parameters]
        if unknown:
            raise BadQuery({name: ["Unknown parameter."] for name in unknown})
        text = request.query_params.get("tenant_id")
        of = request.user.tenant_id if text is None else decode(TENANT, text)
        if request.user.operator and of is not None:
            note_read(tenant_id=of, actor=request.user.as_actor(), what=request.path)


class DailyCostView(Report):
    @extend_schema(operation_id="get_daily_cost", responses=CostDocument)
    def get(self, request: Request) -> Response:
        """What each day's work cost the operator of this installation to do, line by line: the unit costs of
        its cost model (writes, their replicas, compute, storage), which tenants may see. It is not what a
        tenant is charged: that is in /v1/usage/forecast and /v1/invoices, at the price book's prices."""
        since, until = range_of(request)
        days = daily_cost(self.tenant_of(request), since, until)
        return Response(
            {
                **shown_range(since, until),
                "total": _total(days),
                "items": [_show_day(d) for d in days],
            }
        )


class AllDailyCostView(Report):
    """Operators: every tenant's daily cost."""

    scopes = MappingProxyType({"GET": Scope.OPERATOR})
    parameters = frozenset({"from", "to", "tenant_id", "limit", "cursor"})

    @extend_schema(operation_id="get_all_daily_cost", responses=OperatorCostDocument)
    def get(self, request: Request) -> Response:
        """What the work of each tenant that used anything cost to do, day by day, at the unit costs of the
        cost model; a page of tenants at a time."""
        since, until = range_of(request)
        limit, after = self._page(request)
        if "tenant_id" in request.query_params:
            tenants = [self._tenant(request.query_params["tenant_id"], "tenant_id")]
        else:
            tenants = tenants_with_usage(since, until, after=after, limit=limit + 1)
        more = len(tenants) > limit
        tenants = tenants[:limit]
        costs = daily_cost_of(tenants, since, until)
        items = [
            {
                "tenant_id": encode(TENANT, t),
                "total": _total(costs[t]),
                "days": [_show_day(d) for d in costs[t]],
            }
            for t in tenants
        ]
        cursor = encode(TENANT, tenants[-1]) if more else None
        return Response({**shown_range(since, until), "items": items, "next_cursor": cursor})

    def _page(self, request: Request) -> tuple[int, uuid.UUID | None]:
        text = request.query_params.get("limit", "50")
        if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= MOST_TENANTS):
            raise fault("limit", f"a whole number from 1 to {MOST_TENANTS}")
        cursor = request.query_params.get("cursor")
        return int(text), None if cursor is None else self._tenant(cursor, "cursor")

    @staticmethod
    def _tenant(text: str, parameter: str) -> uuid.UUID:
        found = decode(TENANT, text)
        if found is None:
            raise fault(parameter, "not a tenant's id")
        return found
