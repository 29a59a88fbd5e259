"""Budgets: set, watched, and what happens when they are spent."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection, transaction
from django.db.models.functions import Now
from django.template.loader import render_to_string

from billing.budgets.forecasts import forecast_of
from billing.budgets.models import THRESHOLDS, Budget, BudgetAlert, LowDelay
from billing.charging.documents import shown
from billing.charging.money import quantize
from billing.hooks import BILLING, Actor, audit, delay_low, want
from billing.ids import TENANT, encode
from billing.invoices.mails import send_once
from billing.months import month_of
from billing.pricing.accounts import account_of, lock_account
from billing.pricing.statements import statement_of
from billing.refusals import NotFound, VersionMismatch, refuse_faults
from billing.running import going_on
from billing.sql import named_sql

_SQL = named_sql("invoices")
MAIL_BUDGET = "billing_mail_budget"
#: Longest grace, in hours: a month.
MOST_GRACE = 720


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetState:
    """A budget and how much of it is used."""

    budget: Budget
    currency: str
    month: date
    spent: Decimal  # this month, before taxes
    alerts: tuple[BudgetAlert, ...]  # of this month
    low_delayed_since: datetime | None

    @property
    def percent(self) -> int:
        """How much of it is used, cut to a whole number."""
        return int(self.spent * 100 / self.budget.amount)


def budget_state(tenant_id: uuid.UUID, today: date) -> BudgetState:
    """The budget and where it stands. `NotFound` if there is none."""
    budget = Budget.objects.filter(pk=tenant_id).first()
    if budget is None:
        raise NotFound("no budget")
    month = month_of(today)
    statement = statement_of(tenant_id, month)
    delay = LowDelay.objects.filter(pk=tenant_id).first()
    return BudgetState(
        budget=budget,
        currency=statement.currency,
        month=month,
        spent=statement.net,
        alerts=tuple(BudgetAlert.objects.filter(tenant_id=tenant_id, month=month).order_by("threshold")),
        low_delayed_since=delay.since if delay else None,
    )


@transaction.atomic
def set_budget(
    *,
    tenant_id: uuid.UUID,
    amount: str,
    capped: bool = False,
    grace_hours: int = 24,
    expected_version: int | None = None,
    today: date,
    actor: Actor,
    reason: str,
) -> BudgetState:
    """Sets what a month may come to before taxes. What a higher one makes good is undone at once;
    thresholds that it has not reached are told when it does, and its grace begins then."""
    account = account_of(tenant_id)
    lock_account(tenant_id)
    value = Decimal(amount)
    faults = []
    if not value.is_finite() or value <= 0 or value != quantize(value, account.currency):
        faults.append(("/amount", f"an amount above 0 that can be paid in {account.currency}"))
    if not 0 <= grace_hours <= MOST_GRACE:
        faults.append(("/grace_hours", f"from 0 to {MOST_GRACE}"))
    refuse_faults(faults)
    before = Budget.objects.filter(pk=tenant_id).first()
    if expected_version is not None and expected_version != (before.version if before else 0):
        raise VersionMismatch(before.version if before else 0)
    Budget.objects.update_or_create(
        tenant_id=tenant_id,
        defaults={
            "amount": value,
            "capped": capped,
            "grace_hours": grace_hours,
            "version": before.version + 1 if before else 1,
            "updated_at": Now(),
        },
    )
    audit(
        action="budget.set", subject=encode(TENANT, tenant_id), tenant_id=tenant_id, actor=actor,
        reason=reason, before=_described(before) if before else None,
        after={"amount": shown(value), "capped": capped, "grace_hours": grace_hours},
    )  # fmt: skip
    state = budget_state(tenant_id, today)
    not_reached = [t for t in THRESHOLDS if state.spent * 100 < value * t]
    BudgetAlert.objects.filter(tenant_id=tenant_id, month=state.month, threshold__in=not_reached).delete()
    if state.low_delayed_since is not None and (not capped or state.spent < value):
        _end_delay(tenant_id, "the budget was changed")
    return budget_state(tenant_id, today)


@transaction.atomic
def remove_budget(*, tenant_id: uuid.UUID, actor: Actor, reason: str) -> None:
    """No budget any more; LOW work that waited for it goes on."""
    lock_account(tenant_id)
    budget = Budget.objects.filter(pk=tenant_id).first()
    if budget is None:
        raise NotFound("no budget")
    before = _described(budget)
    budget.delete()
    audit(
        action="budget.remove", subject=encode(TENANT, tenant_id), tenant_id=tenant_id, actor=actor,
        reason=reason, before=before,
    )  # fmt: skip
    _end_delay(tenant_id, "the budget was removed")


def _described(budget: Budget) -> dict[str, Any]:
    return {
        "amount": shown(budget.amount),
        "capped": budget.capped,
        "grace_hours": budget.grace_hours,
    }


def watch_all(now: datetime) -> int:
    """Looks at every budget; says how many thresholds were reached. Running it again tells nobody
    twice."""
    told = 0
    for tenant_id in _budgets():
        with going_on("watch a budget", tenant_id=str(tenant_id)):
            told += watch(tenant_id, now)
    return told


def _budgets() -> Iterator[uuid.UUID]:
    yield from Budget.objects.order_by("tenant_id").values_list("tenant_id", flat=True)
    delayed = LowDelay.objects.exclude(tenant_id__in=Budget.objects.values("tenant_id"))
    yield from delayed.order_by("tenant_id").values_list("tenant_id", flat=True)


@transaction.atomic
def watch(tenant_id: uuid.UUID, now: datetime) -> int:
    """One tenant: alerts for thresholds that were reached, LOW work delayed or let go."""
    lock_account(tenant_id)
    today = now.astimezone(UTC).date()
    month = month_of(today)
    delay = LowDelay.objects.filter(pk=tenant_id).first()
    budget = Budget.objects.filter(pk=tenant_id).first()
    if delay is not None and (budget is None or delay.month != month):
        _end_delay(tenant_id, "another month has begun")
        delay = None
    if budget is None:
        return 0
    statement = statement_of(tenant_id, month)
    told = 0
    for threshold in THRESHOLDS:
        if statement.net * 100 >= budget.amount * threshold:
            told += _alert(budget, month, threshold, statement.net, statement.currency)
    if delay is None and budget.capped and statement.net >= budget.amount:
        reached = BudgetAlert.objects.get(tenant_id=tenant_id, month=month, threshold=100)
        if now >= reached.at + timedelta(hours=budget.grace_hours):
            _begin_delay(tenant_id, month)
    return told


def _alert(budget: Budget, month: date, threshold: int, spent: Decimal, currency: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            _SQL["alert"],
            {
                "tenant_id": budget.tenant_id,
                "month": month,
                "threshold": threshold,
                "budget": budget.amount,
                "spent": spent,
                "currency": currency,
            },
        )
        row = cursor.fetchone()
    if row is None:
        return False
    audit(
        action="budget.reached", subject=encode(TENANT, budget.tenant_id), tenant_id=budget.tenant_id,
        actor=BILLING, reason=f"{threshold} % of the budget for {month:%Y-%m}",
        after={"spent": str(spent), "budget": shown(budget.amount), "threshold": threshold},
    )  # fmt: skip
    want(topic=MAIL_BUDGET, subject=str(row[0]))
    return True


def _begin_delay(tenant_id: uuid.UUID, month: date) -> None:
    LowDelay.objects.create(tenant_id=tenant_id, month=month)
    delay_low(
        tenant_id=tenant_id, delayed=True, actor=BILLING, reason=f"the budget for {month:%Y-%m} is spent"
    )


def _end_delay(tenant_id: uuid.UUID, reason: str) -> None:
    gone, _ = LowDelay.objects.filter(pk=tenant_id).delete()
    if gone:
        delay_low(tenant_id=tenant_id, delayed=False, actor=BILLING, reason=reason)


def mail_budget(subject: str) -> None:
    """Outbox handler: tells people of a threshold, once."""
    alert = BudgetAlert.objects.filter(pk=int(subject)).first()
    if alert is None:
        return
    account = account_of(alert.tenant_id)
    budget = Budget.objects.filter(pk=alert.tenant_id).first()
    forecast = forecast_of(alert.tenant_id, alert.at.astimezone(UTC).date()).expected
    text = render_to_string(
        "billing/mail/budget.txt",
        {
            "alert": alert,
            "name": account.name,
            "spent": quantize(alert.spent, alert.currency),
            "budget": quantize(alert.budget, alert.currency),
            "forecast": forecast.net,
            "capped": budget is not None and budget.capped,
            "grace_hours": budget.grace_hours if budget else 0,
        },
    )
    send_once(
        key=f"budget:{alert.id}",
        tenant_id=alert.tenant_id,
        to=account.emails,
        subject=f"{account.name}: {alert.threshold} % of the budget for {alert.month:%B %Y}",
        text=text,
    )
