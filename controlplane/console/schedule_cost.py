"""What a schedule adds to the bill of the 30 days to come: beside its preview, and on its job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Any

import msgspec

from billing.budgets.forecasts import SCHEDULE_DAYS, forecast_schedule
from cells.domain.schedule import ScheduleError
from controlplane.console.cost import money
from controlplane.console.visit import Visit
from controlplane.occurrences import occurrences_of


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleCost:
    """The forecast in words."""

    days: int
    runs: int
    attempts: int
    cost: str
    currency: str
    at_most: bool  # days that a calendar excludes are counted


def schedule_cost(visit: Visit, schedule: Mapping[str, Any], region_policy: str) -> ScheduleCost | None:
    """Occurrences by the attempts that runs took lately, at the prices behind what is used anyway. None
    for members who may not see usage, and for what is no schedule (its faults are told elsewhere)."""
    if not visit.may_see_usage:
        return None
    now = visit.now.astimezone(UTC)
    try:
        runs = occurrences_of(schedule, now, timedelta(days=SCHEDULE_DAYS))
    except (ScheduleError, msgspec.ValidationError):
        return None
    found = forecast_schedule(
        visit.tenant.id, occurrences=runs, region_policy=region_policy, attempts=None, today=now.date()
    )
    return ScheduleCost(
        days=SCHEDULE_DAYS,
        runs=runs,
        attempts=found.planned.attempts,
        cost=money(found.added.exact),
        currency=found.added.currency,
        at_most=bool(schedule.get("calendar")),
    )
