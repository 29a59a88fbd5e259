"""Money adds up."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.charging.money import CURRENCIES, allocate, quantize, step_of

amounts = st.decimals(min_value=0, max_value=10**9, places=12)


@pytest.mark.parametrize(
    ("exact", "currency", "paid"),
    [("0.125", "USD", "0.12"), ("0.135", "USD", "0.14"), ("0.5", "JPY", "0"), ("1.5", "JPY", "2"),
     ("1.0005", "KWD", "1.000"), ("-0.125", "EUR", "-0.12")],
)  # fmt: skip
def test_halves_go_to_the_even_neighbour(exact: str, currency: str, paid: str) -> None:
    assert quantize(Decimal(exact), currency) == Decimal(paid)


@given(st.lists(amounts, max_size=40), st.sampled_from(["USD", "JPY", "KWD"]))
def test_lines_add_up_to_the_rounded_sum(exact: list[Decimal], currency: str) -> None:
    found = allocate(exact, currency)
    assert sum(found, Decimal(0)) == quantize(sum(exact, Decimal(0)), currency)
    assert all(abs(a - b) < step_of(currency) for a, b in zip(found, exact, strict=True))
    assert allocate(exact, currency) == found


def test_three_thirds_of_a_cent_are_a_cent() -> None:
    third = Decimal("0.00333333333333")
    assert allocate([third, third, third], "USD") == [Decimal("0.01"), Decimal("0.00"), Decimal("0.00")]


def test_currencies_are_those_in_which_something_can_be_paid() -> None:
    assert {"USD", "EUR", "JPY", "KWD", "XAF"} < CURRENCIES
    assert not CURRENCIES & {"XTS", "XAU", "CLF", "USN", "DEM", "HRK", "USX"}
    assert all(step_of(code) in (1, Decimal("0.01"), Decimal("0.001")) for code in CURRENCIES)
