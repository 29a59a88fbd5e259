"""What the month will come to, and what a schedule adds to it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

from billing.charging.book import Period
from billing.charging.charge import Statement, charge
from billing.charging.forecast import (
    LOOKS_BACK,
    Added,
    Planned,
    attempts_per_run,
    expected,
    schedule_adds,
)
from billing.charging.money import quantize
from billing.months import month_of
from billing.pricing.statements import (
    corrections_in,
    period_of,
    statement_of,
    terms_of,
    used_of,
)

#: Days a schedule's forecast looks ahead, and back for how many attempts a run takes.
SCHEDULE_DAYS = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """A month so far, and as it is expected to end. Both before and with taxes."""

    month: date
    today: date
    so_far: Statement
    expected: Statement


def forecast_of(tenant_id: uuid.UUID, today: date) -> Forecast:
    """The month of `today`."""
    month = month_of(today)
    terms = terms_of(tenant_id)
    period = period_of(month)
    used = used_of(tenant_id, period.start - timedelta(days=LOOKS_BACK), period.end)
    return Forecast(
        month=month,
        today=today,
        so_far=statement_of(tenant_id, month, terms),
        expected=charge(
            period,
            expected(period, used, today),
            terms.books,
            overrides=terms.overrides,
            taxes=terms.taxes,
            corrections=corrections_in(tenant_id, month, terms),
            currency=terms.account.currency,
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleForecast:
    """What a schedule adds over the 30 days from `since` on."""

    since: date
    planned: Planned
    added: Added
    total: Decimal  # of `added`, rounded as money


def forecast_schedule(
    tenant_id: uuid.UUID,
    *,
    occurrences: int,
    region_policy: str,
    attempts: Fraction | None,
    today: date,
) -> ScheduleForecast:
    """Occurrences within 30 days × attempts (given, or as observed of the tenant in the last 30) at
    the prices that hold behind what the tenant uses anyway."""
    (found,) = forecast_schedules(tenant_id, [(occurrences, region_policy)], attempts=attempts, today=today)
    return found


def forecast_schedules(
    tenant_id: uuid.UUID,
    schedules: Sequence[tuple[int, str]],
    *,
    attempts: Fraction | None = None,
    today: date,
) -> list[ScheduleForecast]:
    """The same for several, (occurrences, region policy), each as if the others were not there."""
    terms = terms_of(tenant_id)
    back = used_of(tenant_id, today - timedelta(days=SCHEDULE_DAYS), today + timedelta(days=1))
    period = Period(start=today, end=today + timedelta(days=SCHEDULE_DAYS))
    anyway = expected(period, back, today)
    each = attempts_per_run(back) if attempts is None else attempts
    found = []
    for occurrences, region_policy in schedules:
        planned = Planned(occurrences=occurrences, attempts_per_run=each, region_policy=region_policy)
        added = schedule_adds(
            period, planned, anyway, terms.books, overrides=terms.overrides, currency=terms.account.currency
        )
        total = quantize(added.exact, added.currency)
        found.append(ScheduleForecast(since=today, planned=planned, added=added, total=total))
    return found
