"""From quantities to money. Pure: the same usage and prices always give the same lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_EVEN, Context, Decimal

#: Costs are kept to this step. A run costs a few millionths of a dollar, so cents would lose it;
#: invoices round their own lines.
STEP = Decimal("0.00000001")
#: The policy that stands for all those without a price of their own.
ANY_POLICY = "*"
# Exact for every product of a 63-bit quantity and a price; the only rounding is to STEP.
_EXACT = Context(prec=60)


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """`amount` for each `per` units."""

    amount: Decimal
    per: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Book:
    """The prices that hold from a day on."""

    name: str
    currency: str
    effective_from: date
    prices: Mapping[tuple[str, str], Price]  # (metric, region policy or ANY_POLICY)

    def price(self, metric: str, region_policy: str) -> Price | None:
        """The policy's own price, else the metric's."""
        return self.prices.get((metric, region_policy)) or self.prices.get((metric, ANY_POLICY))


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """How much of a metric was used under a region policy."""

    metric: str
    region_policy: str
    quantity: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """What that costs. `price` None: not in the book, costs nothing, and is shown so."""

    usage: Usage
    price: Price | None
    cost: Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class Rated:
    """A day's lines; the total is their sum, exactly."""

    day: date
    book: str | None
    currency: str
    lines: tuple[Line, ...]
    total: Decimal


def book_for(day: date, books: Sequence[Book]) -> Book | None:
    """The newest book that holds on a day."""
    holding = [b for b in books if b.effective_from <= day]
    return max(holding, key=lambda b: b.effective_from) if holding else None


def cost(quantity: int, price: Price) -> Decimal:
    """The cost of a quantity, rounded once, half to even."""
    exact = _EXACT.divide(_EXACT.multiply(Decimal(quantity), price.amount), Decimal(price.per))
    return exact.quantize(STEP, rounding=ROUND_HALF_EVEN, context=_EXACT)


def rate_day(day: date, usages: Sequence[Usage], books: Sequence[Book]) -> Rated:
    """What a day's usage costs."""
    book = book_for(day, books)
    lines = []
    for usage in usages:
        price = book.price(usage.metric, usage.region_policy) if book else None
        amount = cost(usage.quantity, price) if price else Decimal(0).quantize(STEP)
        lines.append(Line(usage=usage, price=price, cost=amount))
    return Rated(
        day=day,
        book=book.name if book else None,
        currency=book.currency if book else "USD",
        lines=tuple(lines),
        total=sum((line.cost for line in lines), Decimal(0).quantize(STEP)),
    )
