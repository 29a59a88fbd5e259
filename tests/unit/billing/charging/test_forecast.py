"""Forecasts: the mean of days that are over, and what a schedule adds at the prices it meets."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing.charging.book import Book, Period
from billing.charging.charge import Used, charge, corrections_of
from billing.charging.forecast import Planned, attempts_per_run, expected, schedule_adds
from billing.charging.prices import Graduated, Price, Tier, Unit

NOVEMBER = Period.month(2026, 11)
FIRST = NOVEMBER.start
BOOK = Book(
    name="2026",
    currency="USD",
    effective_from=FIRST,
    prices={
        ("job_runs", "*"): Price(model=Unit(amount=Decimal(2)), included=100),
        ("run_attempts", "*"): Price(
            model=Graduated(tiers=(Tier(up_to=50, amount=Decimal(3)), Tier(up_to=None, amount=Decimal(1))))
        ),
    },
)


def used(day: int, quantity: int, metric: str = "job_runs") -> Used:
    return Used(
        day=FIRST + timedelta(days=day - 1), metric=metric, region_policy="HOME_ASYNC", quantity=quantity
    )


def total(found: list[Used]) -> int:
    return sum(u.quantity for u in found)


def test_days_to_come_are_like_the_last_seven() -> None:
    so_far = [used(day, 10) for day in range(1, 11)] + [used(11, 3)]
    found = expected(NOVEMBER, so_far, date(2026, 11, 11))
    assert total(found) == 30 * 10
    assert {u.day for u in found} == {FIRST + timedelta(days=d) for d in range(30)}


def test_idle_days_are_days_that_are_over() -> None:
    mondays = [used(day, 700) for day in (-5, 2, 9, 16)]
    # On the 18th: 2,100 so far, and 100 a day for today and twelve days to come.
    assert total(expected(NOVEMBER, mondays, date(2026, 11, 18))) == 2_100 + 13 * 100


def test_today_counts_at_least_what_it_has() -> None:
    assert total(expected(NOVEMBER, [used(1, 10), used(2, 50)], date(2026, 11, 2))) == 10 + 50 + 28 * 10


def test_the_first_day_is_guessed_by_the_month_before() -> None:
    before = [used(day, 5) for day in range(-6, 1)]
    assert total(expected(NOVEMBER, before, FIRST)) == 150


def test_a_month_that_is_over_is_what_it_was() -> None:
    assert total(expected(NOVEMBER, [used(3, 7)], date(2026, 12, 9))) == 7


def test_nothing_used_is_nothing_expected() -> None:
    assert expected(NOVEMBER, [], date(2026, 11, 9)) == []


def test_a_schedule_adds_what_the_invoice_will() -> None:
    # 40 of 100 free runs are left, and 10 of the 50 dear attempts.
    usage = [used(1, 60), used(1, 40, "run_attempts")]
    planned = Planned(occurrences=50, attempts_per_run=Fraction(3, 2), region_policy="HOME_ASYNC")
    added = schedule_adds(NOVEMBER, planned, usage, [BOOK])
    assert planned.attempts == 75
    assert {p.metric: (p.quantity, p.exact) for p in added.parts} == {
        "job_runs": (50, Decimal(20)),
        "run_attempts": (75, Decimal(10 * 3 + 65)),
    }
    assert (added.exact, added.currency) == (Decimal(115), "USD")


def test_attempts_are_those_observed() -> None:
    assert attempts_per_run([used(1, 10), used(1, 25, "run_attempts")]) == Fraction(5, 2)
    assert attempts_per_run([]) == 1
    with pytest.raises(ValueError, match="less than never"):
        schedule_adds(
            NOVEMBER,
            Planned(occurrences=-1, attempts_per_run=Fraction(1), region_policy="STRICT"),
            [],
            [BOOK],
        )


days = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 500)), max_size=12)


@settings(deadline=None)
@given(days, days)
def test_late_usage_costs_what_it_would_have_in_time(
    timely: list[tuple[int, int]], late: list[tuple[int, int]]
) -> None:
    in_time = [used(d, q, m) for d, q in timely for m in ("job_runs", "run_attempts")]
    behind = [used(d, q, m) for d, q in late for m in ("job_runs", "run_attempts")]
    corrections = corrections_of(NOVEMBER, in_time, behind, [BOOK])
    apart = charge(NOVEMBER, in_time, [BOOK], corrections=corrections)
    together = charge(NOVEMBER, [*in_time, *behind], [BOOK])
    assert sum(line.exact for line in apart.lines) == sum(line.exact for line in together.lines)
    assert sum(line.consumed for line in apart.lines) == sum(line.consumed for line in together.lines)
    assert apart.total == together.total
