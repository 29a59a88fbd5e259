"""What is added up from the ledger, and the months that close over it."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class UsageRow(models.Model):
    """How much of a metric a tenant used under a policy on a cell."""

    tenant_id = models.UUIDField()
    metric = models.CharField(max_length=32)
    region_policy = models.CharField(max_length=20)
    cell = models.CharField(max_length=63)
    quantity = models.BigIntegerField()

    class Meta:
        abstract = True


class UsageSum(UsageRow):
    """Usage added up from what lies below; never added to."""

    records = models.BigIntegerField()  # how many meter records it stands for

    class Meta:
        abstract = True


class MeterKey(models.Model):
    """What a meter record is known by."""

    tenant_id = models.UUIDField()
    minute = models.DateTimeField()
    metric = models.CharField(max_length=32)
    region_policy = models.CharField(max_length=20)
    cell = models.CharField(max_length=63)
    store = models.SmallIntegerField()
    epoch = models.BigIntegerField()
    host = models.CharField(max_length=200)

    class Meta:
        abstract = True


class UsageHour(UsageSum):
    """An hour's sum per metric, policy and cell, recomputed from records."""

    pk = models.CompositePrimaryKey("tenant_id", "hour", "metric", "region_policy", "cell")
    hour = models.DateTimeField()  # its start; UTC

    class Meta:
        db_table = "billing_usage_hour"

    def __str__(self) -> str:
        return f"{self.metric} {self.hour:%Y-%m-%dT%HZ}: {self.quantity}"


class UsageDay(UsageSum):
    """A day's sum per metric, policy and cell, recomputed from hours."""

    id = models.BigAutoField(primary_key=True)
    day = models.DateField()  # UTC
    computed_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_usage_day"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant_id", "day", "metric", "region_policy", "cell"], name="usage_day_once"
            )
        ]
        indexes: ClassVar = [models.Index(fields=["day", "tenant_id"], name="usage_by_day")]

    def __str__(self) -> str:
        return f"{self.metric} {self.day}: {self.quantity}"


class UsageMonth(UsageSum):
    """A month's sum per metric, policy and cell, recomputed from days."""

    pk = models.CompositePrimaryKey("tenant_id", "month", "metric", "region_policy", "cell")
    month = models.DateField()  # its first day; UTC
    quantity = models.DecimalField(max_digits=30, decimal_places=0)  # byte minutes outgrow 63 bits

    class Meta:
        db_table = "billing_usage_month"

    def __str__(self) -> str:
        return f"{self.metric} {self.month:%Y-%m}: {self.quantity}"


class PeriodState(models.TextChoices):
    """Whether a month's usage may still change."""

    OPEN = "OPEN"  # late records reopen their day
    CLOSING = "CLOSING"  # over; waits until every cell has sealed it
    CLOSED = "CLOSED"  # frozen for ever; what comes later is an adjustment of a later month


class BillingPeriod(models.Model):
    """A tenant's UTC month, half-open. Closed months are closed in their order and never change."""

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField()
    month = models.DateField()  # its first day
    state = models.CharField(max_length=10, choices=PeriodState.choices, default=PeriodState.OPEN)
    opened_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True, blank=True)
    # CLOSING: what it waits for, for people; nothing is decided by it.
    waits_for = models.JSONField(default=list, blank=True)
    # CLOSED: the watermarks it relied on, or who closed it without which of them, and why.
    evidence = models.JSONField(null=True, blank=True)

    class Meta:
        db_table = "billing_period"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant_id", "month"], name="period_once"),
            models.CheckConstraint(condition=Q(month__day=1), name="period_is_a_month"),
            models.CheckConstraint(condition=Q(state__in=PeriodState.values), name="period_state_is_known"),
            models.CheckConstraint(
                condition=Q(state="CLOSED", closed_at__isnull=False)
                | (~Q(state="CLOSED") & Q(closed_at__isnull=True)),
                name="period_closed_at_once",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["month", "tenant_id"], condition=~Q(state="CLOSED"), name="period_not_closed"
            )
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.month:%Y-%m} {self.state}"


class UsageAdjustment(UsageRow):
    """What the ledger learned of a day after its month was closed, to be billed in `into_month`. Its quantity
    is negative where a correction took something back."""

    pk = models.CompositePrimaryKey("tenant_id", "into_month", "day", "metric", "region_policy", "cell")
    into_month = models.DateField()  # the month that bills it
    day = models.DateField()  # the day it happened
    computed_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_usage_adjustment"
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(into_month__day=1), name="adjustment_bills_a_month")
        ]
        indexes: ClassVar = [models.Index(fields=["tenant_id", "day"], name="adjustment_of_day")]

    def __str__(self) -> str:
        return f"{self.metric} {self.day} into {self.into_month:%Y-%m}: {self.quantity}"


class MeterWatermark(models.Model):
    """How far a cell's store has sealed and shipped: every record of a minute before it is here."""

    id = models.BigAutoField(primary_key=True)
    cell = models.CharField(max_length=63)
    store = models.SmallIntegerField()
    epoch = models.BigIntegerField()  # of the cell; a newer owner vouches for all before it
    sealed_until = models.DateTimeField(null=True, blank=True)  # never falls; null: nothing said yet
    received_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_meter_watermark"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["cell", "store", "epoch"], name="watermark_once")
        ]

    def __str__(self) -> str:
        return f"{self.cell}/{self.store} under {self.epoch}: {self.sealed_until}"


class RouterMark(models.Model):
    """How far an incarnation of a router has shipped what it counted. Gone once it has ended, and all is
    here."""

    host = models.CharField(primary_key=True, max_length=200)
    sealed_until = models.DateTimeField()  # never falls
    heard_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_router_mark"

    def __str__(self) -> str:
        return f"{self.host}: {self.sealed_until}"


class MeterCorrection(MeterKey):
    """A person's correction of one record: a row that refers to it. Append-only, like the ledger."""

    id = models.UUIDField(primary_key=True)
    quantity = models.BigIntegerField()  # added to the record's own; may be negative
    reason = models.TextField()
    actor = models.CharField(max_length=200)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_meter_correction"
        indexes: ClassVar = [models.Index(fields=["tenant_id", "minute"], name="correction_of_minute")]

    def __str__(self) -> str:
        return f"{self.metric} {self.minute:%Y-%m-%dT%H:%MZ}: {self.quantity:+}"


class DriftFinding(models.Model):
    """A day of a tenant where the ledger and what its cells remember are not the same."""

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField()
    day = models.DateField()
    cell = models.CharField(max_length=63)
    metric = models.CharField(max_length=32)
    region_policy = models.CharField(max_length=20)
    ledger = models.BigIntegerField()
    rollup = models.BigIntegerField()  # with what was adjusted since
    counted = models.BigIntegerField()  # by the cell
    first_at = models.DateTimeField(db_default=Now())
    last_at = models.DateTimeField(db_default=Now())
    settled_at = models.DateTimeField(null=True, blank=True)  # equal again, or looked into
    settled_by = models.CharField(max_length=200, blank=True, default="")

    class Meta:
        db_table = "billing_drift_finding"
        constraints: ClassVar = [
            # A difference that stays is one alarm.
            models.UniqueConstraint(
                fields=["tenant_id", "day", "cell", "metric", "region_policy"],
                condition=Q(settled_at=None),
                name="drift_open_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.metric} {self.day} on {self.cell}: {self.ledger} here, {self.counted} there"


class DriftCheck(models.Model):
    """When a cell's day was compared last, and what came of it."""

    pk = models.CompositePrimaryKey("cell", "day")
    cell = models.CharField(max_length=63)
    day = models.DateField()
    tenants = models.IntegerField()
    differences = models.IntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_drift_check"

    def __str__(self) -> str:
        return f"{self.cell} {self.day}: {self.differences} differences"
