"""Budgets and what they said."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

#: Percent of a budget at which its people are told, once each in a month.
THRESHOLDS = (50, 80, 100)


class Budget(models.Model):
    """What a tenant means to spend in a month, before taxes, in its currency."""

    tenant_id = models.UUIDField(primary_key=True)
    amount = models.DecimalField(max_digits=20, decimal_places=3)
    capped = models.BooleanField(default=False)  # LOW work is delayed once it is spent
    grace_hours = models.IntegerField(default=24)  # from 100 % until it is
    version = models.BigIntegerField(default=1)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_budget"
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(amount__gt=0, grace_hours__gte=0, grace_hours__lte=720), name="budget_is_sane"
            )
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id}: {self.amount}"


class BudgetAlert(models.Model):
    """A threshold that a month reached. One row each, so everybody is told once."""

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField()
    month = models.DateField()
    threshold = models.IntegerField()  # percent
    budget = models.DecimalField(max_digits=20, decimal_places=3)
    spent = models.DecimalField(max_digits=24, decimal_places=3)
    currency = models.CharField(max_length=3)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_budget_alert"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant_id", "month", "threshold"], name="budget_alert_once"),
            models.CheckConstraint(condition=Q(threshold__in=THRESHOLDS), name="budget_alert_known"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.month:%Y-%m}: {self.threshold} %"


class LowDelay(models.Model):
    """A tenant whose LOW work waits because its budget is spent."""

    tenant_id = models.UUIDField(primary_key=True)
    month = models.DateField()  # for which; the next month ends it
    since = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_low_delay"

    def __str__(self) -> str:
        return f"{self.tenant_id} since {self.since:%Y-%m-%d}"
