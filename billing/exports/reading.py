"""What exports consist of, read from the database page by page: memory holds a page, or what one tenant
used of one metric in a month."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import structlog
from django.conf import settings
from django.db import connection

from billing.charging.book import Book, segments
from billing.charging.charge import Used, charge
from billing.charging.prices import Price
from billing.exports import columns
from billing.exports.columns import Column
from billing.exports.focus import PRODUCT, Bill, Known, Payer, Prices, Row, focus_rows
from billing.exports.machine import Dataset
from billing.exports.slices import Slice, slices_of
from billing.hooks import cell_regions
from billing.ids import ACCOUNT, INVOICE, TENANT, encode
from billing.invoices.drafting import stored_lines
from billing.invoices.lines import Line, described, lines_of
from billing.invoices.models import CreditNote, Invoice
from billing.months import next_month, start_of, window
from billing.pricing.statements import Terms, corrections_in, period_of, terms_of
from billing.refusals import NotFound
from billing.sql import named_sql
from billing.usage import Usage, usage_of

_SQL = named_sql("exports")
_LOG = structlog.get_logger(__name__)
_PAGE = 5_000

COLUMNS: Mapping[Dataset, tuple[Column, ...]] = {
    Dataset.USAGE: columns.USAGE,
    Dataset.INVOICE_LINES: columns.INVOICE_LINES,
    Dataset.FOCUS: columns.FOCUS,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What an export asks for. `at`: what was invoiced later is not in it."""

    dataset: Dataset
    tenant_id: uuid.UUID | None  # None: everybody
    since: date  # half-open
    until: date
    at: datetime


def expected(wanted: Wanted) -> int:
    """About how many rows there will be; of tiers and taxes nobody knows before."""
    parameters = _range(wanted)
    if wanted.dataset is Dataset.USAGE:
        return _count("count_usage", parameters)
    lines = _count("count_lines", _days(wanted))
    return lines if wanted.dataset is Dataset.INVOICE_LINES else lines + _count("count_usage", parameters)


def rows_of(wanted: Wanted) -> Iterator[Row]:
    """All rows, in an order that depends on nothing but them."""
    match wanted.dataset:
        case Dataset.USAGE:
            return _usage(wanted)
        case Dataset.INVOICE_LINES:
            return _lines(wanted)
        case Dataset.FOCUS:
            return _focus(wanted)


def _range(wanted: Wanted) -> dict[str, Any]:
    return {"tenant": wanted.tenant_id, "since": start_of(wanted.since), "until": start_of(wanted.until)}


def _days(wanted: Wanted) -> dict[str, Any]:
    return {"tenant": wanted.tenant_id, "since": wanted.since, "until": wanted.until, "at": wanted.at}


def _count(name: str, parameters: Mapping[str, Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(_SQL[name], parameters)
        return int(cursor.fetchone()[0])


def _rows(name: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(_SQL[name], parameters)
        return list(cursor.fetchall())


# --- usage -------------------------------------------------------------------------------
def _usage(wanted: Wanted) -> Iterator[Row]:
    names = ("after_tenant", "after_hour", "after_metric", "after_policy", "after_cell")
    place: tuple[Any, ...] = (None,) * len(names)
    while True:
        found = _rows(
            "usage_page", {**_range(wanted), **dict(zip(names, place, strict=True)), "limit": _PAGE}
        )
        for tenant_id, hour, metric, policy, cell, quantity in found:
            yield {
                "tenant_id": encode(TENANT, tenant_id),
                "hour": hour.astimezone(UTC),
                "metric": metric,
                "region_policy": policy,
                "cell": cell,
                "quantity": Decimal(quantity),
            }
        if len(found) < _PAGE:
            return
        place = found[-1][:5]


# --- invoice lines -----------------------------------------------------------------------
def _lines(wanted: Wanted) -> Iterator[Row]:
    names = ("after_tenant", "after_start", "after_invoice", "after_n")
    place: tuple[Any, ...] = (None,) * len(names)
    while True:
        found = _rows("lines_page", {**_days(wanted), **dict(zip(names, place, strict=True)), "limit": _PAGE})
        yield from map(_line_row, found)
        if len(found) < _PAGE:
            return
        tenant_id, invoice_id, *_ = last = found[-1]
        place = (tenant_id, last[5], invoice_id, last[7])


def _line_row(row: tuple[Any, ...]) -> Row:
    tenant_id, invoice_id, number, state, currency, period_start, period_end, *rest = row
    n, kind, metric, policy, start, end, tier, quantity, priced, unit_amount, per, book, exact, amount = rest
    line = Line(
        n=n, kind=kind, metric=metric, region_policy=policy, start=start.isoformat(), end=end.isoformat(),
        tier=tier, quantity=int(quantity), priced=None, unit_amount=unit_amount, per=per, book=book,
        exact=exact, amount=f"{amount:f}",
    )  # fmt: skip
    return {
        "tenant_id": encode(TENANT, tenant_id),
        "invoice_id": encode(INVOICE, invoice_id),
        "number": number,
        "state": state,
        "currency": currency,
        "period_start": period_start,
        "period_end": period_end,
        "line": Decimal(n),
        "kind": kind,
        "metric": metric or None,
        "region_policy": policy or None,
        "start": start,
        "end": end,
        "tier": None if tier is None else Decimal(tier),
        "quantity": quantity,
        "priced_quantity": priced,
        "unit_amount": Decimal(unit_amount) if unit_amount else None,
        "per": None if per is None else Decimal(per),
        "price_book": book or None,
        "amount": amount,
        "description": described(line),
    }


# --- FOCUS -------------------------------------------------------------------------------
def _focus(wanted: Wanted) -> Iterator[Row]:
    known = Known(issuer=settings.BILLING_ISSUER["name"], regions=cell_regions())
    for tenant_id in _payers(wanted):
        month = wanted.since
        while month < wanted.until:
            yield from _month(tenant_id, month, wanted.at, known)
            month = next_month(month)


def _payers(wanted: Wanted) -> Iterator[uuid.UUID]:
    after: uuid.UUID | None = None
    parameters = {
        "tenant": wanted.tenant_id, "since": wanted.since, "until": wanted.until,
        "since_at": start_of(wanted.since), "until_at": start_of(wanted.until), "limit": _PAGE,
    }  # fmt: skip
    while True:
        found = [row[0] for row in _rows("payers_page", {**parameters, "after": after})]
        yield from found
        if len(found) < _PAGE:
            return
        after = found[-1]


def _month(tenant_id: uuid.UUID, month: date, at: datetime, known: Known) -> Iterator[Row]:
    """A tenant's month: its invoice, or what it comes to so far, and the credit notes of that month."""
    try:
        terms = terms_of(tenant_id)
    except NotFound:
        _LOG.warning("usage of a tenant that is not there any more", tenant_id=str(tenant_id))
        return
    days = usage_of(tenant_id, month, next_month(month))
    bill, currency = _bill(tenant_id, month, at, terms, days)
    payer = Payer(
        account_id=encode(ACCOUNT, tenant_id), tenant_id=encode(TENANT, tenant_id),
        name=terms.account.recipient["name"], currency=currency,
    )  # fmt: skip
    found = _Slices(tenant_id, days)
    yield from focus_rows(bill, payer, known, prices=_prices(terms, month), used=found.of)
    for credit in _credits(tenant_id, month, at):
        payer = replace(payer, currency=credit[1])
        yield from focus_rows(credit[0], payer, known, prices=_prices(terms, month), used=found.of)


def _bill(
    tenant_id: uuid.UUID, month: date, at: datetime, terms: Terms, days: Sequence[Usage]
) -> tuple[Bill, str]:
    end = next_month(month)
    for invoice in Invoice.objects.filter(
        tenant_id=tenant_id, period_start=month, sequence__isnull=False, finalized_at__lte=at
    ).order_by("id"):
        void = invoice.state == "VOID" and invoice.settled_at is not None and invoice.settled_at <= at
        if not void:
            lines = stored_lines(invoice)
            return Bill(
                number=invoice.number, start=month, end=end, lines=lines, rated_at=invoice.finalized_at
            ), invoice.currency
    statement = charge(
        period_of(month),
        [Used(day=d.day, metric=d.metric, region_policy=d.region_policy, quantity=d.quantity) for d in days],
        terms.books,
        overrides=terms.overrides,
        taxes=terms.taxes,
        corrections=corrections_in(tenant_id, month, terms),
        currency=terms.account.currency,
    )
    lines = lines_of(statement)
    return Bill(number=None, start=month, end=end, lines=lines, rated_at=at), statement.currency


def _credits(tenant_id: uuid.UUID, month: date, at: datetime) -> Iterator[tuple[Bill, str]]:
    start, end = window(month)
    notes = CreditNote.objects.select_related("invoice").filter(
        tenant_id=tenant_id, created_at__gte=start, created_at__lt=end, created_at__lte=at
    )
    for note in notes.order_by("id"):
        kept = {line.n: line for line in stored_lines(note.invoice)}
        lines = [replace(kept[taken["n"]], amount=taken["amount"]) for taken in note.lines]
        yield (
            Bill(
                number=note.number, start=month, end=next_month(month), lines=lines,
                rated_at=note.created_at, credit=True,
            ),
            note.currency,
        )  # fmt: skip


def _prices(terms: Terms, month: date) -> Prices:
    """What was agreed upon and what the book says, by the days of a line."""
    cut = {s.start.isoformat(): s for s in segments(period_of(month), terms.books, terms.overrides)}
    books: Mapping[str, Book] = {book.name: book for book in terms.books}

    def of(line: Line) -> tuple[Price | None, Price | None]:
        segment, book = cut.get(line.start), books.get(line.book)
        listed = None
        if book is not None:
            listed = book.prices.get((line.metric, line.region_policy)) or book.prices.get((line.metric, "*"))
        return segment.price(line.metric, line.region_policy) if segment else None, listed

    return of


class _Slices:
    """The hours behind a line, one metric and policy at a time."""

    def __init__(self, tenant_id: uuid.UUID, days: Sequence[Usage]) -> None:
        self._tenant_id, self._days = tenant_id, days

    def of(self, line: Line) -> list[Slice]:
        """See `focus.Used`."""
        since, until = date.fromisoformat(line.start), date.fromisoformat(line.end)
        days = [
            (d.day, d.cell, d.quantity)
            for d in self._days
            if (d.metric, d.region_policy) == (line.metric, line.region_policy) and since <= d.day < until
        ]
        hours = _rows(
            "hours_of",
            {
                "tenant": self._tenant_id, "metric": line.metric, "policy": line.region_policy,
                "since": start_of(since), "until": start_of(until),
            },
        )  # fmt: skip
        return slices_of(days, [(hour.astimezone(UTC), cell, quantity) for hour, cell, quantity in hours])


__all__ = ["COLUMNS", "PRODUCT", "Wanted", "expected", "rows_of"]
