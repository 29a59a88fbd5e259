"""FOCUS rows keep the rules of FOCUS 1.2, for any use and any prices; and broken rules are found."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from billing.charging.book import Book, Override
from billing.charging.charge import TaxRate
from billing.charging.prices import Graduated, Package, Price, Tier, Unit
from billing.exports.columns import FOCUS, Kind, schema_of
from billing.exports.focus import Bill, Row, focus_rows, total_of, unit_of
from billing.exports.focus_rules import MANDATORY, faults, parsed
from billing.exports.machine import Format
from billing.exports.writing import PartWriter
from billing.invoices.lines import lines_of
from tests.unit.billing.exports.bills import KNOWN, OCTOBER, PAYER, RATED, SEPTEMBER, Month, months

START = datetime(2026, 10, 1, tzinfo=UTC)
MILLION = 1_000_000
RUNS = ("job_runs", "HOME_ASYNC", "cell-1")


def month(price: Price, *quantities: int, **more: Any) -> Month:
    book = Book(
        name="2026", currency="USD", effective_from=SEPTEMBER.start, prices={("job_runs", "*"): price},
        minimum=more.pop("minimum", Decimal(0)),
    )  # fmt: skip
    hours = [(START + timedelta(hours=n), *RUNS, quantity) for n, quantity in enumerate(quantities)]
    return Month(hours=hours, books=[book], overrides=more.pop("overrides", []), **more)


def written(rows: list[Row], folder: Path, file_format: Format) -> Path:
    writer = PartWriter(folder, stem="focus", file_format=file_format, columns=FOCUS)
    for row in rows:
        assert writer.add(row) is None
    part = writer.close()
    assert part is not None
    assert part.rows == len(rows)
    return part.path


def read_csv(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return [parsed(row) for row in csv.DictReader(file)]


@given(months())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_month_keeps_every_rule(made: Month) -> None:
    rows, statement = made.rows(), made.statement()
    payable = {"CH-000001": statement.total} if statement.lines else {}
    assert faults(rows, payable) == []
    charged = sum(line.consumed for line in statement.lines if line.kind == "usage")
    usage = [row for row in rows if row["ChargeCategory"] == "Usage" and row["ChargeClass"] is None]
    assert sum(row["ConsumedQuantity"] for row in usage) == charged


@given(made=months())
@settings(
    max_examples=25, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
def test_files_hold_what_rows_say(made: Month, tmp_path: Path) -> None:
    rows, statement = made.rows(), made.statement()
    payable = {"CH-000001": statement.total} if statement.lines else {}
    table = pq.read_table(written(rows, tmp_path, Format.PARQUET))
    types = {c.name: str(table.schema.field(c.name).type) for c in FOCUS if c.kind is Kind.DECIMAL}
    assert all(found.startswith("decimal128(38, ") for found in types.values())
    assert table.to_pylist() == [{column.name: row[column.name] for column in FOCUS} for row in rows]
    back = read_csv(written(rows, tmp_path, Format.CSV))
    assert back == rows
    assert faults(back, payable) == []


def test_a_row_for_each_tier_and_hour() -> None:
    tiers = (Tier(up_to=10, amount=Decimal(3)), Tier(up_to=None, amount=Decimal(1)))
    rows = month(Price(model=Graduated(tiers=tiers), included=5), 8, 12).rows()
    said = [
        (r["SkuPriceId"], r["ChargePeriodStart"].hour, r["ConsumedQuantity"], r["ContractedUnitPrice"],
         r["BilledCost"])
        for r in rows
    ]  # fmt: skip
    sku = "job_runs.HOME_ASYNC"
    assert said == [
        (f"{sku}.included", 0, 5, 0, 0),
        (f"{sku}.tier-1", 0, 3, 3, 9),
        (f"{sku}.tier-1", 1, 7, 3, 21),
        (f"{sku}.tier-2", 1, 5, 1, 5),
    ]
    assert {row["SkuId"] for row in rows} == {sku}
    assert (rows[0]["x_CellId"], rows[0]["RegionId"], rows[0]["x_PriceBookVersion"]) == (
        "cell-1",
        "eu-1",
        "2026",
    )


def test_a_contract_shows_beside_the_list() -> None:
    agreed = Override(
        effective_from=OCTOBER.start,
        prices={("job_runs", "HOME_ASYNC"): Price(model=Unit(amount=Decimal(6), per=MILLION))},
    )
    (row,) = month(Price(model=Unit(amount=Decimal(4), per=500_000)), 3 * MILLION, overrides=[agreed]).rows()
    assert (row["ListUnitPrice"], row["ListCost"]) == (8, 24)
    assert (row["ContractedUnitPrice"], row["ContractedCost"], row["BilledCost"]) == (6, 18, 18)
    assert (row["PricingQuantity"], row["PricingUnit"]) == (3, "1000000 Runs")


def test_packages() -> None:
    rows = month(Price(model=Package(amount=Decimal(5), size=1000)), 400, 700).rows()
    assert [(r["PricingQuantity"], r["PricingUnit"], r["ContractedCost"]) for r in rows] == [
        (1, "1000 Runs", 5),
        (1, "1000 Runs", 5),
    ]


def test_taxes_minimums_and_late_usage() -> None:
    made = month(
        Price(model=Unit(amount=Decimal(1), per=MILLION)), MILLION, minimum=Decimal(31),
        taxes=(TaxRate(name="VAT", rate=Decimal("0.19")),), late=2 * MILLION,
    )  # fmt: skip
    rows = made.rows()
    assert faults(rows, {"CH-000001": made.statement().total}) == []
    by_category = {(r["ChargeCategory"], r["ChargeClass"]): r for r in rows}
    assert by_category.keys() == {
        ("Usage", None), ("Adjustment", None), ("Usage", "Correction"), ("Adjustment", "Correction"),
        ("Tax", None),
    }  # fmt: skip
    late = by_category["Usage", "Correction"]
    assert (late["ChargePeriodStart"].month, late["BillingPeriodStart"].month) == (9, 10)
    assert (late["ConsumedQuantity"], late["PricingQuantity"]) == (2 * MILLION, None)
    assert by_category["Tax", None]["SkuId"] is None


def test_a_credit_note_takes_back() -> None:
    made = month(Price(model=Unit(amount=Decimal(1), per=MILLION)), 5 * MILLION)
    lines = lines_of(made.statement())
    note = Bill(number="CN-1", start=OCTOBER.start, end=OCTOBER.end, lines=lines, rated_at=RATED, credit=True)
    rows = list(focus_rows(note, PAYER, KNOWN, prices=made.prices, used=made.slices))
    assert faults(rows, {"CN-1": Decimal(-5)}) == []
    assert [(r["ChargeCategory"], r["ChargeClass"], r["BilledCost"]) for r in rows] == [
        ("Credit", "Correction", -5)
    ]


def test_what_is_not_invoiced_has_no_invoice() -> None:
    rows = month(Price(model=Unit(amount=Decimal(1), per=MILLION)), 5 * MILLION).rows(number=None)
    assert faults(rows, {}) == []
    assert total_of(rows) == {None: Decimal(5)}


def test_usage_nobody_knows_hours_of_is_one_row() -> None:
    made = month(Price(model=Unit(amount=Decimal(1))), 5)
    (row,) = focus_rows(made.bill(), PAYER, KNOWN, prices=made.prices, used=lambda line: [])
    assert (row["ChargePeriodStart"].date(), row["ChargePeriodEnd"].date()) == (OCTOBER.start, OCTOBER.end)
    assert row["x_CellId"] is None


def test_units_are_those_that_focus_knows() -> None:
    assert unit_of("egress_bytes", 1024**3) == "GiB"
    assert unit_of("stored_byte_minutes", 1024**3 * 43_800) == "43800 GiB-Minutes"
    assert unit_of("job_runs", MILLION) == "1000000 Runs"
    assert unit_of("history_bytes") == "B"
    assert unit_of("something_new") == "Something-New"


def test_the_metadata_names_every_column() -> None:
    found = schema_of(FOCUS, generator="Clockhouse", focus_version="1.2")
    assert [c["ColumnName"] for c in found["Schema"]["ColumnDefinition"]] == [c.name for c in FOCUS]
    assert found["Schema"]["FocusVersion"] == "1.2"
    assert found == schema_of(FOCUS, generator="Clockhouse", focus_version="1.2")
    assert set(MANDATORY) <= {c.name for c in FOCUS}
    assert len(MANDATORY) == 21


GOOD = month(Price(model=Unit(amount=Decimal(2), per=MILLION)), 3 * MILLION).rows()[0]
#: A change of a good row, and words of the fault it makes.
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"BilledCost": None}, "BilledCost is null"),
    ({"BilledCost": 6.0}, "no decimal"),
    ({"BilledCost": Decimal("NaN")}, "no decimal"),
    ({"ListCost": Decimal("1E-30")}, "does not fit"),
    ({"ListCost": Decimal(7)}, "ListUnitPrice x PricingQuantity is not ListCost"),
    ({"ContractedCost": Decimal(7)}, "ContractedUnitPrice x PricingQuantity is not ContractedCost"),
    ({"ContractedUnitPrice": Decimal(-1), "ContractedCost": Decimal(-3)}, "below 0"),
    ({"BillingAccountName": ""}, "is empty"),
    ({"BillingCurrency": "usd"}, "ISO 4217"),
    ({"BillingCurrency": "USX"}, "ISO 4217"),  # of the right shape
    ({"ChargeCategory": "Fee"}, "Fee is not allowed"),
    ({"ChargeClass": "Refund"}, "Refund is not allowed"),
    ({"ChargeFrequency": "Daily"}, "Daily is not allowed"),
    ({"ChargeCategory": "Purchase"}, "a purchase is not Usage-Based"),
    ({"ChargeCategory": "Tax"}, "SkuId of a tax"),
    ({"ChargeCategory": "Credit", "EffectiveCost": Decimal(1)}, "EffectiveCost of a credit"),
    ({"ChargePeriodStart": datetime(2026, 10, 1)}, "no instant in UTC"),  # noqa: DTZ001
    ({"ChargePeriodStart": START.replace(microsecond=5)}, "fractions of a second"),
    ({"ChargePeriodEnd": START}, "ChargePeriodStart is not before"),
    ({"ChargePeriodStart": START - timedelta(days=1)}, "outside of its billing period"),
    ({"PricingQuantity": None}, "PricingQuantity is null of Usage"),
    ({"PricingUnit": None}, "PricingUnit is null of Usage"),
    ({"PricingUnit": "$1"}, "no unit"),
    ({"ConsumedQuantity": Decimal(0)}, "ConsumedQuantity: 0"),
    ({"ConsumedUnit": None}, "ConsumedQuantity and ConsumedUnit"),
    ({"SkuId": None}, "SkuPriceId without SkuId"),
    ({"SkuPriceDetails": "[]"}, "no JSON object"),
    ({"SubAccountType": None}, "SubAccountId and SubAccountType"),
    ({"ServiceCategory": "Scheduling"}, "Scheduling is not allowed"),
    ({"ServiceCategory": "Compute"}, "ServiceSubcategory is of another"),
    ({"InvoiceId": "CH-2"}, "invoice CH-2: BilledCost adds up to 6.00, payable is None"),
    ({"cost_center": "x"}, "not in PascalCase"),
    ({"CostCenter": "x"}, "does not begin with x_"),
]


def test_a_good_row_is_good() -> None:
    assert faults([GOOD], {"CH-000001": Decimal(6)}) == []


@pytest.mark.parametrize(("change", "words"), BROKEN, ids=[words for _, words in BROKEN])
def test_broken_rules_are_found(change: dict[str, Any], words: str) -> None:
    found = faults([{**GOOD, **change}], {"CH-000001": Decimal(6)})
    assert any(words in text for text in found), found


def test_missing_columns_wrong_sums_and_second_parents_are_found() -> None:
    without = {name: value for name, value in GOOD.items() if name != "InvoiceIssuerName"}
    assert "row 0: InvoiceIssuerName is missing" in faults([without], {})
    assert "payable is 7" in faults([GOOD], {"CH-000001": Decimal(7)})[0]
    other = {**GOOD, "SkuId": "another"}
    assert any(
        "is of job_runs.HOME_ASYNC and of another" in f
        for f in faults([GOOD, other], {"CH-000001": Decimal(12)})
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("BilledCost", "1,000"),
        ("BilledCost", "$1"),
        ("BilledCost", "1e3"),
        ("ChargePeriodStart", "2026-10-01"),
    ],
)
def test_texts_in_another_format_are_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=name):
        parsed({name: text})
