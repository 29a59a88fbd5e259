"""The standard's own validator finds nothing in an exported month but what it cannot decide."""

from __future__ import annotations

import re
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest

from billing.charging.charge import TaxRate
from billing.charging.prices import Graduated, Price, Tier
from billing.exports.focus import Bill, Row, focus_rows
from billing.exports.machine import Format
from billing.invoices.lines import lines_of
from tests.environments import environment
from tests.unit.billing.exports.bills import KNOWN, OCTOBER, PAYER, RATED
from tests.unit.billing.exports.test_focus import MILLION, month, written

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
#: What we have, in the words of FOCUS: rules of the rest are not asked.
OURS = (
    "ACCOUNT_NAMING_SUPPORTED", "NEGOTIATED_PRICING_SUPPORTED", "PUBLIC_PRICE_LIST_SUPPORTED",
    "USAGE_MEASUREMENT_SUPPORTED", "UNIT_PRICING_SUPPORTED", "SUB_ACCOUNT_SUPPORTED", "REGION_SUPPORTED",
)  # fmt: skip
#: Rules that it counts as broken without being: one side of an "or" whose other side holds, and rules that
#: read columns of commitment discounts and of a second currency, which nobody has to have who has neither.
UNDECIDED = re.compile(
    r"InvoiceId-C-004-C|ConsumedQuantity-C-00[03456]-C|PricingCurrency\w*-C-\d+-[CM]"
    r"|CostAndUsage-D-0(4[678]|5[0-6])-C"
)
#: Runs the validator from the folder where it looks for its own files; its first word is the data.
_RUN = (
    "import os, pathlib, sys, focus_validator.main as v;"
    "os.chdir(pathlib.Path(v.__file__).parents[1]); sys.exit(v.main())"
)


@pytest.fixture(scope="module")
def validator() -> Path:
    """A Python that has the validator."""
    python = shutil.which("python3.12")
    works = python and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
    if python is None or not works:
        pytest.skip("the validator needs Python 3.12, and there is no python3.12: only our own rules ran")
    folder = environment("focus", "focus-validator.txt", python=python, wheels_only=False)
    return folder / "bin" / "python"


def broken(validator: Path, rows: list[Row], folder: Path) -> tuple[int, set[str]]:
    """How many rules hold of a file of rows, and which do not."""
    data = written(rows, folder, Format.PARQUET).rename(folder / "focus.parquet")
    command = [
        *(validator, "-c", _RUN, "--data-file", data, "--validate-version", "1.2.0.1", "--block-download"),
        *("--focus-dataset", "CostAndUsage", "--applicability-criteria", ",".join(OURS)),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    passed = re.search(r"Pass: (\d+)", ended.stdout)
    assert passed is not None, ended.stdout[-2000:] + ended.stderr[-2000:]
    return int(passed[1]), set(re.findall(r"^❌ (\S+): FAIL", ended.stdout, re.MULTILINE))


def rows() -> list[Row]:
    """Tiers, what is included, a minimum, a tax, late usage, and a credit note for all of it."""
    tiers = (
        Tier(up_to=MILLION, amount=Decimal(3), per=MILLION),
        Tier(up_to=None, amount=Decimal(1), per=MILLION),
    )
    made = month(
        Price(model=Graduated(tiers=tiers), included=1000), MILLION, 2 * MILLION, minimum=Decimal(31),
        taxes=(TaxRate(name="VAT", rate=Decimal("0.19")),), late=2 * MILLION,
    )  # fmt: skip
    lines = lines_of(made.statement())
    note = Bill(number="CN-1", start=OCTOBER.start, end=OCTOBER.end, lines=lines, rated_at=RATED, credit=True)
    return [*made.rows(), *focus_rows(note, PAYER, KNOWN, prices=made.prices, used=made.slices)]


def test_an_exported_month_breaks_no_rule(validator: Path, tmp_path: Path) -> None:
    passed, wrong = broken(validator, rows(), tmp_path)
    assert {rule for rule in wrong if not UNDECIDED.fullmatch(rule)} == set()
    assert passed > 200


def test_a_broken_rule_is_found_by_it(validator: Path, tmp_path: Path) -> None:
    wrong = [{**row, "ChargeCategory": "Fee"} for row in rows()]
    _, found = broken(validator, wrong, tmp_path)
    assert any(rule.startswith("ChargeCategory-") for rule in found)
