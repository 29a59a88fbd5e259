"""Rating is pure and exact."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from billing.rating import STEP, Book, Price, Usage, book_for, cost, rate_day

DAY = date(2026, 3, 1)
BOOK = Book(
    name="b1",
    currency="USD",
    effective_from=date(2026, 1, 1),
    prices={
        ("job_runs", "*"): Price(amount=Decimal("4.47"), per=1_000_000),
        ("job_runs", "STRICT"): Price(amount=Decimal("5.36"), per=1_000_000),
    },
)
quantities = st.integers(min_value=0, max_value=2**63 - 1)
prices = st.builds(
    Price,
    amount=st.decimals(min_value=0, max_value=10_000, places=10, allow_nan=False),
    per=st.integers(min_value=1, max_value=10**13),
)


def test_the_price_of_the_policy_goes_before_that_of_all() -> None:
    rated = rate_day(
        DAY,
        [
            Usage(metric="job_runs", region_policy="HOME_ASYNC", quantity=1_000_000),
            Usage(metric="job_runs", region_policy="STRICT", quantity=500_000),
            Usage(metric="job_runs", region_policy="", quantity=1),
        ],
        [BOOK],
    )
    assert [line.cost for line in rated.lines] == [
        Decimal("4.47000000"), Decimal("2.68000000"), Decimal("0.00000447"),
    ]  # fmt: skip
    assert rated.total == Decimal("7.15000447")
    assert (rated.book, rated.currency) == ("b1", "USD")


def test_what_has_no_price_is_shown_and_costs_nothing() -> None:
    (line,) = rate_day(DAY, [Usage(metric="wishes", region_policy="", quantity=5)], [BOOK]).lines
    assert (line.price, line.cost) == (None, Decimal(0))


def test_the_newest_book_that_holds() -> None:
    newer = Book(name="b2", currency="USD", effective_from=date(2026, 3, 1), prices={})
    books = [newer, BOOK]
    assert book_for(date(2026, 2, 28), books) is BOOK
    assert book_for(date(2026, 3, 1), books) is newer
    assert book_for(date(2025, 12, 31), books) is None


def test_without_a_book_nothing_costs() -> None:
    rated = rate_day(date(2020, 1, 1), [Usage(metric="job_runs", region_policy="", quantity=9)], [BOOK])
    assert (rated.book, rated.total) == (None, Decimal(0))


def test_halves_round_to_even() -> None:
    assert cost(1, Price(amount=Decimal("0.000000005"), per=1)) == Decimal("0.00000000")
    assert cost(3, Price(amount=Decimal("0.000000005"), per=1)) == Decimal("0.00000002")
    assert cost(5, Price(amount=Decimal("0.000000005"), per=1)) == Decimal("0.00000002")


@given(quantities, prices)
def test_one_rounding_at_most_half_a_step_off(quantity: int, price: Price) -> None:
    got = cost(quantity, price)
    assert got == got.quantize(STEP)
    # In whole numbers: |got - q*a/per| <= step/2.
    scale = 10**18
    exact_times_per = quantity * int(price.amount * scale)
    assert 2 * abs(int(got * scale) * price.per - exact_times_per) <= price.per * 10**10


@given(st.lists(st.tuples(st.sampled_from(["job_runs", "x"]), st.sampled_from(["*", "STRICT"]), quantities)))
def test_totals_are_the_sums_of_their_lines(rows: list[tuple[str, str, int]]) -> None:
    usages = [Usage(metric=m, region_policy=p, quantity=q) for m, p, q in rows]
    rated = rate_day(DAY + timedelta(days=1), usages, [BOOK])
    assert rated.total == sum((line.cost for line in rated.lines), Decimal(0))
    assert rated == rate_day(DAY + timedelta(days=1), usages, [BOOK])
