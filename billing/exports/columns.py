"""The columns of what is exported: their types, and which may be null. Pure.

Decimals are exact: a price has at most 12 digits behind the point, a priced quantity 10, so that their
product, a cost, has 22 and is never rounded.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Digits behind the point.
PRICE_SCALE, QUANTITY_SCALE, COST_SCALE = 12, 10, 22
#: Digits of a decimal, all together.
PRECISION = 38


class Kind(enum.StrEnum):
    """What a column holds."""

    TEXT = "String"  # never empty: nothing is null
    DECIMAL = "Decimal"  # plain digits
    INSTANT = "Date/Time"  # UTC, whole seconds
    JSON = "JSON"  # an object as text
    DAY = "Date"  # only outside of FOCUS


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column. `scale` is of decimals."""

    name: str
    kind: Kind
    nullable: bool = False
    scale: int | None = None


def _text(name: str, *, nullable: bool = False) -> Column:
    return Column(name=name, kind=Kind.TEXT, nullable=nullable)


def _decimal(name: str, scale: int, *, nullable: bool = False) -> Column:
    return Column(name=name, kind=Kind.DECIMAL, nullable=nullable, scale=scale)


def _instant(name: str) -> Column:
    return Column(name=name, kind=Kind.INSTANT)


#: FOCUS 1.2, the provider columns of 1.3 and our own (`x_…`), in the order of their names.
FOCUS: tuple[Column, ...] = (
    _decimal("BilledCost", COST_SCALE),
    _text("BillingAccountId"),
    _text("BillingAccountName", nullable=True),
    _text("BillingAccountType", nullable=True),
    _text("BillingCurrency"),
    _instant("BillingPeriodEnd"),
    _instant("BillingPeriodStart"),
    _text("ChargeCategory"),
    _text("ChargeClass", nullable=True),
    _text("ChargeDescription", nullable=True),
    _text("ChargeFrequency"),
    _instant("ChargePeriodEnd"),
    _instant("ChargePeriodStart"),
    _decimal("ConsumedQuantity", 0, nullable=True),
    _text("ConsumedUnit", nullable=True),
    _decimal("ContractedCost", COST_SCALE),
    _decimal("ContractedUnitPrice", PRICE_SCALE, nullable=True),
    _decimal("EffectiveCost", COST_SCALE),
    _text("HostProviderName", nullable=True),
    _text("InvoiceId", nullable=True),
    _text("InvoiceIssuerName"),
    _decimal("ListCost", COST_SCALE),
    _decimal("ListUnitPrice", PRICE_SCALE, nullable=True),
    _text("PricingCategory", nullable=True),
    _decimal("PricingQuantity", QUANTITY_SCALE, nullable=True),
    _text("PricingUnit", nullable=True),
    _text("ProviderName"),
    _text("PublisherName"),
    _text("RegionId", nullable=True),
    _text("RegionName", nullable=True),
    _text("ServiceCategory"),
    _text("ServiceName"),
    _text("ServiceProviderName"),
    _text("ServiceSubcategory"),
    _text("SkuId", nullable=True),
    _text("SkuMeter", nullable=True),
    Column(name="SkuPriceDetails", kind=Kind.JSON, nullable=True),
    _text("SkuPriceId", nullable=True),
    _text("SubAccountId", nullable=True),
    _text("SubAccountName", nullable=True),
    _text("SubAccountType", nullable=True),
    _text("x_CellId", nullable=True),
    _text("x_PriceBookVersion", nullable=True),
    _instant("x_RatedAt"),
)
USAGE: tuple[Column, ...] = (
    _text("tenant_id"),
    _instant("hour"),
    _text("metric"),
    _text("region_policy"),
    _text("cell"),
    _decimal("quantity", 0),
)
INVOICE_LINES: tuple[Column, ...] = (
    _text("tenant_id"),
    _text("invoice_id"),
    _text("number"),
    _text("state"),
    _text("currency"),
    Column(name="period_start", kind=Kind.DAY),
    Column(name="period_end", kind=Kind.DAY),
    _decimal("line", 0),
    _text("kind"),
    _text("metric", nullable=True),
    _text("region_policy", nullable=True),
    Column(name="start", kind=Kind.DAY),
    Column(name="end", kind=Kind.DAY),
    _decimal("tier", 0, nullable=True),
    _decimal("quantity", 0),
    _decimal("priced_quantity", 0, nullable=True),
    _decimal("unit_amount", PRICE_SCALE, nullable=True),
    _decimal("per", 0, nullable=True),
    _text("price_book", nullable=True),
    _decimal("amount", 3),
    _text("description"),
)


def definitions(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Columns as FOCUS describes them in its metadata."""
    found = []
    for column in columns:
        said: dict[str, Any] = {"ColumnName": column.name, "DataType": column.kind.value}
        if column.kind is Kind.DECIMAL:
            said |= {"NumericPrecision": PRECISION, "NumberScale": column.scale}
        elif column.kind in (Kind.TEXT, Kind.JSON):
            said["StringEncoding"] = "UTF-8"
        found.append(said)
    return found


def schema_of(
    columns: Sequence[Column], *, generator: str, focus_version: str | None = None
) -> dict[str, Any]:
    """The metadata that lies beside the data. Its id is that of its content: the same columns have the
    same id, and others have another."""
    content: dict[str, Any] = {"DataGenerator": {"DataGenerator": generator}}
    schema: dict[str, Any] = {"ColumnDefinition": definitions(columns)}
    if focus_version is not None:
        schema = {"FocusVersion": focus_version, **schema}
    digest = hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()[:16]
    return {**content, "Schema": {"SchemaId": digest, **schema}}
