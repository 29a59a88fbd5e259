"""A statement's usage divided over its days: what each day added to the bill. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import groupby

from billing.charging.book import Book, Override, Period
from billing.charging.charge import USAGE, Statement, Used, charge
from billing.charging.money import EXACT


@dataclass(frozen=True, kw_only=True, slots=True)
class DayCharge:
    """What a day's usage of a metric and policy added. `exact` is unrounded, and None where no book
    has a price: it is free."""

    day: date
    metric: str
    region_policy: str
    quantity: int
    exact: Decimal | None


def by_day(
    period: Period,
    used: Sequence[Used],
    books: Sequence[Book],
    *,
    overrides: Sequence[Override] = (),
    currency: str | None = None,
) -> list[DayCharge]:
    """Each day of the period, in order: the difference between what the period comes to with it and
    without it and all later days. So included amounts are used up by the days that come first, and the
    amounts of a metric and policy add up to its lines of the whole period. Minimums, which belong to no
    day, are not in it."""
    inside = sorted(
        (u for u in used if period.start <= u.day < period.end),
        key=lambda u: (u.day, u.metric, u.region_policy),
    )
    found: list[DayCharge] = []
    so_far: list[Used] = []
    before: dict[tuple[str, str], Decimal] = {}
    for day, group in groupby(inside, key=lambda u: u.day):
        of_day = list(group)
        so_far += of_day
        statement = charge(period, so_far, books, overrides=overrides, currency=currency)
        after = _amounts(statement)
        found += [
            DayCharge(
                day=day,
                metric=use.metric,
                region_policy=use.region_policy,
                quantity=use.quantity,
                exact=_added(after, before, (use.metric, use.region_policy)),
            )
            for use in of_day
        ]
        before = after
    return found


def _added(
    after: dict[tuple[str, str], Decimal], before: dict[tuple[str, str], Decimal], key: tuple[str, str]
) -> Decimal | None:
    now = after.get(key)
    return None if now is None else EXACT.subtract(now, before.get(key, Decimal(0)))


def _amounts(statement: Statement) -> dict[tuple[str, str], Decimal]:
    """Exact amounts of usage, by metric and policy."""
    found: dict[tuple[str, str], Decimal] = {}
    for line in statement.lines:
        if line.kind == USAGE:
            key = (line.metric, line.region_policy)
            found[key] = EXACT.add(found.get(key, Decimal(0)), line.exact)
    return found
