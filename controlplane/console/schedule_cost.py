"""What a schedule adds to the bill of the 30 days to come: beside its preview, on its job, in the list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from billing.budgets.forecasts import SCHEDULE_DAYS, forecast_schedules
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
    (found,) = schedule_costs(visit, [(schedule, region_policy)])
    return found


def schedule_costs(
    visit: Visit, schedules: Sequence[tuple[Mapping[str, Any], str]]
) -> list[ScheduleCost | None]:
    """The same for several, each as if the others were not there."""
    if not visit.may_see_usage:
        return [None] * len(schedules)
    now = visit.now.astimezone(UTC)
    runs = [_runs(schedule, now) for schedule, _ in schedules]
    asked = [(n, policy) for n, (_, policy) in zip(runs, schedules, strict=True) if n is not None]
    forecasts = iter(forecast_schedules(visit.tenant.id, asked, today=now.date()) if asked else ())
    found: list[ScheduleCost | None] = []
    for (schedule, _), count in zip(schedules, runs, strict=True):
        if count is None:
            found.append(None)
            continue
        forecast = next(forecasts)
        found.append(
            ScheduleCost(
                days=SCHEDULE_DAYS,
                runs=count,
                attempts=forecast.planned.attempts,
                cost=money(forecast.added.exact),
                currency=forecast.added.currency,
                at_most=bool(schedule.get("calendar")),
            )
        )
    return found


def _runs(schedule: Mapping[str, Any], now: datetime) -> int | None:
    try:
        return occurrences_of(schedule, now, timedelta(days=SCHEDULE_DAYS))
    except (ScheduleError, msgspec.ValidationError):
        return None
