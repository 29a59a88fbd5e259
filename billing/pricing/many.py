"""Many tenants' months at once: the statements they would have one by one, of a few queries a page."""

from __future__ import annotations

import itertools
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from django.db import connection

from billing.charging.book import Override, Period
from billing.charging.charge import Statement, Used
from billing.invoices.models import Invoice
from billing.pricing.accounts import accounts_of
from billing.pricing.books import books_of
from billing.pricing.contracts import as_override
from billing.pricing.models import Contract
from billing.pricing.statements import Terms, corrections_in, period_of, stated
from billing.sql import named_sql
from billing.usage_models import UsageAdjustment

_SQL = named_sql("usage")
_PAGE = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Rated:
    """A tenant's month, and by what it was rated."""

    tenant_id: uuid.UUID
    terms: Terms
    statement: Statement


def rated(tenants: Iterable[uuid.UUID], month: date) -> Iterator[Rated]:
    """What a month comes to for each of some tenants, in their order; those that are none are left out."""
    waiting = iter(tenants)
    while page := list(itertools.islice(waiting, _PAGE)):
        yield from _page(page, month)


def _page(tenants: Sequence[uuid.UUID], month: date) -> Iterator[Rated]:
    period = period_of(month)
    accounts = accounts_of(tenants)
    books = {currency: books_of(currency) for currency in {each.currency for each in accounts.values()}}
    promised, used = promises(tenants), used_by(tenants, period)
    special = _corrected(tenants, month)
    for tenant_id in tenants:
        if (account := accounts.get(tenant_id)) is None:
            continue
        terms = Terms(account=account, books=books[account.currency], overrides=promised.get(tenant_id, ()))
        corrections = corrections_in(tenant_id, month, terms) if tenant_id in special else ()
        statement = stated(period, used.get(tenant_id, ()), terms, corrections)
        yield Rated(tenant_id=tenant_id, terms=terms, statement=statement)


def promises(tenants: Sequence[uuid.UUID]) -> Mapping[uuid.UUID, list[Override]]:
    """Contracts of some tenants, oldest first."""
    found: dict[uuid.UUID, list[Override]] = defaultdict(list)
    for row in Contract.objects.filter(tenant_id__in=tenants).order_by("effective_from"):
        found[row.tenant_id].append(as_override(row))
    return found


def used_by(tenants: Sequence[uuid.UUID], period: Period) -> Mapping[uuid.UUID, list[Used]]:
    """Usage of some tenants by day, all cells together."""
    found: dict[uuid.UUID, list[Used]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(
            _SQL["usage_of_all"], {"since": period.start, "until": period.end, "tenants": list(tenants)}
        )
        for day, tenant_id, metric, policy, quantity in cursor.fetchall():
            found[tenant_id].append(Used(day=day, metric=metric, region_policy=policy, quantity=quantity))
    return found


def _corrected(tenants: Sequence[uuid.UUID], month: date) -> set[uuid.UUID]:
    """Those whose month bills something of an earlier one: they are few, and rated one by one."""
    late = UsageAdjustment.objects.filter(tenant_id__in=tenants, into_month=month)
    carried = Invoice.objects.filter(tenant_id__in=tenants, period_end=month, total__lt=0)
    return {
        *late.values_list("tenant_id", flat=True).distinct(),
        *carried.values_list("tenant_id", flat=True),
    }
