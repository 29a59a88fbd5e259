"""The budget of a month: what it is, how much of it is used, who is told, what waits once it is spent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect

from billing.budgets import watching
from billing.budgets.forecasts import forecast_of
from billing.budgets.models import THRESHOLDS
from billing.charging.money import quantize
from billing.pricing.accounts import account_of
from billing.pricing.statements import statement_of
from billing.refusals import NotFound as NoBudget
from cells.contract import Scope
from controlplane.console.acting import Form, ask, done, not_done
from controlplane.console.visit import Visit, tenant_page
from controlplane.errors import Fault, Invalid, Refused, VersionMismatch
from controlplane.refusals import of_billing

_FIELDS = ("amount", "grace_hours")
_AMOUNT = re.compile(r"(?:0|[1-9][0-9]{0,11})(?:\.[0-9]{1,10})?")
_WHOLE = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A threshold of the budget, and when this month reached it."""

    percent: int
    amount: str
    at: datetime | None


@tenant_page(Scope.USAGE_READ, "GET", "POST")
def budget(visit: Visit) -> HttpResponse:
    """GET …/budget is for everybody who sees usage; POST sets it and is for admins."""
    today = visit.now.astimezone(UTC).date()
    state = _state(visit, today)
    if visit.request.method == "GET":
        return _page(visit, today, state, Form(values=_values(state)))
    if not visit.may_administer:
        raise PermissionDenied
    posted = visit.request.POST
    values = {name: posted.get(name, "").strip()[:200] for name in (*_FIELDS, "capped", "reason", "version")}
    try:
        given = _read(values)
        with of_billing():
            made = watching.set_budget(
                tenant_id=visit.tenant.id, **given, today=today, actor=visit.actor, reason=values["reason"]
            )
    except VersionMismatch:
        form = Form(
            values={**values, "version": state.budget.version if state else 0},
            general=["Somebody else changed the budget meanwhile, as shown above. Save again to replace it."],
        )
        return _page(visit, today, state, form, status=409)
    except Refused as refused:
        return _page(visit, today, state, Form.refused(values, refused, fields=_FIELDS), status=422)
    done(
        visit, "The budget is {} {} a month; {}.", quantize(made.budget.amount, made.currency), made.currency,
        _what_happens(made), link=_log(visit),
    )  # fmt: skip
    return redirect(visit.url("budget"))


@tenant_page(Scope.ADMIN, "GET", "POST")
def budget_remove(visit: Visit) -> HttpResponse:
    """GET says what ends with it; POST removes it."""
    today = visit.now.astimezone(UTC).date()
    state = _state(visit, today)
    if state is None:
        return redirect(visit.url("budget"))
    if visit.request.method == "GET":
        amount = f"{quantize(state.budget.amount, state.currency)} {state.currency}"
        return ask(
            visit,
            title="Remove the budget",
            points=[
                f"{state.percent} % of {amount} are used this month.",
                "Nobody is told any more when it is reached.",
                "LOW work that waits for it goes on at once."
                if state.low_delayed_since
                else "No work waits for it now, and none will.",
            ],
            verb="Remove the budget", back=visit.url("budget"), keep="Keep it", section="usage",
        )  # fmt: skip
    try:
        with of_billing():
            watching.remove_budget(tenant_id=visit.tenant.id, actor=visit.actor, reason="")
    except Refused as refused:
        not_done(visit, refused)
    else:
        done(visit, "The budget is removed.", link=_log(visit))
    return redirect(visit.url("budget"))


def _log(visit: Visit) -> tuple[str, str]:
    return f"{visit.url('audit')}?action=budget.", "In the audit log"


def _state(visit: Visit, today: date) -> watching.BudgetState | None:
    try:
        return watching.budget_state(visit.tenant.id, today)
    except NoBudget:
        return None


def _values(state: watching.BudgetState | None) -> dict[str, Any]:
    if state is None:
        return {"amount": "", "capped": False, "grace_hours": 24, "version": 0}
    return {
        "amount": f"{quantize(state.budget.amount, state.currency):f}",
        "capped": state.budget.capped,
        "grace_hours": state.budget.grace_hours,
        "version": state.budget.version,
    }


def _read(values: dict[str, str]) -> dict[str, Any]:
    """The form as the use-case takes it. Raises `Invalid` with every fault."""
    faults = []
    if not _AMOUNT.fullmatch(values["amount"]):
        faults.append(Fault(pointer="/amount", detail="an amount such as 250 or 99.90"))
    grace = values["grace_hours"] or "24"
    if not _WHOLE.fullmatch(grace):
        faults.append(Fault(pointer="/grace_hours", detail="a whole number of hours"))
    if faults:
        raise Invalid(faults)
    return {
        "amount": values["amount"],
        "capped": values["capped"] == "on",
        "grace_hours": int(grace),
        "expected_version": int(values["version"]) if _WHOLE.fullmatch(values["version"]) else 0,
    }


def _what_happens(state: watching.BudgetState) -> str:
    used = f"{state.percent} % of it are used"
    if not state.budget.capped:
        return f"{used}, and no work waits for it"
    if state.percent >= 100:
        return f"{used}: LOW work waits {state.budget.grace_hours} h after people were told of 100 %"
    return f"{used}; LOW work waits {state.budget.grace_hours} h after 100 %"


def _page(
    visit: Visit, today: date, state: watching.BudgetState | None, form: Form, status: int = 200
) -> HttpResponse:
    account = account_of(visit.tenant.id)
    earlier = (today.replace(day=1) - timedelta(days=1)).replace(day=1)
    last = statement_of(visit.tenant.id, earlier).net
    context: dict[str, Any] = {"form": form, "currency": account.currency, "recipients": account.emails}
    if state is not None:
        expected = forecast_of(visit.tenant.id, today).expected.net
        reached = {alert.threshold: alert.at for alert in state.alerts}
        context |= {
            "state": state,
            "amount": f"{quantize(state.budget.amount, state.currency):f}",
            "spent": f"{state.spent:,}",
            "forecast": f"{expected:,}",
            "over": f"{expected - quantize(state.budget.amount, state.currency):,}"
            if expected > state.budget.amount
            else "",
            "steps": [
                Step(
                    percent=percent,
                    amount=f"{quantize(state.budget.amount * Decimal(percent) / 100, state.currency):,}",
                    at=reached.get(percent),
                )
                for percent in THRESHOLDS
            ],
        }
    return visit.page(
        "console/money/budget.html", status=status, section="usage", tab="budget",
        last=(earlier, f"{last:,}") if last else None, **context,
    )  # fmt: skip
