"""Amounts as Stripe writes them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from billing.stripe.amounts import is_writable, minor_units


@pytest.mark.parametrize(
    ("currency", "writable"),
    [
        ("USD", True),
        ("JPY", True),
        ("ISK", True),  # whole to us, hundredths that are whole to Stripe
        ("MGA", False),  # hundredths to us, whole to Stripe
        ("IQD", False),
        ("LYD", False),
        ("KWD", False),  # three digits, of which Stripe takes two
    ],
)
def test_what_stripe_can_write(currency: str, writable: bool) -> None:
    assert is_writable(currency) == writable


def test_minor_units() -> None:
    assert (minor_units(Decimal("1.23"), "USD"), minor_units(Decimal(5), "JPY")) == (123, 5)
    with pytest.raises(ValueError, match="cannot write"):
        minor_units(Decimal("0.5"), "MGA")
