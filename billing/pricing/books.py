"""Price books: what everybody pays who was promised nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from django.db import transaction

from billing.charging.book import Book
from billing.hooks import Actor, audit
from billing.invoices.models import Invoice
from billing.pricing.models import ChargeBook
from billing.pricing.terms import read_terms, shown_terms, stored_terms, terms_faults
from billing.refusals import Conflicting, NotFound, refuse_faults


def as_book(row: ChargeBook) -> Book:
    """A stored book, for `charge`."""
    return Book(
        name=row.name,
        currency=row.currency,
        effective_from=row.effective_from,
        **read_terms(row.prices, row.minimum),
    )


def books_of(currency: str) -> list[Book]:
    """All books of a currency, oldest first."""
    rows = ChargeBook.objects.filter(currency=currency).order_by("effective_from")
    return [as_book(row) for row in rows]


def find_book(book_id: uuid.UUID) -> ChargeBook:
    """A stored book."""
    row = ChargeBook.objects.filter(pk=book_id).first()
    if row is None:
        raise NotFound("no such price book")
    return row


def drafted(
    *, name: str, currency: str, effective_from: date, prices: Sequence[Mapping[str, Any]], minimum: str
) -> Book:
    """A book that is not stored, checked but for its day; `Invalid` with every fault."""
    refuse_faults(_faults(name=name, currency=currency, prices=prices, minimum=minimum))
    return Book(
        name=name,
        currency=currency,
        effective_from=effective_from,
        **read_terms(prices, minimum),
    )


@transaction.atomic
def create_book(
    *,
    name: str,
    currency: str,
    effective_from: date,
    prices: Sequence[Mapping[str, Any]],
    minimum: str = "0",
    note: str = "",
    today: date,
    actor: Actor,
    reason: str,
) -> ChargeBook:
    """A new version of the prices, from a day to come on. The first of a currency may begin at any
    day, as nothing was charged by another."""
    faults = _faults(name=name, currency=currency, prices=prices, minimum=minimum)
    first = not ChargeBook.objects.filter(currency=currency).exists()
    if effective_from <= today and (not first or _invoiced(currency)):
        faults.append(("/effective_from", "must lie ahead: prices of days that have begun stay"))
    if ChargeBook.objects.filter(name=name).exists():
        faults.append(("/name", "there is a book of that name"))
    if ChargeBook.objects.filter(currency=currency, effective_from=effective_from).exists():
        faults.append(("/effective_from", f"another book in {currency} begins that day"))
    refuse_faults(faults)
    row = ChargeBook.objects.create(
        name=name,
        currency=currency,
        effective_from=effective_from,
        **stored_terms(prices, minimum),
        note=note,
        created_by=actor.name,
    )
    row.refresh_from_db()
    audit(
        action="price_book.create", subject=row.public_id, tenant_id=None, actor=actor, reason=reason,
        after=described(row),
    )  # fmt: skip
    return row


@transaction.atomic
def withdraw_book(*, book_id: uuid.UUID, today: date, actor: Actor, reason: str) -> None:
    """Takes a book back before its day."""
    row = find_book(book_id)
    if row.effective_from <= today:
        raise Conflicting(f"{row.name} is in force since {row.effective_from}: it stays")
    before = described(row)
    subject = row.public_id
    row.delete()
    audit(
        action="price_book.withdraw", subject=subject, tenant_id=None, actor=actor, reason=reason,
        before=before,
    )  # fmt: skip


def described(row: ChargeBook) -> dict[str, Any]:
    """A book as a document."""
    return {
        "name": row.name,
        "currency": row.currency,
        "effective_from": row.effective_from.isoformat(),
        **shown_terms(row.prices, row.minimum),
        "note": row.note,
    }


def _faults(
    *, name: str, currency: str, prices: Sequence[Mapping[str, Any]], minimum: str
) -> list[tuple[str, str]]:
    found = [] if name.strip() else [("/name", "may not be empty")]
    return found + terms_faults(prices, minimum, currency)


def _invoiced(currency: str) -> bool:
    return Invoice.objects.filter(currency=currency, sequence__isnull=False).exists()
