"""Prices as documents: every fault at once, and the way back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.charging.documents import faults_of, normal, price_of, prices_of, shown
from billing.charging.prices import Graduated, Package, Price, Tier, Unit, Volume

METRICS = ["job_runs", "run_attempts"]


def test_every_fault_is_told_with_its_place() -> None:
    assert faults_of(
        [
            {"metric": "nothing", "model": "unit", "amount": "1", "size": 3},
            {"metric": "job_runs", "model": "graduated"},
            {"metric": "job_runs", "model": "barter"},
            {"metric": "run_attempts", "region_policy": "MOON", "model": "package", "amount": "1"},
            {"metric": "run_attempts", "model": "volume", "tiers": [{"up_to": 5, "amount": "1"}]},
        ],
        METRICS,
    ) == [
        ("/prices/0/metric", "one of job_runs, run_attempts"),
        ("/prices/0/size", "a unit price has none"),
        ("/prices/1/tiers", "is missing"),
        ("/prices/2/model", "one of unit, package, graduated, volume"),
        ("/prices/2", "there is another price of job_runs under *"),
        ("/prices/3/region_policy", "one of *, HOME_ASYNC, STRICT, SINGLE_REGION"),
        ("/prices/3/size", "is missing"),
        ("/prices/4", "tier 1: the last tier has end"),
    ]


@pytest.mark.parametrize(
    ("document", "price"),
    [
        ({"model": "unit", "amount": "4.470"}, Price(model=Unit(amount=Decimal("4.470")))),
        (
            {"model": "package", "amount": "5", "size": 1000, "included": 7},
            Price(model=Package(amount=Decimal(5), size=1000), included=7),
        ),
        (
            {"model": "graduated", "tiers": [{"up_to": 5, "amount": "2"}, {"amount": "1", "per": 3}]},
            Price(
                model=Graduated(
                    tiers=(
                        Tier(up_to=5, amount=Decimal(2)),
                        Tier(up_to=None, amount=Decimal(1), per=3),
                    )
                )
            ),
        ),
        (
            {"model": "volume", "tiers": [{"amount": "1"}]},
            Price(model=Volume(tiers=(Tier(up_to=None, amount=Decimal(1)),))),
        ),
    ],
)
def test_there_and_back(document: dict[str, Any], price: Price) -> None:
    document = {"metric": "job_runs", **document}
    assert price_of(document) == price
    stored = normal(document)
    assert normal(stored) == stored
    assert price_of(stored) == price
    assert prices_of([stored]) == {("job_runs", "*"): price}


@given(st.decimals(min_value=0, max_value=10**9, places=10))
def test_amounts_as_text_are_the_same_amounts(amount: Decimal) -> None:
    assert Decimal(shown(amount)) == amount
    assert "E" not in shown(amount)
