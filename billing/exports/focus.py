"""Invoice lines and the use behind them as FOCUS 1.2 rows: one for each hour, cell and tier. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, TypeAlias

from billing.charging.charge import ADJUSTMENT, CARRIED_OVER, MINIMUM, TAX, USAGE
from billing.charging.money import EXACT
from billing.charging.prices import Package, Price, Unit
from billing.exports.columns import PRICE_SCALE
from billing.exports.slices import Piece, Slice, cut
from billing.invoices.lines import Line, described

VERSION = "1.2"
PRODUCT = "Clockhouse"
_CATEGORY, _SUBCATEGORY = "Integration", "Workflow Orchestration"
_QUANTUM = Decimal(1).scaleb(-PRICE_SCALE)
_KIB = 1024
#: Sizes of bytes that FOCUS has a unit for.
_SIZES = ((_KIB**4, "TiB"), (_KIB**3, "GiB"), (_KIB**2, "MiB"), (_KIB, "KiB"))
#: What one of a metric is called; bytes have units of their own.
_UNITS = {
    "job_runs": "Runs",
    "run_attempts": "Attempts",
    "workflow_steps": "Steps",
    "replicated_writes": "Writes",
    "pending_timer_minutes": "Timer-Minutes",
    "api_requests": "Requests",
    "history_bytes": "B",
    "egress_bytes": "B",
    "stored_byte_minutes": "B-Minutes",
}

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Payer:
    """Who is billed: an account, and the tenant that used something under it."""

    account_id: str
    tenant_id: str
    name: str
    currency: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    """Lines to be shown: of an invoice, a credit note, or a month that is not invoiced yet."""

    number: str | None  # None: not invoiced
    start: date  # the billing period, half-open
    end: date
    lines: Sequence[Line]
    rated_at: datetime
    credit: bool = False  # takes back what its lines say


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What rows need to know beside the bill."""

    issuer: str
    host: str | None = None
    regions: Mapping[str, str] = field(default_factory=dict)  # of cells


#: The prices of a line: what was agreed upon, and what the book says; None where there is none.
Prices: TypeAlias = Callable[[Line], tuple[Price | None, Price | None]]
#: What was used of a line's metric under its policy in its days.
Used: TypeAlias = Callable[[Line], Sequence[Slice]]


def focus_rows(bill: Bill, payer: Payer, known: Known, *, prices: Prices, used: Used) -> Iterator[Row]:
    """The rows of a bill, in the order of its lines and of time. Their BilledCost adds up to the bill.

    Where nobody says hour by hour what a line was for, it is one row over its days.
    """
    for (kind, *_), group in itertools.groupby(bill.lines, key=_key):
        lines = list(group)
        if kind == USAGE and not bill.credit:
            yield from _usage_rows(bill, lines, payer, known, prices, used)
        else:
            for line in lines:
                yield _other_row(bill, line, payer, known)


def _key(line: Line) -> tuple[str, str, str, str, str]:
    return line.kind, line.metric, line.region_policy, line.start, line.end


def _usage_rows(
    bill: Bill, lines: Sequence[Line], payer: Payer, known: Known, prices: Prices, used: Used
) -> Iterator[Row]:
    terms = [_terms(line, *prices(line)) for line in lines]
    parts = [
        (line.quantity, _priced(line), term.size, Decimal(line.amount))
        for line, term in zip(lines, terms, strict=True)
    ]
    slices = used(lines[0])
    if sum(s.quantity for s in slices) != sum(line.quantity for line in lines):
        whole = sum(line.quantity for line in lines)
        first = lines[0]
        slices = [Slice(start=_at(first.start), end=_at(first.end), cell=None, quantity=whole)]
    for line, term, pieces in zip(lines, terms, cut(slices, parts), strict=True):
        for piece in pieces:
            yield _usage_row(bill, line, term, piece, payer, known)


def _priced(line: Line) -> int:
    return line.quantity if line.priced is None else line.priced


@dataclass(frozen=True, kw_only=True, slots=True)
class _Terms:
    """What one of a line's priced units costs; `units`: how many of the metric that is."""

    contracted: Decimal
    listed: Decimal
    units: int
    size: int  # by which `Line.priced` is divided: packages are counted already


def _terms(line: Line, agreed: Price | None, listed: Price | None) -> _Terms:
    tier = -1 if line.tier is None else line.tier
    contracted = Decimal(line.unit_amount or 0)
    units = line.per or 1
    if agreed is not None:
        units = _of_tier(agreed, tier)[1]
    packages = agreed is not None and isinstance(agreed.model, Package) and tier >= 0
    price = contracted
    if listed is not None:
        amount, per = _of_tier(listed, tier)
        if tier < 0 and listed.included:
            amount = Decimal(0)
        exact = EXACT.divide(EXACT.multiply(amount, Decimal(units)), Decimal(per))
        price = exact.quantize(_QUANTUM, rounding=ROUND_HALF_EVEN, context=EXACT)
    return _Terms(contracted=contracted, listed=price, units=units, size=1 if packages else units)


def _of_tier(price: Price, tier: int) -> tuple[Decimal, int]:
    """Amount and units of a tier of a price; of one it does not have, its last."""
    match price.model:
        case Unit(amount=amount, per=per):
            return amount, per
        case Package(amount=amount, size=size):
            return amount, size
        case model:
            found = model.tiers[min(max(tier, 0), len(model.tiers) - 1)]
            return found.amount, found.per


def _usage_row(bill: Bill, line: Line, terms: _Terms, piece: Piece, payer: Payer, known: Known) -> Row:
    sku = sku_of(line)
    place = "included" if line.tier == -1 else f"tier-{(line.tier or 0) + 1}"
    details = {"x_Metric": line.metric, "x_RegionPolicy": line.region_policy or None, "x_Tier": place}
    return {
        **_frame(bill, line, payer, known),
        "BilledCost": piece.billed,
        "ChargeCategory": "Usage",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": piece.slice.end,
        "ChargePeriodStart": piece.slice.start,
        "ConsumedQuantity": Decimal(piece.consumed),
        "ConsumedUnit": unit_of(line.metric),
        "ContractedCost": EXACT.multiply(terms.contracted, piece.priced),
        "ContractedUnitPrice": terms.contracted,
        "EffectiveCost": piece.billed,
        "ListCost": EXACT.multiply(terms.listed, piece.priced),
        "ListUnitPrice": terms.listed,
        "PricingCategory": "Standard",
        "PricingQuantity": piece.priced,
        "PricingUnit": unit_of(line.metric, terms.units),
        "RegionId": (region := known.regions.get(piece.slice.cell or "")),
        "RegionName": region,
        "SkuId": sku,
        "SkuMeter": meter_of(line.metric),
        "SkuPriceDetails": json.dumps({k: v for k, v in details.items() if v is not None}, sort_keys=True),
        "SkuPriceId": f"{sku}.{place}",
        "x_CellId": piece.slice.cell or None,
    }


def _other_row(bill: Bill, line: Line, payer: Payer, known: Known) -> Row:
    """Taxes, what a minimum lacks, late usage, and what a credit note takes back."""
    amount = -Decimal(line.amount) if bill.credit else Decimal(line.amount)
    late = line.kind == ADJUSTMENT and not bill.credit and line.metric not in ("", CARRIED_OVER)
    usage = {}
    if late:
        sku = sku_of(line)
        usage = {
            "ConsumedQuantity": Decimal(line.quantity),
            "ConsumedUnit": unit_of(line.metric),
            "SkuId": sku,
            "SkuMeter": meter_of(line.metric),
        }
    category = "Tax" if line.kind == TAX else "Credit" if bill.credit else "Usage" if late else "Adjustment"
    frequency = "Usage-Based" if late else "One-Time" if bill.credit else "Recurring"
    return {
        **_frame(bill, line, payer, known),
        "BilledCost": amount,
        "ChargeCategory": category,
        "ChargeClass": "Correction" if bill.credit or line.kind == ADJUSTMENT else None,
        "ChargeFrequency": frequency,
        "ContractedCost": amount,
        "EffectiveCost": amount,
        "ListCost": amount,
        **usage,
    }


def _frame(bill: Bill, line: Line, payer: Payer, known: Known) -> Row:
    """What all rows say; whatever has no value is null."""
    words = described(line)
    return {
        "BillingAccountId": payer.account_id,
        "BillingAccountName": payer.name or None,
        "BillingAccountType": "Account",
        "BillingCurrency": payer.currency,
        "BillingPeriodEnd": _midnight(bill.end),
        "BillingPeriodStart": _midnight(bill.start),
        "ChargeClass": None,
        "ChargeDescription": f"Taken back: {words}" if bill.credit else words,
        "ChargePeriodEnd": _at(line.end),
        "ChargePeriodStart": _at(line.start),
        "ConsumedQuantity": None,
        "ConsumedUnit": None,
        "ContractedUnitPrice": None,
        "HostProviderName": known.host,
        "InvoiceId": bill.number,
        "InvoiceIssuerName": known.issuer,
        "ListUnitPrice": None,
        "PricingCategory": None,
        "PricingQuantity": None,
        "PricingUnit": None,
        "ProviderName": known.issuer,
        "PublisherName": known.issuer,
        "RegionId": None,
        "RegionName": None,
        "ServiceCategory": _CATEGORY,
        "ServiceName": PRODUCT,
        "ServiceProviderName": known.issuer,
        "ServiceSubcategory": _SUBCATEGORY,
        "SkuId": None,
        "SkuMeter": None,
        "SkuPriceDetails": None,
        "SkuPriceId": None,
        "SubAccountId": payer.tenant_id,
        "SubAccountName": payer.name or None,
        "SubAccountType": "Tenant",
        "x_CellId": None,
        "x_PriceBookVersion": line.book or None,
        "x_RatedAt": bill.rated_at.astimezone(UTC).replace(microsecond=0),
    }


def sku_of(line: Line) -> str:
    """The same for everybody and for ever: a metric under a policy."""
    return f"{line.metric}.{line.region_policy}" if line.region_policy else line.metric


def meter_of(metric: str) -> str:
    """What a SKU counts."""
    return metric.replace("_", " ").capitalize()


def unit_of(metric: str, units: int = 1) -> str:
    """How so many of a metric are called: `1000000 Runs`, `GiB`, `43800 GiB-Minutes`."""
    name = _UNITS.get(metric, metric.replace("_", " ").title().replace(" ", "-"))
    if name == "B" or name.startswith("B-"):
        for size, short in _SIZES:
            if units % size == 0:
                units, name = units // size, short + name[1:]
                break
    return name if units == 1 else f"{units} {name}"


def total_of(rows: Iterable[Row]) -> dict[str | None, Decimal]:
    """BilledCost by InvoiceId."""
    found: dict[str | None, Decimal] = {}
    for row in rows:
        found[row["InvoiceId"]] = EXACT.add(found.get(row["InvoiceId"], Decimal(0)), row["BilledCost"])
    return found


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _at(day: str) -> datetime:
    return _midnight(date.fromisoformat(day))


__all__ = [
    "MINIMUM",
    "VERSION",
    "Bill",
    "Known",
    "Payer",
    "Row",
    "focus_rows",
    "sku_of",
    "total_of",
    "unit_of",
]
