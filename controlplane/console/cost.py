"""A month's charges as billing gives them: its days, what they come to, and how they are drawn."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from decimal import Decimal
from itertools import groupby

from billing.budgets.forecasts import forecast_of
from billing.charging.book import segments
from billing.charging.charge import ADJUSTMENT, MINIMUM, Statement
from billing.charging.daily import DayCharge, by_day
from billing.charging.documents import shown as plain
from billing.charging.prices import Graduated, Package, Price, Tier, Unit
from billing.months import next_month
from billing.pricing.statements import period_of, statement_of, terms_of, used_of
from controlplane.console.visit import Visit

#: Metrics that get a look of their own in the chart; the rest is drawn as one.
SERIES = ("job_runs", "run_attempts", "workflow_steps", "pending_timer_minutes", "api_requests")
OTHER = "other"
NOT_PRICED = "free"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A metric under a region policy: of a day, or of the month. `exact` None: nothing is asked for it."""

    metric: str
    policy: str
    quantity: int
    exact: Decimal | None

    @property
    def words(self) -> str:
        return self.metric.replace("_", " ")

    @property
    def cost(self) -> str:
        return NOT_PRICED if self.exact is None else money(self.exact)


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    """One day of the month."""

    day: date
    total: Decimal
    lines: tuple[Line, ...]

    @property
    def shown(self) -> str:
        return money(self.total)


@dataclass(frozen=True, kw_only=True, slots=True)
class Month:
    """A month's days up to today (UTC), and what they come to, before taxes."""

    first: date
    last: date  # of the month
    today: date
    currency: str
    total: Decimal
    forecast: Decimal | None  # of the whole month, while it runs
    minimum: Decimal  # of the total: what fills it up to what was agreed
    late: Decimal  # of the total: usage of months that were closed
    taxes: tuple[str, ...]  # that an invoice adds, by name
    days: tuple[Day, ...]

    @property
    def shown(self) -> str:
        return money(self.total)

    @property
    def shown_forecast(self) -> str:
        return money(self.forecast) if self.forecast is not None else "–"

    @property
    def others(self) -> list[tuple[str, str]]:
        """What the total holds beside the days, in words."""
        found = [
            ("up to the agreed minimum", self.minimum),
            ("usage of earlier months that came late", self.late),
        ]
        return [(words, money(amount)) for words, amount in found if amount]

    def by_metric(self) -> tuple[Line, ...]:
        """The month, by metric."""
        return _summed((line, (line.metric, "")) for day in self.days for line in day.lines)

    def by_policy(self) -> tuple[Line, ...]:
        """The month, by region policy and metric."""
        found = _summed((line, (line.metric, line.policy)) for day in self.days for line in day.lines)
        return tuple(sorted(found, key=lambda line: (line.policy, line.metric)))


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
class ListPrice:
    """A price as people read it, part by part."""

    metric: str
    policy: str
    parts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """What holds on a day."""

    book: str
    currency: str
    minimum: str  # of a month; empty: none
    items: tuple[ListPrice, ...]


def money(amount: Decimal) -> str:
    """Two digits; four for what would look like nothing, `< 0.0001` (on one line) below that."""
    if amount and abs(amount) < Decimal("0.0001"):
        return "<\u00a00.0001"
    return f"{amount:,.4f}" if amount and abs(amount) < 1 else f"{amount:,.2f}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    """This month so far, and as it is expected to end; before taxes."""

    currency: str
    so_far: Decimal
    forecast: Decimal

    @property
    def shown(self) -> str:
        return money(self.so_far)

    @property
    def shown_forecast(self) -> str:
        return money(self.forecast)


def outlook(visit: Visit) -> Outlook | None:
    """The current month; None for members who may not see it."""
    if not visit.may_see_usage:
        return None
    found = forecast_of(visit.tenant.id, visit.now.astimezone(UTC).date())
    return Outlook(currency=found.so_far.currency, so_far=found.so_far.net, forecast=found.expected.net)


def month_of(tenant_id: uuid.UUID, first: date, today: date, *, metric: str = "", policy: str = "") -> Month:
    """A tenant's month that begins with `first`, as far as it has come. `metric` and `policy` narrow its
    days; its total is always the whole."""
    terms = terms_of(tenant_id)
    period = period_of(first)
    statement = statement_of(tenant_id, first, terms)
    charges = by_day(
        period,
        used_of(tenant_id, period.start, period.end),
        terms.books,
        overrides=terms.overrides,
        currency=terms.account.currency,
    )
    running = period.start <= today < period.end
    return Month(
        first=first,
        last=period.end - timedelta(days=1),
        today=today,
        currency=statement.currency,
        total=statement.net,
        forecast=forecast_of(tenant_id, today).expected.net if running else None,
        minimum=_sum_of(statement, MINIMUM),
        late=_sum_of(statement, ADJUSTMENT),
        taxes=tuple(tax.name for tax in terms.taxes),
        days=days_of(
            [c for c in charges if metric in ("", c.metric) and policy in ("", c.region_policy)],
        ),
    )


def _sum_of(statement: Statement, kind: str) -> Decimal:
    return sum((line.amount for line in statement.lines if line.kind == kind), Decimal(0))


def days_of(charges: Sequence[DayCharge]) -> tuple[Day, ...]:
    """Charges in order of their days, as days."""
    return tuple(
        Day(
            day=day,
            total=sum((line.exact for line in lines if line.exact is not None), Decimal(0)),
            lines=lines,
        )
        for day, lines in (
            (
                day,
                tuple(
                    Line(metric=c.metric, policy=c.region_policy, quantity=c.quantity, exact=c.exact)
                    for c in group
                ),
            )
            for day, group in groupby(charges, key=lambda c: c.day)
        )
    )


def _summed(lines: Iterable[tuple[Line, tuple[str, str]]]) -> tuple[Line, ...]:
    sums: dict[tuple[str, str], Line] = {}
    for line, (metric, policy) in lines:
        known = sums.get((metric, policy))
        amounts = [x for x in (known.exact if known else None, line.exact) if x is not None]
        sums[metric, policy] = Line(
            metric=metric,
            policy=policy,
            quantity=line.quantity + (known.quantity if known else 0),
            exact=sum(amounts, Decimal(0)) if amounts else None,
        )
    return tuple(sums[key] for key in sorted(sums))


def chart(month: Month) -> Chart:
    """The month as stacked columns, the dearest day reaching the top."""
    most = max((_drawn_sum(day) for day in month.days), default=Decimal(0))
    known = {day.day: day for day in month.days}
    count = (month.last - month.first).days + 1
    width = 100 / count
    drawn: set[str] = set()
    columns = []
    for index in range(count):
        at = month.first + timedelta(days=index)
        day = known.get(at)
        pieces: list[Piece] = []
        below = 0.0
        for name, cost in (_by_series(day) if day is not None and most else {}).items():
            height = float(cost / most * 100)
            if height > 0:
                drawn.add(name)
                below += height
                pieces.append(
                    Piece(y=round(100 - below, 3), height=round(height, 3), look=name.replace("_", "-"))
                )
        columns.append(
            Column(
                x=round(index * width + width * 0.12, 3),
                width=round(width * 0.76, 3),
                title=f"{at:%a} {at.day} {at:%b}: {day.shown if day else '0'} {month.currency}",
                day=at,
                pieces=tuple(pieces),
                ahead=at > month.today,
            )
        )
    return Chart(
        columns=tuple(columns),
        top=money(most),
        series=tuple(
            (name.replace("_", "-"), name.replace("_", " ")) for name in (*SERIES, OTHER) if name in drawn
        ),
    )


def _by_series(day: Day) -> dict[str, Decimal]:
    """What each metric adds to a column. A day that brought a lower tier for all adds nothing."""
    sums = dict.fromkeys((*SERIES, OTHER), Decimal(0))
    for line in day.lines:
        sums[line.metric if line.metric in SERIES else OTHER] += max(line.exact or Decimal(0), Decimal(0))
    return sums


def _drawn_sum(day: Day) -> Decimal:
    return sum(_by_series(day).values(), Decimal(0))


def months_around(first: date, today: date) -> tuple[date, date | None]:
    """The first days of the month before and, unless it is still to come, of the one after."""
    after = next_month(first)
    return (first - timedelta(days=1)).replace(day=1), after if after <= today else None


def prices_on(tenant_id: uuid.UUID, day: date) -> Prices | None:
    """The prices that hold for a tenant on a day, contracts included; None where there are none."""
    terms = terms_of(tenant_id)
    (segment, *_) = [
        s
        for s in segments(period_of(day.replace(day=1)), terms.books, terms.overrides)
        if s.start <= day < s.end
    ]
    if not segment.prices:
        return None
    currency = terms.account.currency
    return Prices(
        book=segment.book.name if segment.book else "your contract",
        currency=currency,
        minimum=money(segment.minimum) if segment.minimum else "",
        items=tuple(
            ListPrice(
                metric=metric.replace("_", " "),
                policy="any" if policy == "*" else policy,
                parts=price_words(price, currency),
            )
            for (metric, policy), price in sorted(segment.prices.items())
        ),
    )


def price_words(price: Price, currency: str) -> tuple[str, ...]:
    """A price, part by part."""
    free = (f"{price.included:,} a month included",) if price.included else ()
    match price.model:
        case Unit(amount=amount, per=per):
            return (*free, _each(amount, per, currency))
        case Package(amount=amount, size=size):
            return (*free, f"{plain(amount)} {currency} for each package of {size:,}")
        case Graduated(tiers=tiers):
            return (*free, *(_tier(tier, currency, "") for tier in tiers))
        case other:
            return (*free, *(_tier(tier, currency, "all of it, ") for tier in other.tiers))


def _each(amount: Decimal, per: int, currency: str) -> str:
    return f"{plain(amount)} {currency}" + (f" per {per:,}" if per != 1 else " each")


def _tier(tier: Tier, currency: str, what: str) -> str:
    reach = "above that" if tier.up_to is None else f"up to {tier.up_to:,}"
    return f"{what}{reach}: {_each(tier.amount, tier.per, currency)}"
