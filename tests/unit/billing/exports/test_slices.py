"""Priced quantities, cut into hours and cells: nothing is lost, whatever is rounded."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.exports.slices import Slice, cut, slices_of

DAY = date(2026, 10, 1)
START = datetime(2026, 10, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def hour(n: int, quantity: int, cell: str = "a") -> Slice:
    return Slice(start=START + n * HOUR, end=START + (n + 1) * HOUR, cell=cell, quantity=quantity)


def test_hours_that_add_up_stand_for_their_day() -> None:
    hours = [(START, "a", 3), (START + 5 * HOUR, "a", 7), (START, "b", 1)]
    found = slices_of([(DAY, "a", 10), (DAY, "b", 2)], hours)
    whole = Slice(start=START, end=START + timedelta(days=1), cell="b", quantity=2)
    assert found == [hour(0, 3), whole, hour(5, 7)]  # of b the hours lack one: what was charged is the day


def test_earlier_use_fills_earlier_tiers() -> None:
    parts = [(5, 5, 1, Decimal(0)), (7, 7, 1, Decimal("0.70"))]
    included, paid = cut([hour(0, 3), hour(1, 4), hour(2, 5)], parts)
    assert [(p.slice.start.hour, p.consumed) for p in included] == [(0, 3), (1, 2)]
    assert [(p.slice.start.hour, p.consumed, p.billed) for p in paid] == [
        (1, 2, Decimal("0.2")),
        (2, 5, Decimal("0.5")),
    ]


def test_a_package_counts_where_it_is_begun() -> None:
    (pieces,) = cut([hour(0, 4), hour(1, 1), hour(2, 15)], [(20, 2, 1, Decimal(10))])
    assert [p.priced for p in pieces] == [Decimal(1), Decimal(0), Decimal(1)]


def test_other_quantities_are_refused() -> None:
    with pytest.raises(ValueError, match="another quantity"):
        list(cut([hour(0, 3)], [(4, 4, 1, Decimal(1))]))


QUANTITIES = st.lists(st.integers(1, 2**62), min_size=1, max_size=24)


@given(QUANTITIES, st.data())
def test_pieces_add_up(quantities: list[int], data: st.DataObject) -> None:
    slices = [hour(n, quantity) for n, quantity in enumerate(quantities)]
    whole = sum(quantities)
    ends = sorted({data.draw(st.integers(1, whole)) for _ in range(3)} | {whole})
    sizes = [end - before for before, end in zip([0, *ends], ends, strict=False)]
    parts = [
        (
            size,
            size,
            data.draw(st.integers(1, 10**12)),
            Decimal(data.draw(st.integers(-(10**9), 10**9))).scaleb(-2),
        )
        for size in sizes
    ]
    found = list(cut(slices, parts))
    for (consumed, priced, per, amount), pieces in zip(parts, found, strict=True):
        assert sum(p.consumed for p in pieces) == consumed
        assert sum(Fraction(p.billed) for p in pieces) == Fraction(amount)
        assert abs(sum(Fraction(p.priced) for p in pieces) - Fraction(priced, per)) <= Fraction(1, 10**10)
        assert all(p.priced >= 0 and p.consumed > 0 for p in pieces)
    by_hour = [sum(p.consumed for pieces in found for p in pieces if p.slice == s) for s in slices]
    assert by_hour == quantities
