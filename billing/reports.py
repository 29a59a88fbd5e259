"""Usage and cost as stored sums and the price book give them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import date
from itertools import groupby

from django.db import connection

from billing.models import PriceBook
from billing.rating import Book, Price, Rated, Usage, rate_day
from billing.sql import named_sql

_SQL = named_sql("usage")


def books() -> list[Book]:
    """All price books, oldest first."""
    return [
        Book(
            name=book.name,
            currency=book.currency,
            effective_from=book.effective_from,
            prices={
                (p.metric, p.region_policy): Price(amount=p.amount, per=p.per) for p in book.prices.all()
            },
        )
        for book in PriceBook.objects.prefetch_related("prices").order_by("effective_from")
    ]


def usage_by_day(tenant_id: uuid.UUID, since: date, until: date) -> list[tuple[date, Usage]]:
    """A tenant's usage over [since, until), by day, metric and region policy."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["usage_of_tenant"], {"tenant_id": tenant_id, "since": since, "until": until})
        rows = cursor.fetchall()
    return [(day, Usage(metric=m, region_policy=p, quantity=q)) for day, m, p, q in rows]


def daily_cost(tenant_id: uuid.UUID, since: date, until: date) -> list[Rated]:
    """What each day with usage in [since, until) costs."""
    prices = books()
    days = groupby(usage_by_day(tenant_id, since, until), key=lambda row: row[0])
    return [rate_day(day, [usage for _, usage in rows], prices) for day, rows in days]


def tenants_with_usage(since: date, until: date, *, after: uuid.UUID | None, limit: int) -> list[uuid.UUID]:
    """Who used anything in [since, until), in order of id behind `after`."""
    with connection.cursor() as cursor:
        cursor.execute(
            _SQL["tenants_with_usage"], {"since": since, "until": until, "after": after, "limit": limit}
        )
        return [row[0] for row in cursor.fetchall()]


def daily_cost_of(tenants: Sequence[uuid.UUID], since: date, until: date) -> dict[uuid.UUID, list[Rated]]:
    """The same for several tenants at once."""
    prices = books()
    with connection.cursor() as cursor:
        cursor.execute(_SQL["usage_of_all"], {"since": since, "until": until, "tenants": list(tenants)})
        rows = cursor.fetchall()
    found: dict[uuid.UUID, list[Rated]] = {t: [] for t in tenants}
    for (tenant_id, day), group in groupby(rows, key=lambda r: (r[1], r[0])):
        usages = [Usage(metric=m, region_policy=p, quantity=q) for _, _, m, p, q in group]
        found[tenant_id].append(rate_day(day, usages, prices))
    return found
