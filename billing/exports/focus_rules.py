"""FOCUS 1.2 as rules that rows keep or break. Pure; `faults` says every one that is broken."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from billing.charging.money import CURRENCIES, EXACT
from billing.exports.columns import FOCUS, PRECISION, Column, Kind

_COLUMNS = {column.name: column for column in FOCUS}
#: Columns that the specification wants in every data set.
MANDATORY = (
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd"),
    *("BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd"),
    *("ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost"),
    *("PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName"),
)
ALLOWED: Mapping[str, frozenset[str]] = {
    "ChargeCategory": frozenset({"Usage", "Purchase", "Tax", "Credit", "Adjustment"}),
    "ChargeClass": frozenset({"Correction"}),
    "ChargeFrequency": frozenset({"One-Time", "Recurring", "Usage-Based"}),
    "PricingCategory": frozenset({"Standard", "Dynamic", "Committed", "Other"}),
    "ServiceCategory": frozenset(
        {"AI and Machine Learning", "Analytics", "Business Applications", "Compute", "Databases",
         "Developer Tools", "Multicloud", "Identity", "Integration", "Internet of Things",
         "Management and Governance", "Media", "Migration", "Mobile", "Networking", "Security", "Storage",
         "Web", "Other"}
    ),
}  # fmt: skip
#: Columns that say what was priced: null of a tax, and never null of usage that is no correction.
_PRICED = (
    *("ContractedUnitPrice", "ListUnitPrice", "PricingCategory", "PricingQuantity", "PricingUnit"),
    *("SkuId", "SkuPriceId"),
)
#: Where the first has a value, the second has one, and only there.
_PAIRS = (
    ("ConsumedQuantity", "ConsumedUnit"),
    ("PricingQuantity", "PricingUnit"),
    ("RegionId", "RegionName"),
    ("SubAccountId", "SubAccountType"),
    ("BillingAccountId", "BillingAccountType"),
)
#: The first may have a value only where the second has one.
_NEEDS = (
    ("SkuPriceId", "SkuId"),
    ("SkuMeter", "SkuId"),
    ("SkuPriceDetails", "SkuPriceId"),
    ("SubAccountName", "SubAccountId"),
)
_PASCAL = re.compile(r"(x_)?([A-Z][a-z0-9]*)+")
_UNIT = re.compile(r"([1-9][0-9]* )?[A-Za-z]+(-[A-Za-z]+)?(/([1-9][0-9]* )?[A-Za-z]+)?")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")


def faults(rows: Iterable[Mapping[str, Any]], payable: Mapping[str, Decimal]) -> list[str]:
    """Every rule that rows break, as `row: what`; `payable` is what each invoice asks for.

    Values are those of the export (decimals, instants) or their text in a CSV file (see `parsed`).
    """
    found: list[str] = []
    billed: dict[str, Decimal] = defaultdict(Decimal)
    parents: dict[str, str] = {}
    for n, row in enumerate(rows):
        broken = list(_shape(row))
        found += [f"row {n}: {text}" for text in broken or _content(row)]
        if broken:
            continue
        if row.get("InvoiceId") is not None:
            billed[row["InvoiceId"]] = EXACT.add(billed[row["InvoiceId"]], row["BilledCost"])
        if row.get("SkuPriceId") is not None:
            parent = parents.setdefault(row["SkuPriceId"], row["SkuId"])
            if parent != row["SkuId"]:
                found.append(f"row {n}: SkuPriceId {row['SkuPriceId']} is of {parent} and of {row['SkuId']}")
    for number in sorted(billed.keys() | payable.keys()):
        if billed.get(number, Decimal(0)) != payable.get(number):
            found.append(
                f"invoice {number}: BilledCost adds up to {billed.get(number, Decimal(0))},"
                f" payable is {payable.get(number)}"
            )
    return found


def parsed(row: Mapping[str, str]) -> dict[str, Any]:
    """A row of a CSV file: what is empty is null. Raises ValueError where a text is not in the format
    that FOCUS asks for."""
    found: dict[str, Any] = {}
    for name, text in row.items():
        column = _COLUMNS.get(name)
        if text == "":
            found[name] = None
        elif column is not None and column.kind is Kind.DECIMAL:
            if not _DECIMAL.fullmatch(text):
                raise ValueError(f"{name}: {text} is no plain number")
            found[name] = Decimal(text)
        elif column is not None and column.kind is Kind.INSTANT:
            if not _INSTANT.fullmatch(text):
                raise ValueError(f"{name}: {text} is not YYYY-MM-DDTHH:mm:ssZ")
            found[name] = datetime.fromisoformat(text)
        else:
            found[name] = text
    return found


def _shape(row: Mapping[str, Any]) -> Iterator[str]:
    """Columns, types, nulls, allowed values."""
    yield from (f"{name} is missing" for name in _COLUMNS if name not in row)
    for name, value in row.items():
        if not _PASCAL.fullmatch(name):
            yield f"{name} is not in PascalCase"
        if name not in _COLUMNS:
            yield f"{name} is no column of FOCUS and does not begin with x_"
        elif value is None:
            if not _COLUMNS[name].nullable:
                yield f"{name} is null"
        else:
            yield from _value(_COLUMNS[name], value)


def _value(column: Column, value: Any) -> Iterator[str]:
    name = column.name
    match column.kind:
        case Kind.DECIMAL:
            if not isinstance(value, Decimal) or not value.is_finite():
                yield f"{name}: {value!r} is no decimal"
            elif not _fits(value, column.scale or 0):
                yield f"{name}: {value} does not fit"
        case Kind.INSTANT:
            if (
                not isinstance(value, datetime)
                or value.tzinfo is None
                or value.utcoffset() != UTC.utcoffset(None)
            ):
                yield f"{name}: {value!r} is no instant in UTC"
            elif value.microsecond:
                yield f"{name}: {value} has fractions of a second"
        case Kind.JSON:
            if not isinstance(value, str) or not isinstance(json.loads(value), dict):
                yield f"{name} is no JSON object"
        case _:
            if not isinstance(value, str) or not value.strip():
                yield f"{name}: {value!r} is empty"
            elif name in ALLOWED and value not in ALLOWED[name]:
                yield f"{name}: {value} is not allowed"
    if name == "BillingCurrency" and value not in CURRENCIES:
        yield f"{name}: {value} is no ISO 4217 code"
    if name in ("ConsumedUnit", "PricingUnit") and not _UNIT.fullmatch(str(value)):
        yield f"{name}: {value} is no unit"


def _fits(value: Decimal, scale: int) -> bool:
    exponent = value.normalize(EXACT).as_tuple().exponent
    digits = int(exponent) if isinstance(exponent, int) else 0
    return -digits <= scale and value.adjusted() < PRECISION - scale


def _content(row: Mapping[str, Any]) -> Iterator[str]:
    """What columns say about each other."""
    category, correction = row["ChargeCategory"], row["ChargeClass"] == "Correction"
    priced = category in ("Usage", "Purchase") and not correction
    for name in _PRICED:
        if category == "Tax" and row[name] is not None:
            yield f"{name} of a tax"
        if priced and row[name] is None:
            yield f"{name} is null of {category}"
    for name, unit in _PAIRS:
        if (row[name] is None) != (row[unit] is None):
            yield f"{name} and {unit}: one is null"
    for name, needed in _NEEDS:
        if row[name] is not None and row[needed] is None:
            yield f"{name} without {needed}"
    consumed = row["ConsumedQuantity"]
    if category != "Usage" and consumed is not None:
        yield f"ConsumedQuantity of {category}"
    if category == "Usage" and not correction and (consumed is None or consumed <= 0):
        yield f"ConsumedQuantity: {consumed} of usage"
    yield from _products(row, correction)
    for start, end in (("BillingPeriodStart", "BillingPeriodEnd"), ("ChargePeriodStart", "ChargePeriodEnd")):
        if row[start] >= row[end]:
            yield f"{start} is not before {end}"
    inside = (
        row["BillingPeriodStart"] <= row["ChargePeriodStart"]
        and row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
    )
    if not correction and not inside:
        yield "the charge is outside of its billing period and is no correction"
    if category == "Purchase" and row["ChargeFrequency"] == "Usage-Based":
        yield "a purchase is not Usage-Based"
    if category == "Credit" and row["EffectiveCost"] != row["BilledCost"]:
        yield "EffectiveCost of a credit is not its BilledCost"
    if row["ServiceSubcategory"] == "Workflow Orchestration" and row["ServiceCategory"] != "Integration":
        yield "ServiceSubcategory is of another ServiceCategory"


def _products(row: Mapping[str, Any], correction: bool) -> Iterator[str]:
    quantity = row["PricingQuantity"]
    if quantity is None or correction:
        return
    for price, cost in (("ListUnitPrice", "ListCost"), ("ContractedUnitPrice", "ContractedCost")):
        if row[price] is not None and EXACT.multiply(row[price], quantity) != row[cost]:
            yield f"{price} x PricingQuantity is not {cost}"
        if row[price] is not None and row[price] < 0:
            yield f"{price} is below 0"
