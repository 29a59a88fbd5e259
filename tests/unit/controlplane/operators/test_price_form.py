"""Prices as operators type them."""

from __future__ import annotations

from typing import Any

import pytest

from billing.charging.documents import normal
from controlplane.errors import Invalid
from controlplane.operators.price_form import (
    SPARE,
    Row,
    faults_in_words,
    prices_of,
    rows_of,
    rows_typed,
    seal_of,
)

STORED: list[dict[str, Any]] = [
    {
        "metric": "job_runs", "region_policy": "*", "model": "unit", "included": 100, "amount": "4.47",
        "per": 1_000_000,
    },
    {
        "metric": "run_attempts", "region_policy": "STRICT", "model": "package", "included": 0,
        "amount": "1", "size": 500,
    },
    {
        "metric": "workflow_steps", "region_policy": "*", "model": "graduated", "included": 0,
        "tiers": [{"up_to": 1_000, "amount": "2", "per": 10}, {"up_to": None, "amount": "1.5", "per": 1}],
    },
]  # fmt: skip


def _sent(rows: list[Row]) -> dict[str, str]:
    names = ("metric", "policy", "model", "included", "amount", "per", "tiers")
    return {f"{name}-{row.n}": getattr(row, name) for row in rows for name in names}


def test_what_is_stored_is_typed_and_comes_back() -> None:
    rows = rows_of(STORED)
    assert len(rows) == len(STORED) + SPARE
    again = rows_typed(_sent(rows))
    assert again == rows
    assert [normal(price) for price in prices_of(again)] == STORED


def test_rows_without_a_metric_are_left_out() -> None:
    sent = _sent(
        [Row(n=3, metric="job_runs", amount="1"), Row(n=7), Row(n=12, metric="api_requests", amount="2")]
    )
    assert [price["metric"] for price in prices_of(rows_typed(sent))] == ["job_runs", "api_requests"]
    assert prices_of(rows_typed({"metric-x": "job_runs", "other": "1"})) == []


def test_numbers_may_be_grouped() -> None:
    tiers = "1 000 000: 4 / 1,000\n*: 3"
    row = Row(n=0, metric="job_runs", model="volume", included="1_000", tiers=tiers)
    (price,) = prices_of([row])
    assert price["included"] == 1_000
    assert price["tiers"] == [
        {"up_to": 1_000_000, "amount": "4", "per": 1_000}, {"up_to": None, "amount": "3", "per": 1},
    ]  # fmt: skip


def test_every_fault_is_told_with_its_row() -> None:
    rows = [
        Row(n=0, metric="job_runs", amount="1e5", per="many"),
        Row(n=1, metric="api_requests", model="graduated", tiers="to the end: 3\n*: 1.2.3"),
        Row(n=2, metric="run_attempts", model="volume"),
    ]
    with pytest.raises(Invalid) as refused:
        prices_of(rows)
    said = faults_in_words(refused.value, rows)
    assert [text.partition(":")[0] for text in said] == [
        "Price 1 (job runs), amount", "Price 1 (job runs), per", "Price 2 (api requests), tiers",
        "Price 2 (api requests), tiers",
    ]  # fmt: skip
    with pytest.raises(Invalid):
        prices_of(rows[2:])


def test_a_seal_changes_with_what_it_seals() -> None:
    assert seal_of(STORED, "2027-01-01") == seal_of([dict(price) for price in STORED], "2027-01-01")
    assert seal_of(STORED, "2027-01-01") != seal_of(STORED[:2], "2027-01-01")
