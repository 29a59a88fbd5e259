"""What a tenant's month comes to: usage and stored prices brought to `charge`.

Estimates, budgets, previews and invoices all ask here, so none can differ from another.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from billing.charging.book import Book, Override, Period
from billing.charging.charge import (
    CARRIED_OVER,
    Correction,
    Statement,
    TaxRate,
    Used,
    charge,
    corrections_of,
)
from billing.charging.machine import InvoiceState
from billing.invoices.models import Invoice
from billing.months import month_of, next_month
from billing.periods import adjustments
from billing.pricing.accounts import Account, account_of
from billing.pricing.books import books_of
from billing.pricing.contracts import overrides_of
from billing.usage import usage_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """By what a tenant is charged."""

    account: Account
    books: Sequence[Book]
    overrides: Sequence[Override]

    @property
    def taxes(self) -> tuple[TaxRate, ...]:
        """Of its account."""
        return self.account.taxes


def terms_of(tenant_id: uuid.UUID) -> Terms:
    """The tenant's account, the books of its currency, its contracts."""
    account = account_of(tenant_id)
    return Terms(account=account, books=books_of(account.currency), overrides=overrides_of(tenant_id))


def used_of(tenant_id: uuid.UUID, since: date, until: date) -> list[Used]:
    """Usage by day over [since, until), all cells together."""
    totals: dict[tuple[date, str, str], int] = defaultdict(int)
    for usage in usage_of(tenant_id, since, until):
        totals[usage.day, usage.metric, usage.region_policy] += usage.quantity
    return [
        Used(day=day, metric=metric, region_policy=policy, quantity=quantity)
        for (day, metric, policy), quantity in sorted(totals.items())
    ]


def period_of(month: date) -> Period:
    """A calendar month."""
    return Period(start=month, end=next_month(month))


def statement_of(tenant_id: uuid.UUID, month: date, terms: Terms | None = None) -> Statement:
    """What a month comes to, by what is known of it. Of a closed month it is final."""
    terms = terms or terms_of(tenant_id)
    period = period_of(month)
    used = used_of(tenant_id, period.start, period.end)
    return stated(period, used, terms, corrections_in(tenant_id, month, terms))


def stated(
    period: Period, used: Sequence[Used], terms: Terms, corrections: Sequence[Correction]
) -> Statement:
    """What usage comes to by a tenant's terms, with what is corrected of earlier months."""
    return charge(
        period,
        used,
        terms.books,
        overrides=terms.overrides,
        taxes=terms.taxes,
        corrections=corrections,
        currency=terms.account.currency,
    )


def corrections_in(tenant_id: uuid.UUID, month: date, terms: Terms) -> list[Correction]:
    """What a month bills of closed ones before it, month by month: each as the difference to what was
    billed of that month until then. And what the invoice before gave back and could not settle."""
    late: dict[date, list[Used]] = defaultdict(list)
    for row in adjustments(tenant_id, month):
        late[month_of(row.day)].append(
            Used(day=row.day, metric=row.metric, region_policy=row.region_policy, quantity=row.quantity)
        )
    found: list[Correction] = []
    for earlier in sorted(late):
        period = period_of(earlier)
        billed = used_of(tenant_id, period.start, period.end)
        between = next_month(earlier)
        while between < month:
            billed += [
                Used(day=r.day, metric=r.metric, region_policy=r.region_policy, quantity=r.quantity)
                for r in adjustments(tenant_id, between)
                if month_of(r.day) == earlier
            ]
            between = next_month(between)
        found += corrections_of(
            period, billed, late[earlier], terms.books, overrides=terms.overrides,
            currency=terms.account.currency,
        )  # fmt: skip
    return found + _carried_over(tenant_id, month)


def _carried_over(tenant_id: uuid.UUID, month: date) -> list[Correction]:
    """What the invoice of the month before gave back beyond what that month came to. If this month
    does not use it up, either, its own invoice is below zero, and the next month carries the rest."""
    before = (
        Invoice.objects.filter(tenant_id=tenant_id, period_end=month, sequence__isnull=False, total__lt=0)
        .exclude(state=InvoiceState.VOID)
        .first()
    )
    if before is None:
        return []
    period = Period(start=before.period_start, end=before.period_end)
    return [Correction(period=period, metric=CARRIED_OVER, region_policy="", quantity=0, exact=before.net)]
