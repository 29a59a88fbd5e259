"""The one function from usage to money: `charge`."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from billing.charging.book import Book, Override, Period, Segment, Span, segments, share, shares, spans
from billing.charging.money import EXACT, allocate, quantize
from billing.charging.prices import Part

USAGE = "usage"
#: The line that fills a statement up to its minimum.
MINIMUM = "minimum"
#: Usage of an earlier period that came after that was closed.
ADJUSTMENT = "adjustment"
TAX = "tax"
#: The name that stands for a metric where an adjustment is what an earlier invoice could not settle.
CARRIED_OVER = "carried_over"


@dataclass(frozen=True, kw_only=True, slots=True)
class Used:
    """How much of a metric was used on a UTC day."""

    day: date
    metric: str
    region_policy: str
    quantity: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TaxRate:
    """A tax on the sum of all lines: 0.19 for 19 %."""

    name: str
    rate: Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class Correction:
    """What usage that came too late for `period` would have added there."""

    period: Period
    metric: str  # empty: what it takes from the period's minimum; or CARRIED_OVER
    region_policy: str
    quantity: int
    exact: Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class ChargeLine:
    """One line. `exact` is what it comes to, `amount` what is to be paid of it."""

    kind: str  # usage, minimum, adjustment, tax
    metric: str  # or the tax's name
    region_policy: str
    start: date
    end: date
    part: Part | None
    book: str | None
    exact: Decimal
    amount: Decimal
    late: int = 0  # units that came after their period was closed

    @property
    def consumed(self) -> int:
        """Units of the metric it stands for."""
        return self.part.consumed if self.part is not None else self.late

    @property
    def included(self) -> bool:
        """Whether it was free."""
        return self.part is not None and self.part.tier < 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """What a period comes to. `net` and `taxes` are the sums of their lines; `total` of both."""

    period: Period
    currency: str
    lines: tuple[ChargeLine, ...]
    net: Decimal
    taxes: Decimal
    total: Decimal
    unpriced: tuple[tuple[str, str], ...]  # (metric, region policy) used, and in no book: free


def charge(
    period: Period,
    used: Iterable[Used],
    books: Sequence[Book],
    *,
    overrides: Sequence[Override] = (),
    taxes: Sequence[TaxRate] = (),
    corrections: Sequence[Correction] = (),
    currency: str | None = None,
) -> Statement:
    """What a tenant's usage of a period comes to, with what is corrected of earlier ones.

    Usage outside the period is not looked at. All books are of one currency; `currency` says
    which where there may be no book. Raises ValueError where they are of several.
    """
    currency = _currency(books, currency)
    cut = segments(period, books, overrides)
    totals = _add_up(cut, used)
    parts: list[_Charged] = []
    unpriced = set()
    for (metric, policy), quantities in sorted(totals.items()):
        joined = spans(cut, metric, policy)
        for span, free in zip(joined, _included(joined, period), strict=True):
            inside = quantities[span.first : span.end_before]
            if not any(inside):
                continue
            if span.price is None:
                unpriced.add((metric, policy))
                continue
            found = span.price.parts(sum(inside), share(span, period), included=free)
            parts += [_Charged(span, metric, policy, part, inside) for part in found]
    minimums = _minimums(cut, period, parts)
    exact = [*(c.part.amount for c in parts), *(missing for _, _, missing in minimums)]
    amounts = allocate([*exact, *(c.exact for c in corrections)], currency)
    lines = [
        ChargeLine(
            kind=USAGE,
            metric=c.metric,
            region_policy=c.region_policy,
            start=c.span.start,
            end=c.span.end,
            part=c.part,
            book=c.span.book.name if c.span.book else None,
            exact=c.part.amount,
            amount=amounts[i],
        )
        for i, c in enumerate(parts)
    ]
    lines += [
        ChargeLine(
            kind=MINIMUM,
            metric="",
            region_policy="",
            start=first.start,
            end=last.end,
            part=None,
            book=last.book.name if last.book else None,
            exact=missing,
            amount=amounts[len(parts) + i],
        )
        for i, (first, last, missing) in enumerate(minimums)
    ]
    lines += [_corrected(c, amounts[len(exact) + i]) for i, c in enumerate(corrections)]
    net = sum(amounts, quantize(Decimal(0), currency))
    # A month of nothing has no line at all, whatever its taxes.
    tax_lines = [_tax(period, rate, net, currency) for rate in taxes] if lines else []
    tax = sum((line.amount for line in tax_lines), quantize(Decimal(0), currency))
    return Statement(
        period=period,
        currency=currency,
        lines=(*lines, *tax_lines),
        net=net,
        taxes=tax,
        total=net + tax,
        unpriced=tuple(sorted(unpriced)),
    )


def corrections_of(
    period: Period,
    used: Sequence[Used],
    late: Sequence[Used],
    books: Sequence[Book],
    *,
    overrides: Sequence[Override] = (),
    currency: str | None = None,
) -> list[Correction]:
    """What usage that came after its period was closed adds to what that came to: the difference of
    two statements, so that included amounts, tiers and minimums count as if it had come in time."""
    before = charge(period, used, books, overrides=overrides, currency=currency)
    after = charge(period, [*used, *late], books, overrides=overrides, currency=currency)
    old, new = _sums(before), _sums(after)
    found = []
    for key in sorted(old.keys() | new.keys()):
        (was, units_were), (will, units_will) = old.get(key, _NOTHING), new.get(key, _NOTHING)
        if (was, units_were) != (will, units_will):
            metric, policy = key
            found.append(
                Correction(
                    period=period,
                    metric=metric,
                    region_policy=policy,
                    quantity=units_will - units_were,
                    exact=EXACT.subtract(will, was),
                )
            )
    return found


_NOTHING = (Decimal(0), 0)


def _sums(statement: Statement) -> dict[tuple[str, str], tuple[Decimal, int]]:
    """Exact amount and units by metric and policy; the minimum's under empty names."""
    found: dict[tuple[str, str], tuple[Decimal, int]] = {}
    for line in statement.lines:
        amount, units = found.get((line.metric, line.region_policy), _NOTHING)
        found[line.metric, line.region_policy] = (EXACT.add(amount, line.exact), units + line.consumed)
    return found


def _corrected(correction: Correction, amount: Decimal) -> ChargeLine:
    return ChargeLine(
        kind=ADJUSTMENT,
        metric=correction.metric,
        region_policy=correction.region_policy,
        start=correction.period.start,
        end=correction.period.end,
        part=None,
        book=None,
        exact=correction.exact,
        amount=amount,
        late=correction.quantity,
    )


def _currency(books: Sequence[Book], currency: str | None) -> str:
    found = {book.currency for book in books}
    if currency is not None:
        found.add(currency)
    if len(found) > 1:
        raise ValueError(f"prices in several currencies: {', '.join(sorted(found))}")
    return found.pop() if found else "USD"


def _add_up(cut: Sequence[Segment], used: Iterable[Used]) -> dict[tuple[str, str], list[int]]:
    totals: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * len(cut))
    for use in used:
        for i, segment in enumerate(cut):
            if segment.start <= use.day < segment.end:
                totals[use.metric, use.region_policy][i] += use.quantity
                break
    return totals


@dataclass(frozen=True, slots=True)
class _Charged:
    """A part of what was used of a metric in a span, and how much each of its segments used."""

    span: Span
    metric: str
    region_policy: str
    part: Part
    used: Sequence[int]

    def amount_in(self, number: int) -> Decimal:
        """What of its amount a segment has used, by quantity."""
        if not self.span.first <= number < self.span.end_before:
            return Decimal(0)
        here, whole = self.used[number - self.span.first], sum(self.used)
        return EXACT.divide(EXACT.multiply(self.part.amount, Decimal(here)), Decimal(whole))


def _included(joined: Sequence[Span], period: Period) -> list[int]:
    """What is free in each span: a whole period's amount, if it is the same all through, is
    divided so that nothing of it is lost."""
    same = {span.price.included if span.price else None for span in joined}
    if len(same) == 1 and (whole := same.pop()) is not None:
        return shares(whole, joined, period)
    return [int(span.price.included * share(span, period)) if span.price else 0 for span in joined]


def _minimums(
    cut: Sequence[Segment], period: Period, parts: Sequence[_Charged]
) -> list[tuple[Segment, Segment, Decimal]]:
    """What the days of each minimum lack of their share of it; neighbours with the same one are one."""
    found = []
    for minimum, group in itertools.groupby(enumerate(cut), key=lambda each: each[1].minimum):
        if minimum <= 0:
            continue
        same = list(group)
        days = sum(segment.days for _, segment in same)
        due = EXACT.divide(EXACT.multiply(minimum, Decimal(days)), Decimal(period.days))
        reached = Decimal(0)
        for charged in parts:
            if same[0][0] <= charged.span.first and charged.span.end_before <= same[-1][0] + 1:
                reached = EXACT.add(reached, charged.part.amount)
            else:
                for number, _ in same:
                    reached = EXACT.add(reached, charged.amount_in(number))
        if reached < due:
            found.append((same[0][1], same[-1][1], due - reached))
    return found


def _tax(period: Period, rate: TaxRate, net: Decimal, currency: str) -> ChargeLine:
    exact = EXACT.multiply(net, rate.rate)
    return ChargeLine(
        kind=TAX,
        metric=rate.name,
        region_policy="",
        start=period.start,
        end=period.end,
        part=None,
        book=None,
        exact=exact,
        amount=quantize(exact, currency),
    )
