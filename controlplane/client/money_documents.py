"""What the API shows of charges, budgets, invoices and prices, typed; see `documents.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from controlplane.client.decoding import Document


@dataclass(frozen=True, kw_only=True, slots=True)
class InvoiceLine(Document):
    """A line of an invoice or a forecast. `n` leads to its usage (`invoices.line_usage`)."""

    n: int
    kind: str
    description: str
    metric: str
    region_policy: str
    start: date
    end: date  # the first day that it no longer covers
    quantity: int
    unit_price: str
    price_book: str
    amount: Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class CreditNote(Document):
    """Takes back a part, or all, of an invoice."""

    credit_note_id: str
    number: str
    currency: str
    total: Decimal
    reason: str
    created_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Invoice(Document):
    """An invoice. `due`: what is still to be paid; `payment_url`: where, if there is a page for it. Its
    lines and credit notes are there if it was read by its id."""

    invoice_id: str
    tenant_id: str
    number: str | None
    state: str  # DRAFT, FINAL, PAID, VOID, UNCOLLECTIBLE
    period_start: date
    period_end: date
    currency: str
    net: Decimal
    taxes: Decimal
    total: Decimal
    credited: Decimal
    due: Decimal
    due_on: date | None
    payment_url: str | None
    lines: Sequence[InvoiceLine] = ()
    credit_notes: Sequence[CreditNote] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class UsedDay(Document):
    """What a cell counted on a day."""

    day: date
    cell: str
    quantity: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MeterRecord(Document):
    """What one host counted in a minute."""

    minute: datetime
    cell: str
    host: str
    quantity: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LineUsage(Document):
    """What a line rests on: its days, or a page of one day's meter records."""

    line: InvoiceLine
    days: Sequence[UsedDay] = ()
    records: Sequence[MeterRecord] = ()
    next_cursor: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement(Document):
    """What a month comes to."""

    currency: str
    net: Decimal
    taxes: Decimal
    total: Decimal
    lines: Sequence[InvoiceLine] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast(Document):
    """The month so far, and as it is expected to end."""

    month: str
    today: date
    so_far: Statement
    expected: Statement


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleForecast(Document):
    """What a schedule adds to the bill of the days to come, before taxes."""

    since: date
    days: int
    occurrences: int
    attempts: int
    currency: str
    total: Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetAlert(Document):
    """A threshold that the month reached."""

    threshold: int
    spent: Decimal
    at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget(Document):
    """What a month may come to before taxes, and how much of it is used."""

    amount: Decimal
    currency: str
    capped: bool
    grace_hours: int
    month: str
    spent: Decimal
    percent: int
    alerts: Sequence[BudgetAlert] = ()
    low_delayed_since: datetime | None
    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceBook(Document):
    """A version of the list prices. `prices` are as the API writes them."""

    price_book_id: str
    name: str
    currency: str
    effective_from: date
    minimum: Decimal
    prices: Sequence[Mapping[str, Any]] = ()
    note: str
    created_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedChange(Document):
    """A tenant's bill before and after."""

    tenant_id: str
    before: Decimal
    after: Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class PricePreview(Document):
    """What a book would have made of a month that is over."""

    month: str
    currency: str
    tenants: int
    more: int
    less: int
    before: Decimal
    after: Decimal
    changes: Sequence[PricedChange] = ()
