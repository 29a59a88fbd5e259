"""What Stripe knows, as far as we know. Everything here can be rebuilt from it and from invoices."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now


class StripeCustomer(models.Model):
    """A tenant at Stripe."""

    tenant_id = models.UUIDField(primary_key=True)
    customer = models.CharField(max_length=80, unique=True)
    version = models.BigIntegerField(default=0)  # of the billing account that it was told
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_stripe_customer"

    def __str__(self) -> str:
        return self.customer


class StripeMeter(models.Model):
    """A billing meter: one for each metric and region policy, as each has a price of its own."""

    event_name = models.CharField(max_length=80, primary_key=True)
    metric = models.CharField(max_length=32)
    region_policy = models.CharField(max_length=20)
    meter = models.CharField(max_length=80, unique=True)

    class Meta:
        db_table = "billing_stripe_meter"

    def __str__(self) -> str:
        return self.event_name


class StripeCursor(models.Model):
    """How much of a tenant's usage of a month Stripe has.

    A step is written down (`pending`) before it is sent, and its identifier comes from its number:
    whatever happens to the request, the same step is sent again, and Stripe counts it once.
    """

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField()
    month = models.DateField()
    metric = models.CharField(max_length=32)
    region_policy = models.CharField(max_length=20)
    sent = models.DecimalField(max_digits=30, decimal_places=0, default=0)
    steps = models.IntegerField(default=0)  # that are done
    pending = models.DecimalField(max_digits=30, decimal_places=0, null=True)  # the sum after the step
    pending_at = models.DateTimeField(null=True)  # the instant the step's event names
    pending_since = models.DateTimeField(null=True)  # when it was first sent
    error = models.TextField(blank=True, default="")  # of the last try

    class Meta:
        db_table = "billing_stripe_cursor"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant_id", "month", "metric", "region_policy"], name="stripe_cursor_once"
            ),
            models.CheckConstraint(
                condition=Q(pending=None) | Q(pending__gt=F("sent")), name="stripe_cursor_goes_up"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.month:%Y-%m} {self.metric}: {self.sent}"


class StripeInvoice(models.Model):
    """Our invoice at Stripe, and where it can be paid."""

    invoice = models.OneToOneField(
        "billing.Invoice", on_delete=models.PROTECT, primary_key=True, related_name="stripe"
    )
    stripe_id = models.CharField(max_length=80, unique=True)
    state = models.CharField(max_length=20)  # as Stripe says: draft, open, paid, void, uncollectible
    payment_url = models.TextField(blank=True, default="")
    credited = models.DecimalField(max_digits=24, decimal_places=3, default=0)  # that Stripe was told
    error = models.TextField(blank=True, default="")
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_stripe_invoice"

    def __str__(self) -> str:
        return self.stripe_id


class StripeEvent(models.Model):
    """A webhook's event that was taken: the same one again is heard, and nothing happens."""

    event_id = models.CharField(max_length=80, primary_key=True)
    kind = models.CharField(max_length=120)
    created = models.DateTimeField()  # by Stripe
    received_at = models.DateTimeField(db_default=Now())
    outcome = models.TextField(blank=True, default="")

    class Meta:
        db_table = "billing_stripe_event"

    def __str__(self) -> str:
        return f"{self.event_id} {self.kind}"


class StripeDifference(models.Model):
    """Where Stripe's sums and ours differ. A person looks; it settles itself once they agree."""

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField(null=True, blank=True)  # null: of a meter as a whole
    kind = models.CharField(max_length=20)  # usage, invoice, meter_error
    subject = models.CharField(max_length=160)
    ours = models.CharField(max_length=60)
    theirs = models.CharField(max_length=60)
    found_at = models.DateTimeField(db_default=Now())
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "billing_stripe_difference"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["kind", "subject"], condition=Q(settled_at=None), name="stripe_difference_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}: {self.ours} here, {self.theirs} there"
