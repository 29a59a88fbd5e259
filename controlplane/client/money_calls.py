"""The API's requests about forecasts, budgets, invoices and, for operators' keys, price books. Pure, like
`calls.py`. Amounts go as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from controlplane.client.money_documents import (
    Budget,
    Forecast,
    Invoice,
    LineUsage,
    PriceBook,
    PricePreview,
    ScheduleForecast,
)
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.specs import Schedule, as_body
from controlplane.client.wire import Answer, Call, if_match, path, query, without_none

_BOOKS = "/v1/admin/price-books"


# --- forecasts ---------------------------------------------------------------------------
def month_forecast() -> Call[Forecast]:
    """What this month comes to so far, and by its end."""
    return Call(method="GET", path="/v1/usage/forecast", read=reads(Forecast))


def schedule_forecast(
    schedule: Schedule | Mapping[str, Any] | None = None,
    *,
    occurrences: int | None = None,
    region_policy: str | None = None,
    attempts_per_run: Decimal | str | None = None,
) -> Call[ScheduleForecast]:
    """What a schedule (or so many occurrences) adds to the bill of the 30 days to come. Creates nothing."""
    return Call(
        method="POST",
        path="/v1/schedules:forecast",
        read=reads(ScheduleForecast),
        body=without_none(
            schedule=None if schedule is None else as_body(schedule),
            occurrences=occurrences,
            region_policy=region_policy,
            attempts_per_run=None if attempts_per_run is None else str(attempts_per_run),
        ),
        repeatable=True,
    )


# --- budget ------------------------------------------------------------------------------
def get_budget() -> Call[Budget]:
    """The budget of a month, and how much of it is used. `NotFound` if there is none."""
    return Call(method="GET", path="/v1/budget", read=reads(Budget))


def set_budget(
    amount: Decimal | str,
    *,
    capped: bool | None = None,
    grace_hours: int | None = None,
    reason: str | None = None,
    version: int | str | None = None,
) -> Call[Budget]:
    """What a month may come to before taxes. People are told at 50, 80 and 100 %; `capped`: LOW work waits
    `grace_hours` (24) after 100 %, until the month is over."""
    return Call(
        method="PUT",
        path="/v1/budget",
        read=reads(Budget),
        body=without_none(amount=str(amount), capped=capped, grace_hours=grace_hours, reason=reason),
        headers=if_match(version),
    )


def remove_budget() -> Call[None]:
    """No budget any more."""
    return Call(method="DELETE", path="/v1/budget", read=lambda answer: None)


# --- invoices ----------------------------------------------------------------------------
def list_invoices(
    *, state: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Invoice]]:
    """Invoices, newest first."""
    return Call(
        method="GET",
        path="/v1/invoices",
        read=reads_page(Invoice),
        query=query(state=state, limit=limit, cursor=cursor),
    )


def get_invoice(invoice_id: str) -> Call[Invoice]:
    """An invoice with its lines and credit notes."""
    return Call(method="GET", path=path("/v1/invoices/{id}", id=invoice_id), read=reads(Invoice))


def invoice_pdf(invoice_id: str) -> Call[bytes]:
    """The invoice on paper; the same bytes each time."""
    return Call(method="GET", path=path("/v1/invoices/{id}/pdf", id=invoice_id), read=_bytes)


def credit_note_pdf(invoice_id: str, credit_note_id: str) -> Call[bytes]:
    """A credit note on paper."""
    of = path("/v1/invoices/{id}/credit-notes/{note}/pdf", id=invoice_id, note=credit_note_id)
    return Call(method="GET", path=of, read=_bytes)


def line_usage(
    invoice_id: str, n: int, *, day: date | str | None = None, cursor: str | None = None
) -> Call[LineUsage]:
    """The days that a line stands for; with `day`, that day's meter records."""
    return Call(
        method="GET",
        path=path("/v1/invoices/{id}/lines/{n}/usage", id=invoice_id, n=str(n)),
        read=reads(LineUsage),
        query=query(day=day, cursor=cursor),
    )


def _bytes(answer: Answer) -> bytes:
    return answer.body


# --- price books (operators) ---------------------------------------------------------------
def list_price_books(
    *, currency: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[PriceBook]]:
    """All versions of the list prices, newest first."""
    return Call(
        method="GET",
        path=_BOOKS,
        read=reads_page(PriceBook),
        query=query(currency=currency, limit=limit, cursor=cursor),
    )


def get_price_book(price_book_id: str) -> Call[PriceBook]:
    """One version."""
    return Call(method="GET", path=path(f"{_BOOKS}/{{id}}", id=price_book_id), read=reads(PriceBook))


def create_price_book(
    name: str,
    *,
    currency: str,
    effective_from: date | str,
    prices: Sequence[Mapping[str, Any]],
    minimum: Decimal | str | None = None,
    note: str | None = None,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[PriceBook]:
    """A new version, from a day to come on. It is never changed."""
    return Call(
        method="POST",
        path=_BOOKS,
        read=reads(PriceBook),
        body=without_none(
            name=name,
            currency=currency,
            effective_from=str(effective_from),
            prices=[dict(price) for price in prices],
            minimum=None if minimum is None else str(minimum),
            note=note,
            reason=reason,
        ),
        keyed=True,
        idempotency_key=idempotency_key,
    )


def preview_price_book(
    *,
    currency: str,
    prices: Sequence[Mapping[str, Any]],
    minimum: Decimal | str | None = None,
    month: str | None = None,
) -> Call[PricePreview]:
    """What a book would have made of a month that is over (`2026-11`; the last one). Changes nothing."""
    return Call(
        method="POST",
        path=f"{_BOOKS}:preview",
        read=reads(PricePreview),
        body=without_none(
            currency=currency,
            prices=[dict(price) for price in prices],
            minimum=None if minimum is None else str(minimum),
            month=month,
        ),
        repeatable=True,
    )


def withdraw_price_book(price_book_id: str, *, reason: str | None = None) -> Call[None]:
    """Take a version back that is not in force yet."""
    return Call(
        method="POST",
        path=path(f"{_BOOKS}/{{id}}", id=price_book_id) + ":withdraw",
        read=lambda answer: None,
        body=without_none(reason=reason),
    )
