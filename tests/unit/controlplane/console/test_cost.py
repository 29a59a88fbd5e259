"""The month as columns."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from billing.rating import Line, Price, Rated, Usage
from controlplane.console.cost import Month, chart, money, months_around

FIRST = date(2026, 11, 1)
_METRICS = st.sampled_from(
    ["job_runs", "run_attempts", "api_requests", "egress_bytes", "stored_byte_minutes"]
)
_COSTS = st.decimals(min_value=0, max_value=10**6, places=8)


def _rated(day: int, lines: list[tuple[str, Decimal]]) -> Rated:
    return Rated(
        day=FIRST.replace(day=day),
        book="b",
        currency="EUR",
        lines=tuple(
            Line(
                usage=Usage(metric=metric, region_policy="", quantity=1),
                price=Price(amount=cost, per=1),
                cost=cost,
            )
            for metric, cost in lines
        ),
        total=sum((cost for _, cost in lines), Decimal(0)),
    )


def _month(rated: list[Rated]) -> Month:
    return Month(
        first=FIRST, last=date(2026, 11, 30), today=date(2026, 11, 20), currency="EUR",
        total=Decimal(0), forecast=None, over=0, days=(), lines=(), rated=tuple(rated),
    )  # fmt: skip


@given(st.dictionaries(st.integers(1, 30), st.lists(st.tuples(_METRICS, _COSTS), max_size=8)))
def test_every_day_has_its_column_and_none_leaves_the_chart(
    days: dict[int, list[tuple[str, Decimal]]],
) -> None:
    drawn = chart(_month([_rated(day, lines) for day, lines in sorted(days.items())]))
    assert [column.day.day for column in drawn.columns] == list(range(1, 31))
    assert all(column.x >= 0 and column.x + column.width <= 100.001 for column in drawn.columns)
    for column in drawn.columns:
        assert sum(piece.height for piece in column.pieces) <= 100.01
        assert all(-0.01 <= piece.y <= 100 for piece in column.pieces)
    used = {metric for lines in days.values() for metric, cost in lines if cost}
    assert bool(drawn.series) is bool(used)


def test_the_dearest_day_reaches_the_top() -> None:
    drawn = chart(_month([_rated(1, [("job_runs", Decimal(3))]), _rated(2, [("job_runs", Decimal(6))])]))
    assert [sum(piece.height for piece in column.pieces) for column in drawn.columns[:3]] == [50, 100, 0]
    assert drawn.top == "6.00"
    assert drawn.series == (("job-runs", "job runs"),)


def test_months_around() -> None:
    assert months_around(date(2026, 1, 1), date(2026, 1, 31)) == (date(2025, 12, 1), None)
    assert months_around(date(2026, 1, 1), date(2026, 2, 1)) == (date(2025, 12, 1), date(2026, 2, 1))


def test_money() -> None:
    assert [money(Decimal(text)) for text in ("0", "0.00001", "0.12345", "1234.5")] == [
        "0.00", "<\u00a00.0001", "0.1234", "1,234.50",
    ]  # fmt: skip
