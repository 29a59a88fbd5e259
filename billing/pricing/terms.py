"""What a price book and a contract both are: prices and perhaps a minimum, in a currency, from a day on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from billing.charging.documents import faults_of, normal, prices_of, shown
from billing.charging.money import CURRENCIES, NO_CURRENCY, quantize
from cells.contract import Metric

METRICS = [m.value for m in Metric]
_MOST_PRICES = 100


def terms_faults(
    prices: Sequence[Mapping[str, Any]], minimum: str | None, currency: str
) -> list[tuple[str, str]]:
    """What is wrong with them."""
    found: list[tuple[str, str]] = []
    if currency not in CURRENCIES:
        found.append(("/currency", NO_CURRENCY))
    elif minimum is not None and Decimal(minimum) != quantize(Decimal(minimum), currency):
        found.append(("/minimum", f"cannot be paid in {currency}: it has too many digits"))
    if len(prices) > _MOST_PRICES:
        return [*found, ("/prices", f"at most {_MOST_PRICES}")]
    return found + faults_of(prices, METRICS)


def stored_terms(prices: Sequence[Mapping[str, Any]], minimum: str | None) -> dict[str, Any]:
    """As columns of a row."""
    return {
        "prices": [normal(price) for price in prices],
        "minimum": None if minimum is None else Decimal(minimum),
    }


def read_terms(prices: Sequence[Mapping[str, Any]], minimum: Decimal | str | None) -> dict[str, Any]:
    """As `charge` takes them."""
    return {"prices": prices_of(prices), "minimum": None if minimum is None else Decimal(minimum)}


def shown_terms(prices: Sequence[Mapping[str, Any]], minimum: Decimal | None) -> dict[str, Any]:
    """As members of a document."""
    return {"minimum": None if minimum is None else shown(minimum), "prices": prices}
