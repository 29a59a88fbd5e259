"""Money: exact until it is rounded, and rounded in one place."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

#: Exact for every product of a 63-bit quantity and a price.
EXACT = Context(prec=60)
#: The currencies of ISO 4217 in which something can be paid (its codes for funds, metals and tests are none).
_CODES = """
AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP
CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG
HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL
MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR
RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD
TZS UAH UGX USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG
"""
CURRENCIES = frozenset(_CODES.split())
NO_CURRENCY = "is no currency of ISO 4217, as USD is"
#: Digits behind the point, where they are not two (ISO 4217).
_EXPONENTS = {
    "BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0,
    "UGX": 0, "VND": 0, "VUV": 0, "XAF": 0, "XOF": 0, "XPF": 0, "BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3,
    "LYD": 3, "OMR": 3, "TND": 3,
}  # fmt: skip


def step_of(currency: str) -> Decimal:
    """The smallest amount of a currency: 0.01 for USD, 1 for JPY."""
    return Decimal(1).scaleb(-_EXPONENTS.get(currency, 2))


def quantize(amount: Decimal, currency: str) -> Decimal:
    """The nearest amount that can be paid, half to even."""
    return amount.quantize(step_of(currency), rounding=ROUND_HALF_EVEN, context=EXACT)


def allocate(exact: Sequence[Decimal], currency: str) -> list[Decimal]:
    """Amounts that can be paid and add up to the rounded sum of `exact`, each less than one step
    from its own. Of equals, earlier ones are rounded up."""
    total = quantize(sum(exact, Decimal(0)), currency)
    step = step_of(currency)
    lower = [amount.quantize(step, rounding=ROUND_FLOOR, context=EXACT) for amount in exact]
    missing = int(EXACT.divide(total - sum(lower, Decimal(0)), step))
    lost = sorted(range(len(exact)), key=lambda i: (lower[i] - exact[i], i))
    for i in lost[:missing]:
        lower[i] += step
    return lower
