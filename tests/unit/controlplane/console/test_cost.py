"""The month as columns and lists."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from billing.charging.daily import DayCharge
from billing.charging.prices import Graduated, Package, Price, Tier, Unit, Volume
from controlplane.console.cost import Month, chart, days_of, money, months_around, price_words

FIRST = date(2026, 11, 1)
_METRICS = st.sampled_from(
    ["job_runs", "run_attempts", "api_requests", "egress_bytes", "stored_byte_minutes"]
)
_COSTS = st.none() | st.decimals(min_value=-10, max_value=10**6, places=8)


def _charges(day: int, *lines: tuple[str, Decimal | None], policy: str = "") -> list[DayCharge]:
    return [
        DayCharge(day=FIRST.replace(day=day), metric=metric, region_policy=policy, quantity=1, exact=cost)
        for metric, cost in lines
    ]


def _month(*charges: list[DayCharge]) -> Month:
    return Month(
        first=FIRST, last=date(2026, 11, 30), today=date(2026, 11, 20), currency="EUR",
        total=Decimal(0), forecast=None, minimum=Decimal(0), late=Decimal(2), taxes=(),
        days=days_of([charge for day in charges for charge in day]),
    )  # fmt: skip


@given(st.dictionaries(st.integers(1, 30), st.lists(st.tuples(_METRICS, _COSTS), max_size=8)))
def test_every_day_has_its_column_and_none_leaves_the_chart(
    days: dict[int, list[tuple[str, Decimal | None]]],
) -> None:
    drawn = chart(_month(*(_charges(day, *lines) for day, lines in sorted(days.items()))))
    assert [column.day.day for column in drawn.columns] == list(range(1, 31))
    assert all(column.x >= 0 and column.x + column.width <= 100.001 for column in drawn.columns)
    for column in drawn.columns:
        assert sum(piece.height for piece in column.pieces) <= 100.01
        assert all(-0.01 <= piece.y <= 100 for piece in column.pieces)
    used = {metric for lines in days.values() for metric, cost in lines if cost and cost > 0}
    assert bool(drawn.series) is bool(used)


def test_the_dearest_day_reaches_the_top() -> None:
    drawn = chart(_month(_charges(1, ("job_runs", Decimal(3))), _charges(2, ("job_runs", Decimal(6)))))
    assert [sum(piece.height for piece in column.pieces) for column in drawn.columns[:3]] == [50, 100, 0]
    assert drawn.top == "6.00"
    assert drawn.series == (("job-runs", "job runs"),)


def test_the_month_by_metric_and_by_policy() -> None:
    month = _month(
        _charges(1, ("job_runs", Decimal(3)), ("egress_bytes", None), policy="STRICT"),
        _charges(2, ("job_runs", Decimal(4)), policy="HOME_ASYNC"),
    )
    assert [(x.metric, x.quantity, x.cost) for x in month.by_metric()] == [
        ("egress_bytes", 1, "free"), ("job_runs", 2, "7.00"),
    ]  # fmt: skip
    assert [(x.policy, x.metric, x.cost) for x in month.by_policy()] == [
        ("HOME_ASYNC", "job_runs", "4.00"),
        ("STRICT", "egress_bytes", "free"),
        ("STRICT", "job_runs", "3.00"),
    ]  # fmt: skip
    assert month.others == [("usage of earlier months that came late", "2.00")]


def test_prices_in_words() -> None:
    tiers = (Tier(up_to=1000, amount=Decimal("0.5"), per=10), Tier(up_to=None, amount=Decimal("0.10"), per=1))
    for model, words in (
        (Unit(amount=Decimal("4.470"), per=1_000_000), ["4.47 EUR per 1,000,000"]),
        (Package(amount=Decimal(1), size=500), ["1 EUR for each package of 500"]),
        (Graduated(tiers=tiers), ["up to 1,000: 0.5 EUR per 10", "above that: 0.1 EUR each"]),
        (
            Volume(tiers=tiers),
            ["all of it, up to 1,000: 0.5 EUR per 10", "all of it, above that: 0.1 EUR each"],
        ),
    ):
        assert list(price_words(Price(model=model), "EUR")) == words
    assert price_words(Price(model=Unit(amount=Decimal(1)), included=5_000), "EUR") == (
        "5,000 a month included", "1 EUR each",
    )  # fmt: skip


def test_months_around() -> None:
    assert months_around(date(2026, 1, 1), date(2026, 1, 31)) == (date(2025, 12, 1), None)
    assert months_around(date(2026, 1, 1), date(2026, 2, 1)) == (date(2025, 12, 1), date(2026, 2, 1))


def test_money() -> None:
    assert [money(Decimal(text)) for text in ("0", "0.00001", "0.12345", "1234.5")] == [
        "0.00", "<\u00a00.0001", "0.1234", "1,234.50",
    ]  # fmt: skip
