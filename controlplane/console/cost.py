"""This month's cost so far, as billing gives it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, timedelta
from decimal import Decimal

from billing.reports import daily_cost
from controlplane.console.visit import Visit


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One metric of a day."""

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

    currency: str
    total: Decimal
    forecast: Decimal | None  # of the whole month, from the days that are over
    days: tuple[Day, ...]

    @property
    def shown(self) -> str:
        return money(self.total)

    @property
    def shown_forecast(self) -> str:
        return money(self.forecast) if self.forecast is not None else "–"


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
    first = today.replace(day=1)
    rated = daily_cost(visit.tenant.id, first, today + timedelta(days=1))
    most = max((day.total for day in rated), default=Decimal(0)) or Decimal(1)
    total = sum((day.total for day in rated), Decimal(0))
    over = [day.total for day in rated if day.day < today]
    in_month = ((first + timedelta(days=32)).replace(day=1) - first).days
    return Month(
        currency=rated[-1].currency if rated else "USD",
        total=total,
        forecast=sum(over, Decimal(0)) / (today.day - 1) * in_month if today.day > 1 and over else None,
        days=tuple(
            Day(
                day=day.day,
                total=day.total,
                share=float(round(day.total / most * 100, 1)),
                lines=tuple(
                    Line(
                        metric=line.usage.metric.replace("_", " "),
                        policy=line.usage.region_policy,
                        quantity=line.usage.quantity,
                        cost=money(line.cost) if line.price else "not priced",
                    )
                    for line in day.lines
                ),
            )
            for day in rated
        ),
    )
