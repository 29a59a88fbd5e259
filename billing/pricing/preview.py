"""What another price book would have made of a month that is over."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal

from django.conf import settings

from billing.charging.book import Book, Override
from billing.charging.charge import Used, charge
from billing.pricing.books import books_of
from billing.pricing.many import promises, used_by
from billing.pricing.models import BillingAccount
from billing.pricing.statements import period_of, terms_of, used_of
from billing.reports import tenants_with_usage

_PAGE = 200
#: Tenants that are named, those with the greatest change.
NAMED = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What a tenant paid for the month, before taxes, and what it would have."""

    tenant_id: uuid.UUID
    before: Decimal
    after: Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """The effect of a book on a month: on everybody, and on those it changes most."""

    month: date
    currency: str
    tenants: int
    more: int  # tenants that would have paid more
    less: int
    before: Decimal
    after: Decimal
    changes: tuple[Change, ...]


def preview(book: Book, month: date) -> Preview:
    """The month with the books that held, beside the month with `book` from its first day on.
    Contracts stand above both. Reads only."""
    period = period_of(month)
    held = books_of(book.currency)
    instead = [b for b in held if b.effective_from < period.start]
    instead.append(replace(book, effective_from=period.start))
    changes = []
    after: uuid.UUID | None = None
    while tenants := tenants_with_usage(period.start, period.end, after=after, limit=_PAGE):
        after = tenants[-1]
        for tenant_id, used, overrides in _page(tenants, month, book.currency):
            now, then = (
                charge(period, used, books, overrides=overrides, currency=book.currency)
                for books in (held, instead)
            )
            changes.append(Change(tenant_id=tenant_id, before=now.net, after=then.net))
    changed = sorted(
        (c for c in changes if c.before != c.after), key=lambda c: (-abs(c.after - c.before), c.tenant_id)
    )
    return Preview(
        month=month,
        currency=book.currency,
        tenants=len(changes),
        more=sum(c.after > c.before for c in changes),
        less=sum(c.after < c.before for c in changes),
        before=sum((c.before for c in changes), Decimal(0)),
        after=sum((c.after for c in changes), Decimal(0)),
        changes=tuple(changed[:NAMED]),
    )


def preview_contract(tenant_id: uuid.UUID, promised: Override, month: date) -> Change:
    """A tenant's month beside the same with a further contract from its first to its last day."""
    terms = terms_of(tenant_id)
    period = period_of(month)
    used = used_of(tenant_id, period.start, period.end)
    whole = replace(promised, effective_from=period.start, effective_until=None)
    before, after = (
        charge(period, used, terms.books, overrides=overrides, currency=terms.account.currency)
        for overrides in (terms.overrides, [*terms.overrides, whole])
    )
    return Change(tenant_id=tenant_id, before=before.net, after=after.net)


def _page(
    tenants: list[uuid.UUID], month: date, currency: str
) -> list[tuple[uuid.UUID, Sequence[Used], Sequence[Override]]]:
    """Usage and promises of those tenants that are billed in the currency."""
    others = dict(BillingAccount.objects.filter(tenant_id__in=tenants).values_list("tenant_id", "currency"))
    billed = [t for t in tenants if others.get(t, settings.BILLING_CURRENCY) == currency]
    promised, used = promises(billed), used_by(billed, period_of(month))
    return [(t, used.get(t, ()), promised.get(t, ())) for t in billed]
