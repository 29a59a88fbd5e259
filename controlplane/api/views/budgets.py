"""/v1/budget, /v1/usage/forecast, /v1/schedules:forecast"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import msgspec
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from billing.budgets import forecasts, watching
from cells.contract import Scope
from cells.domain.job import Schedule
from cells.domain.schedule import ScheduleError
from controlplane.api.base import ApiView, tenant_or_404, with_etag
from controlplane.api.money_documents import (
    BudgetDocument,
    ForecastDocument,
    ScheduleForecastDocument,
    show_budget,
    show_forecast,
    show_schedule_forecast,
)
from controlplane.api.money_forms import ForecastSchedule, SetBudget
from controlplane.api.permissions import needs
from controlplane.api.problems import invalid as faulty
from controlplane.api.views.price_books import today
from controlplane.errors import invalid
from controlplane.occurrences import occurrences_of

#: Fields of a schedule that only the cell fills in.
_NOT_GIVEN = frozenset({"excluded", "calendar_version"})


class ForecastView(ApiView):
    scopes = needs(GET=Scope.USAGE_READ)

    @extend_schema(operation_id="get_forecast", responses=ForecastDocument)
    def get(self, request: Request) -> Response:
        """What this month comes to so far, and by its end."""
        return Response(show_forecast(forecasts.forecast_of(self.tenant_id, today())))


class BudgetView(ApiView):
    scopes = needs(GET=Scope.USAGE_READ, PUT=Scope.ADMIN, DELETE=Scope.ADMIN)

    @extend_schema(operation_id="get_budget", responses=BudgetDocument)
    def get(self, request: Request) -> Response:
        """The budget of a month, and how much of it is used."""
        return self._answer(watching.budget_state(self.tenant_id, today()))

    @extend_schema(operation_id="set_budget", request=SetBudget, responses=BudgetDocument)
    def put(self, request: Request) -> Response:
        """Sets what a month may come to before taxes. People are told at 50, 80 and 100 %, once each;
        with a cap, LOW work waits from the end of the grace on until the month is over."""
        form = self.read(SetBudget)
        state = watching.set_budget(
            tenant_id=self.tenant_id,
            **form,
            expected_version=self.expected_version(),
            today=today(),
            actor=self.actor,
        )
        return self._answer(state)

    @extend_schema(operation_id="remove_budget", responses={204: None})
    def delete(self, request: Request) -> Response:
        """No budget any more; LOW work that waited for it goes on."""
        watching.remove_budget(tenant_id=self.tenant_id, actor=self.actor, reason="")
        return Response(None, 204)

    @staticmethod
    def _answer(state: watching.BudgetState) -> Response:
        return with_etag(show_budget(state), state.budget.version)


class ForecastScheduleView(ApiView):
    scopes = needs(POST=Scope.USAGE_READ)

    @extend_schema(
        operation_id="forecast_schedule", request=ForecastSchedule, responses=ScheduleForecastDocument
    )
    def post(self, request: Request) -> Response:
        """What a schedule adds to the bill of the 30 days to come. Nothing is created."""
        form = self.read(ForecastSchedule)
        if ("schedule" in form) == ("occurrences" in form):
            raise invalid("", "give either a schedule or how often it happens")
        now = datetime.now(UTC)
        count = form["occurrences"] if "occurrences" in form else _count(form["schedule"], now)
        tenant = tenant_or_404(self.tenant_id)
        attempts = form.get("attempts_per_run")
        found = forecasts.forecast_schedule(
            self.tenant_id,
            occurrences=count,
            region_policy=form.get("region_policy", tenant.default_region_policy),
            attempts=None if attempts is None else Fraction(attempts),
            today=now.date(),
        )
        return Response(show_schedule_forecast(found, forecasts.SCHEDULE_DAYS))


def _count(document: dict[str, Any], now: datetime) -> int:
    """How often a schedule happens in the days a forecast looks at."""
    unknown = sorted(set(document) - (set(Schedule.__struct_fields__) - _NOT_GIVEN))
    if unknown:
        raise faulty([{"pointer": f"/schedule/{name}", "detail": "Unknown field."} for name in unknown])
    if document.get("calendar") is not None:
        raise invalid(
            "/schedule/calendar", "give the number of occurrences: the tenant's cell keeps calendars"
        )
    try:
        return occurrences_of(document, now, timedelta(days=forecasts.SCHEDULE_DAYS))
    except msgspec.ValidationError as e:
        raise invalid("/schedule", str(e)) from e
    except ScheduleError as e:
        raise faulty([{"pointer": pointer, "detail": detail} for pointer, detail in e.faults]) from e
