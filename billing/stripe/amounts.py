"""Amounts as Stripe writes them. Pure."""

from __future__ import annotations

from decimal import Decimal

from billing.charging.money import step_of

#: Digits behind the point by which Stripe counts; all others are counted in hundredths.
_DIGITS = {
    "BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "JPY": 0, "KMF": 0, "KRW": 0, "MGA": 0, "PYG": 0, "RWF": 0,
    "VND": 0, "VUV": 0, "XAF": 0, "XOF": 0, "XPF": 0, "BHD": 3, "JOD": 3, "KWD": 3, "OMR": 3, "TND": 3,
}  # fmt: skip


def minor_units(amount: Decimal, currency: str) -> int:
    """An amount as Stripe writes it. Raises ValueError for what it cannot write."""
    units = amount.scaleb(_DIGITS.get(currency, 2))
    if units != units.to_integral_value():
        raise ValueError(f"Stripe cannot write {amount} {currency}")
    return int(units)


def is_writable(currency: str) -> bool:
    """Whether Stripe can write every amount of ours in a currency. Of three digits it takes only those
    that end in 0."""
    digits = _DIGITS.get(currency, 2)
    return digits < 3 and step_of(currency).scaleb(digits) >= 1
