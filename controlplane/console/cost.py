"""A month's cost as billing gives it: its days, what they come to, and how they are drawn."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from decimal import Decimal

from billing.rating import ANY_POLICY, Rated, book_for
from billing.reports import books, daily_cost
from controlplane.console.visit import Visit

#: Metrics that get a look of their own in the chart; the rest is drawn as one.
SERIES = ("job_runs", "run_attempts", "workflow_steps", "pending_timer_minutes", "api_requests")
OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One metric of a day or of the month."""

    metric: str
    policy: str
    quantity: int
    cost: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    """One day of the month."""

    day: date
    total: Decimal
    share: float  # of the dearest day, percent
    lines: tuple[Line, ...]

    @property
    def shown(self) -> str:
        return money(self.total)


@dataclass(frozen=True, kw_only=True, slots=True)
class Month:
    """A month's days up to today (UTC), and what they come to."""

    first: date
    last: date  # of the month
    today: date
    currency: str
    total: Decimal
    forecast: Decimal | None  # of the whole month, from the days that are over
    over: int  # days the forecast rests on
    days: tuple[Day, ...]
    lines: tuple[Line, ...]  # the month, by metric
    rated: tuple[Rated, ...]

    @property
    def shown(self) -> str:
        return money(self.total)

    @property
    def shown_forecast(self) -> str:
        return money(self.forecast) if self.forecast is not None else "–"


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A part of a column; sizes in percent of the chart."""

    y: float
    height: float
    look: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One day of the chart."""

    x: float
    width: float
    title: str
    day: date
    pieces: tuple[Piece, ...]
    ahead: bool  # has not come yet


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """Cost by day, stacked by metric."""

    columns: tuple[Column, ...]
    top: str  # what the highest column costs
    series: tuple[tuple[str, str], ...]  # (look, words) of what is drawn


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitPrice:
    """A price as people read it."""

    metric: str
    policy: str
    amount: str
    per: int


def money(amount: Decimal) -> str:
    """Two digits; four for what would look like nothing, `< 0.0001` (on one line) below that."""
    if amount and abs(amount) < Decimal("0.0001"):
        return "<\u00a00.0001"
    return f"{amount:,.4f}" if amount and abs(amount) < 1 else f"{amount:,.2f}"


def month_so_far(visit: Visit) -> Month | None:
    """The current month; None for members who may not see it."""
    if not visit.may_see_usage:
        return None
    today = visit.now.astimezone(UTC).date()
    return month_of(visit.tenant.id, today.replace(day=1), today)


def month_of(tenant_id: uuid.UUID, first: date, today: date) -> Month:
    """A tenant's month that begins with `first`, as far as it has come."""
    following = (first + timedelta(days=32)).replace(day=1)
    rated = daily_cost(tenant_id, first, min(today + timedelta(days=1), following))
    most = max((day.total for day in rated), default=Decimal(0)) or Decimal(1)
    over = [day.total for day in rated if day.day < today]
    days_over = (min(today, following) - first).days
    running = first <= today < following
    return Month(
        first=first,
        last=following - timedelta(days=1),
        today=today,
        currency=rated[-1].currency if rated else "USD",
        total=sum((day.total for day in rated), Decimal(0)),
        forecast=(
            sum(over, Decimal(0)) / days_over * (following - first).days
            if running and days_over and over
            else None
        ),
        over=days_over,
        days=tuple(
            Day(
                day=day.day,
                total=day.total,
                share=float(round(day.total / most * 100, 1)),
                lines=_lines([day]),
            )
            for day in rated
        ),
        lines=_lines(rated),
        rated=tuple(rated),
    )


def _lines(days: list[Rated]) -> tuple[Line, ...]:
    sums: dict[tuple[str, str], tuple[int, Decimal, bool]] = {}
    for day in days:
        for line in day.lines:
            key = (line.usage.metric, line.usage.region_policy)
            quantity, cost, priced = sums.get(key, (0, Decimal(0), False))
            sums[key] = (quantity + line.usage.quantity, cost + line.cost, priced or line.price is not None)
    return tuple(
        Line(
            metric=metric.replace("_", " "),
            policy=policy,
            quantity=quantity,
            cost=money(cost) if priced else "not priced",
        )
        for (metric, policy), (quantity, cost, priced) in sums.items()
    )


def chart(month: Month) -> Chart:
    """The month as stacked columns, the dearest day reaching the top."""
    most = max((day.total for day in month.rated), default=Decimal(0))
    by_day = {day.day: day for day in month.rated}
    count = (month.last - month.first).days + 1
    width = 100 / count
    drawn: set[str] = set()
    columns = []
    for index in range(count):
        day = month.first + timedelta(days=index)
        rated = by_day.get(day)
        pieces: list[Piece] = []
        if rated is not None and most:
            below = 0.0
            for metric, cost in _by_series(rated).items():
                height = float(cost / most * 100)
                if height > 0:
                    drawn.add(metric)
                    below += height
                    pieces.append(
                        Piece(y=round(100 - below, 3), height=round(height, 3), look=metric.replace("_", "-"))
                    )
        total = money(rated.total) if rated else "0"
        columns.append(
            Column(
                x=round(index * width + width * 0.12, 3),
                width=round(width * 0.76, 3),
                title=f"{day:%a} {day.day} {day:%b}: {total} {month.currency}",
                day=day,
                pieces=tuple(pieces),
                ahead=day > month.today,
            )
        )
    return Chart(
        columns=tuple(columns),
        top=money(most),
        series=tuple(
            (name.replace("_", "-"), name.replace("_", " ")) for name in (*SERIES, OTHER) if name in drawn
        ),
    )


def _by_series(rated: Rated) -> dict[str, Decimal]:
    sums = dict.fromkeys((*SERIES, OTHER), Decimal(0))
    for line in rated.lines:
        sums[line.usage.metric if line.usage.metric in SERIES else OTHER] += line.cost
    return sums


def months_around(first: date, today: date) -> tuple[date, date | None]:
    """The first days of the month before and, unless it is still to come, of the one after."""
    after = (first + timedelta(days=32)).replace(day=1)
    return (first - timedelta(days=1)).replace(day=1), after if after <= today else None


def prices_on(day: date) -> tuple[str, tuple[UnitPrice, ...]] | None:
    """The price book that holds on a day: its name and its prices."""
    book = book_for(day, books())
    if book is None:
        return None
    return book.name, tuple(
        UnitPrice(
            metric=metric.replace("_", " "),
            policy="any" if policy == ANY_POLICY else policy,
            amount=f"{price.amount.normalize():f} {book.currency}",
            per=price.per,
        )
        for (metric, policy), price in sorted(book.prices.items())
    )
