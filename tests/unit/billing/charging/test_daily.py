"""What each day adds to the bill."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from billing.charging.book import Book, Period
from billing.charging.charge import Used, charge
from billing.charging.daily import by_day
from billing.charging.prices import Graduated, Price, Tier, Unit

FIRST = date(2026, 11, 1)
MONTH = Period.month(2026, 11)


def _book(start: date, **prices: Price) -> Book:
    return Book(
        name=f"from {start}", currency="USD", effective_from=start,
        prices={(metric, "*"): price for metric, price in prices.items()},
    )  # fmt: skip


def _used(day: int, quantity: int, metric: str = "job_runs") -> Used:
    return Used(day=FIRST.replace(day=day), metric=metric, region_policy="STRICT", quantity=quantity)


def test_the_days_that_come_first_use_up_what_is_included() -> None:
    book = _book(date(2026, 1, 1), job_runs=Price(model=Unit(amount=Decimal(1), per=10), included=100))
    found = by_day(MONTH, [_used(3, 90), _used(1, 60)], [book])
    assert [(f.day.day, f.quantity, f.exact) for f in found] == [(1, 60, Decimal(0)), (3, 90, Decimal(5))]


def test_what_has_no_price_is_told_as_free() -> None:
    (found,) = by_day(MONTH, [_used(1, 5, "egress_bytes")], [_book(date(2026, 1, 1))])
    assert (found.quantity, found.exact) == (5, None)


_PRICES = st.sampled_from(
    [
        Price(model=Unit(amount=Decimal("0.7"), per=3), included=40),
        Price(
            model=Graduated(
                tiers=(Tier(up_to=50, amount=Decimal(2), per=1), Tier(up_to=None, amount=Decimal(1), per=7))
            )
        ),
    ]
)


@given(st.dictionaries(st.integers(1, 30), st.integers(1, 500), max_size=12), _PRICES, _PRICES, st.booleans())
def test_the_days_add_up_to_the_statement(days: dict[int, int], one: Price, other: Price, cut: bool) -> None:
    books = [_book(FIRST - timedelta(days=9), job_runs=one)]
    books += [_book(FIRST.replace(day=12), job_runs=other)] if cut else []
    used = [_used(day, quantity) for day, quantity in days.items()]
    whole = sum((line.exact for line in charge(MONTH, used, books).lines), Decimal(0))
    found = by_day(MONTH, used, books)
    assert abs(sum((f.exact or Decimal(0) for f in found), Decimal(0)) - whole) < Decimal("1e-20")
    assert sum(f.quantity for f in found) == sum(days.values())
