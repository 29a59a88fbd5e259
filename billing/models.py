"""The meter ledger, what is added up from it, and the price book."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from billing.budgets.models import Budget, BudgetAlert, LowDelay
from billing.exports.models import Export, ExportSchedule
from billing.invoices.models import CreditNote, Invoice, InvoiceLine, NumberSeries, SentMail
from billing.pricing.models import BillingAccount, ChargeBook, Contract
from billing.stripe.models import (
    StripeCursor,
    StripeCustomer,
    StripeDifference,
    StripeEvent,
    StripeInvoice,
    StripeMeter,
)
from billing.usage_models import (
    BillingPeriod,
    DriftCheck,
    DriftFinding,
    MeterCorrection,
    MeterKey,
    MeterWatermark,
    RouterMark,
    UsageAdjustment,
    UsageDay,
    UsageHour,
    UsageMonth,
)
from cells.contract import Metric

ALL_HOURS = (1 << 24) - 1
METRICS = [(m.value, m.value.replace("_", " ")) for m in Metric]


class MeterRecord(MeterKey):
    """One sealed minute of one metric, as `cells.contract.MeterRecord`. Append-only.

    All fields but `quantity` are its key, and the key is the primary key: a record that comes
    again is found, not added.
    """

    pk = models.CompositePrimaryKey(
        "tenant_id", "minute", "metric", "region_policy", "cell", "store", "epoch", "host"
    )
    quantity = models.BigIntegerField()
    received_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_meter_record"
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(quantity__gte=0), name="meter_not_negative")
        ]

    def __str__(self) -> str:
        return f"{self.metric} {self.minute:%Y-%m-%dT%H:%MZ}"


class MeterConflict(MeterKey):
    """An alarm: other content came under a key that is taken. Needs a person."""

    id = models.BigAutoField(primary_key=True)
    recorded = models.BigIntegerField()  # the quantity that stands
    refused = models.BigIntegerField()  # the one that came later
    first_at = models.DateTimeField(db_default=Now())
    settled_at = models.DateTimeField(null=True, blank=True)
    settled_by = models.CharField(max_length=200, blank=True, default="")

    class Meta:
        db_table = "billing_meter_conflict"
        constraints: ClassVar = [
            # The same wrong record sent a thousand times is one alarm.
            models.UniqueConstraint(
                fields=[
                    "tenant_id", "minute", "metric", "region_policy",
                    "cell", "store", "epoch", "host", "refused",
                ],
                name="meter_conflict_once",
            )
        ]  # fmt: skip

    def __str__(self) -> str:
        return f"{self.metric} {self.minute:%Y-%m-%dT%H:%MZ}: {self.recorded} stands, {self.refused} refused"


class DirtyDay(models.Model):
    """A tenant's day whose records changed since it was last added up."""

    pk = models.CompositePrimaryKey("tenant_id", "day")
    tenant_id = models.UUIDField()
    day = models.DateField()
    marks = models.BigIntegerField(default=1)  # raised by each ingestion
    hours = models.IntegerField(default=ALL_HOURS)  # which hours: bit 0 is midnight's

    class Meta:
        db_table = "billing_dirty_day"

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.day}"


class PriceBook(models.Model):
    """A version of the unit prices, from an instant on. Never changed once in force."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=80, unique=True)
    currency = models.CharField(max_length=3, default="USD")
    effective_from = models.DateField(unique=True)  # UTC day it begins to hold
    note = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_price_book"

    def __str__(self) -> str:
        return self.name


class UnitPrice(models.Model):
    """The price of `per` units of a metric under a region policy; `*` stands for any policy."""

    id = models.BigAutoField(primary_key=True)
    book = models.ForeignKey(PriceBook, on_delete=models.CASCADE, related_name="prices")
    metric = models.CharField(max_length=32, choices=METRICS)
    region_policy = models.CharField(max_length=20, default="*")
    per = models.BigIntegerField(default=1)
    amount = models.DecimalField(max_digits=20, decimal_places=10)

    class Meta:
        db_table = "billing_unit_price"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["book", "metric", "region_policy"], name="unit_price_once"),
            models.CheckConstraint(condition=Q(per__gte=1, amount__gte=0), name="unit_price_is_sane"),
        ]

    def __str__(self) -> str:
        return f"{self.metric} {self.region_policy}: {self.amount} per {self.per}"


__all__ = [
    "ALL_HOURS",
    "METRICS",
    "BillingAccount",
    "BillingPeriod",
    "Budget",
    "BudgetAlert",
    "ChargeBook",
    "Contract",
    "CreditNote",
    "DirtyDay",
    "DriftCheck",
    "DriftFinding",
    "Export",
    "ExportSchedule",
    "Invoice",
    "InvoiceLine",
    "LowDelay",
    "MeterConflict",
    "MeterCorrection",
    "MeterRecord",
    "MeterWatermark",
    "NumberSeries",
    "PriceBook",
    "RouterMark",
    "SentMail",
    "StripeCursor",
    "StripeCustomer",
    "StripeDifference",
    "StripeEvent",
    "StripeInvoice",
    "StripeMeter",
    "UnitPrice",
    "UsageAdjustment",
    "UsageDay",
    "UsageHour",
    "UsageMonth",
]
