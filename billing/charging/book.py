"""Price books and periods: which prices hold when."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

from billing.charging.prices import Price

#: The policy that stands for all those without a price of their own.
ANY_POLICY = "*"

Key = tuple[str, str]  # (metric, region policy or ANY_POLICY)


@dataclass(frozen=True, kw_only=True, slots=True)
class Period:
    """Half-open UTC days."""

    start: date
    end: date

    def __post_init__(self) -> None:
        if self.end <= self.start:
            raise ValueError("a period ends behind its start")

    @property
    def days(self) -> int:
        """How many."""
        return (self.end - self.start).days

    @classmethod
    def month(cls, year: int, month: int) -> Period:
        """A calendar month."""
        start = date(year, month, 1)
        return cls(start=start, end=(start + timedelta(days=31)).replace(day=1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Book:
    """The prices that hold from a day on, until the next book's."""

    name: str
    currency: str
    effective_from: date
    prices: Mapping[Key, Price]
    minimum: Decimal = Decimal(0)  # of a whole period, before taxes


@dataclass(frozen=True, kw_only=True, slots=True)
class Override:
    """What one tenant was promised, from a day on (and until another, if any)."""

    effective_from: date
    effective_until: date | None = None
    prices: Mapping[Key, Price] = field(default_factory=dict)
    minimum: Decimal | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """Days of a period in which the same prices hold."""

    start: date
    end: date
    book: Book | None
    prices: Mapping[Key, Price]
    minimum: Decimal

    @property
    def days(self) -> int:
        """How many."""
        return (self.end - self.start).days

    def price(self, metric: str, region_policy: str) -> Price | None:
        """The policy's own price, else the metric's; None: it costs nothing."""
        return self.prices.get((metric, region_policy)) or self.prices.get((metric, ANY_POLICY))


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Neighbouring segments in which one metric has one price, whatever else changes between them."""

    first: int  # segment, from 0
    end_before: int  # the first segment behind it
    start: date
    end: date
    price: Price | None
    book: Book | None  # the newest of them

    @property
    def days(self) -> int:
        """How many."""
        return (self.end - self.start).days


def spans(found: Sequence[Segment], metric: str, region_policy: str) -> list[Span]:
    """Segments joined where the price of a metric is the same: a change of other prices, or of a
    minimum, leaves what is included and the limits of tiers whole."""
    joined = []
    numbered = [(i, segment, segment.price(metric, region_policy)) for i, segment in enumerate(found)]
    for price, group in itertools.groupby(numbered, key=lambda each: each[2]):
        same = list(group)
        (first, start, _), (last, end, _) = same[0], same[-1]
        joined.append(
            Span(
                first=first,
                end_before=last + 1,
                start=start.start,
                end=end.end,
                price=price,
                book=end.book,
            )
        )
    return joined


def segments(period: Period, books: Sequence[Book], overrides: Sequence[Override] = ()) -> list[Segment]:
    """The period, cut where prices change."""
    cuts = {period.start, period.end}
    for begins in (*(b.effective_from for b in books), *(o.effective_from for o in overrides)):
        cuts.add(begins)
    cuts |= {o.effective_until for o in overrides if o.effective_until is not None}
    days = sorted(cut for cut in cuts if period.start <= cut <= period.end)
    found: list[Segment] = []
    for start, end in itertools.pairwise(days):
        segment = _segment(start, end, books, overrides)
        last = found[-1] if found else None
        if last and (last.book, last.prices, last.minimum) == (segment.book, segment.prices, segment.minimum):
            found[-1] = Segment(
                start=last.start, end=end, book=last.book, prices=last.prices, minimum=last.minimum
            )
        else:
            found.append(segment)
    return found


def _segment(start: date, end: date, books: Sequence[Book], overrides: Sequence[Override]) -> Segment:
    holding = [b for b in books if b.effective_from <= start]
    book = max(holding, key=lambda b: b.effective_from, default=None)
    prices = dict(book.prices) if book else {}
    minimum = book.minimum if book else Decimal(0)
    # Later promises stand above earlier ones.
    for override in sorted(overrides, key=lambda o: o.effective_from):
        ended = override.effective_until is not None and override.effective_until <= start
        if override.effective_from <= start and not ended:
            prices.update(override.prices)
            minimum = minimum if override.minimum is None else override.minimum
    return Segment(start=start, end=end, book=book, prices=prices, minimum=minimum)


def shares(whole: int, found: Sequence[Span], period: Period) -> list[int]:
    """A whole number divided over spans by their days; what does not divide goes to the last."""
    parts = [whole * span.days // period.days for span in found]
    if parts:
        parts[-1] += whole - sum(parts)
    return parts


def share(span: Span, period: Period) -> Fraction:
    """The part of a period that a span is."""
    return Fraction(span.days, period.days)
