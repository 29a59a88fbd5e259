"""Charging, beside a calculation of its own that shares no code with it."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing.charging.book import Book, Override, Period, segments
from billing.charging.charge import Statement, TaxRate, Used, charge
from billing.charging.machine import NUMBERED, TRANSITIONS, InvoiceState, allowed
from billing.charging.prices import Graduated, Package, Price, Tier, Unit, Volume, faults

NOVEMBER = Period.month(2026, 11)
START = NOVEMBER.start
MILLION = 1_000_000


def book(price: Price, *, name: str = "2026", start: date = START, minimum: str = "0") -> Book:
    prices = {("job_runs", "*"): price}
    return Book(name=name, currency="USD", effective_from=start, prices=prices, minimum=Decimal(minimum))


def used(quantity: int, day: date = START, policy: str = "HOME_ASYNC") -> Used:
    return Used(day=day, metric="job_runs", region_policy=policy, quantity=quantity)


def of(price: Price, quantity: int, **more: Any) -> Statement:
    return charge(NOVEMBER, [used(quantity)], [book(price)], **more)


def test_units() -> None:
    found = of(Price(model=Unit(amount=Decimal("4.47"), per=MILLION)), 3_000_001)
    assert [line.exact for line in found.lines] == [Decimal("13.41000447")]
    assert found.total == Decimal("13.41")


def test_packages_are_whole() -> None:
    found = of(Price(model=Package(amount=Decimal(5), size=1000)), 2001)
    (line,) = found.lines
    assert line.part is not None
    assert (line.part.quantity, line.part.consumed, found.total) == (3, 2001, Decimal("15.00"))


TIERS = (
    Tier(up_to=100, amount=Decimal(3)),
    Tier(up_to=300, amount=Decimal(2)),
    Tier(up_to=None, amount=Decimal(1)),
)


def test_graduated_tiers_are_lines_of_their_own() -> None:
    found = of(Price(model=Graduated(tiers=TIERS)), 350)
    assert [(line.part.tier, line.part.quantity) for line in found.lines if line.part] == [
        (0, 100),
        (1, 200),
        (2, 50),
    ]
    assert found.total == Decimal("750.00")


@pytest.mark.parametrize(("quantity", "total"), [(100, 300), (101, 202), (300, 600), (301, 301)])
def test_volume_prices_all_by_the_tier_it_reaches(quantity: int, total: int) -> None:
    assert of(Price(model=Volume(tiers=TIERS)), quantity).total == total


def test_what_is_included_is_a_free_line() -> None:
    found = of(Price(model=Unit(amount=Decimal(1)), included=100), 150)
    assert [(line.included, line.amount) for line in found.lines] == [(True, 0), (False, 50)]
    assert of(Price(model=Unit(amount=Decimal(1)), included=100), 99).total == 0


def test_a_minimum_is_filled_up_and_taxed() -> None:
    books = [book(Price(model=Unit(amount=Decimal(1))), minimum="49")]
    found = charge(NOVEMBER, [used(20)], books, taxes=[TaxRate(name="VAT", rate=Decimal("0.19"))])
    assert [(line.kind, line.amount) for line in found.lines] == [
        ("usage", 20), ("minimum", 29), ("tax", Decimal("9.31")),
    ]  # fmt: skip
    assert (found.net, found.taxes, found.total) == (49, Decimal("9.31"), Decimal("58.31"))


def test_a_month_of_nothing_has_no_line_of_taxes_either() -> None:
    books = [book(Price(model=Unit(amount=Decimal(1))))]
    assert charge(NOVEMBER, [], books, taxes=[TaxRate(name="VAT", rate=Decimal("0.19"))]).lines == ()


def test_a_change_of_prices_splits_the_line() -> None:
    books = [
        book(Price(model=Unit(amount=Decimal(1)), included=30)),
        book(Price(model=Unit(amount=Decimal(2)), included=30), name="new", start=date(2026, 11, 11)),
    ]
    found = charge(NOVEMBER, [used(100), used(100, date(2026, 11, 11))], books)
    assert [(line.book, line.start.day, line.included, line.amount) for line in found.lines] == [
        ("2026", 1, True, 0), ("2026", 1, False, 90), ("new", 11, True, 0), ("new", 11, False, 160),
    ]  # fmt: skip


RUNS = ("job_runs", "*")
EGRESS = ("egress_bytes", "*")
MIDDLE = date(2026, 11, 16)
FREE = Price(model=Graduated(tiers=TIERS), included=100)


def _two_books(minimum: str = "0") -> list[Book]:
    """The second changes the price of egress and nothing else."""
    return [
        Book(
            name=name, currency="USD", effective_from=start, minimum=Decimal(minimum),
            prices={RUNS: FREE, EGRESS: Price(model=Unit(amount=Decimal(amount)))},
        )
        for name, start, amount in (("old", START, 1), ("new", MIDDLE, 2))
    ]  # fmt: skip


def test_a_change_of_another_price_leaves_a_metric_whole() -> None:
    late = [used(100, date(2026, 11, 20))]
    assert charge(NOVEMBER, late, _two_books()).total == 0
    promise = Override(effective_from=MIDDLE, minimum=Decimal(0), prices={EGRESS: FREE})
    assert charge(NOVEMBER, late, _two_books()[:1], overrides=[promise]).total == 0
    # The limits of tiers are whole, too: 100 at 3, 200 at 2.
    uses = [used(250), used(150, date(2026, 11, 20))]
    found = charge(NOVEMBER, uses, _two_books())
    assert [(line.start.day, line.end.month, line.book, line.amount) for line in found.lines] == [
        (1, 12, "new", 0), (1, 12, "new", 300), (1, 12, "new", 400),
    ]  # fmt: skip
    assert found.total == charge(NOVEMBER, uses, _two_books()[:1]).total


def test_the_price_that_changes_splits_its_own_line_only() -> None:
    egress = [
        Used(day=day, metric="egress_bytes", region_policy="HOME_ASYNC", quantity=10)
        for day in (START, MIDDLE)
    ]
    found = charge(NOVEMBER, [used(50), *egress], _two_books())
    assert [(line.metric, line.start, line.amount) for line in found.lines] == [
        ("egress_bytes", START, 10), ("egress_bytes", MIDDLE, 20), ("job_runs", START, 0),
    ]  # fmt: skip


def test_a_minimum_is_of_the_days_it_holds_in() -> None:
    # The same all through: what was used at any time counts, whatever prices changed.
    assert charge(NOVEMBER, [used(200)], _two_books(minimum="300")).total == 300
    assert charge(NOVEMBER, [used(200)], _two_books(minimum="250")).lines[-1].kind == "usage"
    # From the middle on: half of it, and half of what a line that goes all through comes to.
    promise = Override(effective_from=MIDDLE, minimum=Decimal(600))
    uses = [used(100), used(100, date(2026, 11, 20))]
    found = charge(NOVEMBER, uses, _two_books()[:1], overrides=[promise])
    assert [(line.kind, line.start, line.amount) for line in found.lines] == [
        ("usage", START, 0), ("usage", START, 300), ("minimum", MIDDLE, 150),
    ]  # fmt: skip


def test_a_promise_to_one_tenant_stands_above_the_book() -> None:
    cheap = Override(
        effective_from=date(2026, 11, 11),
        effective_until=date(2026, 11, 21),
        prices={("job_runs", "STRICT"): Price(model=Unit(amount=Decimal(0)))},
    )
    books = [book(Price(model=Unit(amount=Decimal(1))))]
    uses = [used(10, START + timedelta(days=d), "STRICT") for d in (0, 10, 20)]
    found = charge(NOVEMBER, uses, books, overrides=[cheap])
    assert [line.amount for line in found.lines] == [10, 0, 10]
    assert [s.start.day for s in segments(NOVEMBER, books, [cheap])] == [1, 11, 21]


def test_what_no_book_prices_is_free_and_said() -> None:
    found = charge(NOVEMBER, [used(5)], [], currency="EUR")
    assert (found.total, found.unpriced) == (0, (("job_runs", "HOME_ASYNC"),))


def test_books_of_two_currencies_are_refused() -> None:
    with pytest.raises(ValueError, match="EUR, USD"):
        charge(NOVEMBER, [], [book(Price(model=Unit(amount=Decimal(1))))], currency="EUR")


@pytest.mark.parametrize(
    ("price", "words"),
    [
        (Price(model=Unit(amount=Decimal(-1), per=0)),
         ["the amount is no number from 0", "is not for one unit or more"]),
        (Price(model=Graduated(tiers=())), ["there are no tiers"]),
        (Price(model=Volume(tiers=(Tier(up_to=None, amount=Decimal(1)), Tier(up_to=5, amount=Decimal(1))))),
         ["tier 1: only the last tier has no end", "tier 2: the last tier has end"]),
    ],
)  # fmt: skip
def test_prices_that_cannot_be_used_say_why(price: Price, words: list[str]) -> None:
    assert faults(price) == words


def test_the_table_of_an_invoice() -> None:
    for transition in TRANSITIONS:
        for state in (None, *InvoiceState):
            assert allowed(transition.name, state) == (state in transition.sources)
    changes = {t.name for t in TRANSITIONS if t.sources & NUMBERED}
    assert changes == {"pay", "void", "give_up"}


# --- an independent calculation ------------------------------------------------------------
def plain_cost(document: dict[str, Any], quantity: int) -> Fraction:
    """What a quantity costs in one period by a price as a document, said as simply as possible."""
    units = max(0, quantity - document["included"])
    amounts = [Fraction(amount) for amount in document["amounts"]]
    match document["kind"]:
        case "unit":
            return units * amounts[0] / document["size"]
        case "package":
            return (units + document["size"] - 1) // document["size"] * amounts[0]
    ends = [*document["ends"], 10**30]
    if document["kind"] == "volume":
        return (
            units * next(a for a, end in zip(amounts, ends, strict=True) if units <= end)
            if units
            else Fraction(0)
        )
    total, before = Fraction(0), 0
    for amount, end in zip(amounts, ends, strict=True):
        total += max(0, min(units, end) - before) * amount
        before = end
    return total


def price_of(document: dict[str, Any]) -> Price:
    amounts = [Decimal(a) for a in document["amounts"]]
    tiers = tuple(Tier(up_to=e, amount=a) for e, a in zip([*document["ends"], None], amounts, strict=False))
    model = {
        "unit": lambda: Unit(amount=amounts[0], per=document["size"]),
        "package": lambda: Package(amount=amounts[0], size=document["size"]),
        "graduated": lambda: Graduated(tiers=tiers),
        "volume": lambda: Volume(tiers=tiers),
    }[document["kind"]]()
    return Price(model=model, included=document["included"])


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    ends = sorted(draw(st.sets(st.integers(1, 10**6), max_size=3)))
    cents = st.decimals(min_value=0, max_value=100, places=6).map(str)
    return {
        "kind": draw(st.sampled_from(["unit", "package", "graduated", "volume"])),
        "included": draw(st.integers(0, 1000)),
        "size": draw(st.sampled_from([1, 7, 1000, MILLION])),
        "ends": ends,
        "amounts": [draw(cents) for _ in range(len(ends) + 1)],
    }


usages = st.lists(st.tuples(st.integers(0, 29), st.integers(0, 10**7)), max_size=20)


@settings(deadline=None)
@given(documents(), usages)
def test_an_independent_calculation_agrees_to_the_cent(
    document: dict[str, Any], days: list[tuple[int, int]]
) -> None:
    found = charge(
        NOVEMBER, [used(q, START + timedelta(days=d)) for d, q in days], [book(price_of(document))]
    )
    expected = plain_cost(document, sum(q for _, q in days))
    assert abs(Fraction(found.total) - expected) <= Fraction(1, 200)
    assert sum(line.amount for line in found.lines) == found.total
    for line in found.lines:
        assert line.part is not None
        assert line.exact == line.part.amount


@settings(deadline=None)
@given(documents(), documents(), usages, st.integers(1, 29), st.randoms(use_true_random=False))
def test_rating_again_changes_nothing(
    one: dict[str, Any], other: dict[str, Any], days: list[tuple[int, int]], change: int, random: Any
) -> None:
    """The order of records does not matter, and parts of a period know nothing of each other."""
    books = [
        book(price_of(one)),
        book(price_of(other), name="new", start=START + timedelta(days=change)),
    ]
    uses = [used(q, START + timedelta(days=d)) for d, q in days]
    first = charge(NOVEMBER, uses, books)
    random.shuffle(uses)
    assert charge(NOVEMBER, uses, books[::-1]) == first
    assert sum(line.part.consumed for line in first.lines if line.part) == sum(q for _, q in days)


def test_the_most_specific_price_wins_whoever_gave_it() -> None:
    """A policy's own price stands above one for any policy; of the same policy a contract's above the
    book's, and a later contract's above an earlier one's."""

    def at(amount: int) -> Price:
        return Price(model=Unit(amount=Decimal(amount)))

    def promise(amount: int, policy: str, start: date = START) -> Override:
        return Override(effective_from=start, prices={("job_runs", policy): at(amount)})

    listed = Book(
        name="2026", currency="USD", effective_from=START, prices={("job_runs", "*"): at(9),
        ("job_runs", "STRICT"): at(20)},
    )  # fmt: skip
    earlier = START - timedelta(days=30)
    for promised, wanted in (
        ([], {"HOME_ASYNC": 9, "STRICT": 20}),
        ([promise(5, "*")], {"HOME_ASYNC": 5, "STRICT": 20}),
        ([promise(7, "STRICT")], {"HOME_ASYNC": 9, "STRICT": 7}),
        ([promise(7, "STRICT", earlier), promise(5, "*")], {"HOME_ASYNC": 5, "STRICT": 7}),
        ([promise(7, "STRICT", earlier), promise(6, "STRICT")], {"HOME_ASYNC": 9, "STRICT": 6}),
    ):
        found = charge(NOVEMBER, [used(1, policy=p) for p in wanted], [listed], overrides=promised)
        assert {line.region_policy: line.amount for line in found.lines} == wanted
