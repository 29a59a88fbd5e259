"""What we charge, as stored. Not to be confused with `PriceBook`: what things cost us."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from billing.ids import BOOK, CONTRACT, encode, new_id


class ChargeBook(models.Model):
    """A version of the list prices of one currency, from a UTC day on until the next one's.

    Never changed; withdrawn only before its day. A trigger holds everybody to it.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=80, unique=True)
    currency = models.CharField(max_length=3)
    effective_from = models.DateField()
    prices = models.JSONField()  # documents of `billing.charging.documents`; amounts are text
    minimum = models.DecimalField(max_digits=20, decimal_places=3, default=0)  # of a month, before taxes
    note = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.CharField(max_length=200)

    class Meta:
        db_table = "billing_charge_book"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["currency", "effective_from"], name="charge_book_of_day"),
            models.CheckConstraint(condition=Q(minimum__gte=0), name="charge_book_minimum"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def public_id(self) -> str:
        return encode(BOOK, self.id)


class Contract(models.Model):
    """What one tenant was promised, from a UTC day on: prices and a minimum that stand above the
    book's. Only its end may be set later, and never inside a month that was invoiced."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant_id = models.UUIDField()
    effective_from = models.DateField()
    effective_until = models.DateField(null=True, blank=True)
    prices = models.JSONField(default=list)
    minimum = models.DecimalField(max_digits=20, decimal_places=3, null=True, blank=True)
    note = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.CharField(max_length=200)

    class Meta:
        db_table = "billing_contract"
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(effective_until=None) | Q(effective_until__gt=F("effective_from")),
                name="contract_ends_behind_its_start",
            ),
            # Two promises from one day on would need an order nobody wrote down.
            models.UniqueConstraint(fields=["tenant_id", "effective_from"], name="contract_of_day"),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant_id", "id"], name="contract_of_tenant")]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return encode(CONTRACT, self.id)


class BillingAccount(models.Model):
    """Who is billed and how. A tenant without a row is billed in the usual currency, under its own
    name, to its owners. Its row is the lock of all that concerns the tenant's money."""

    tenant_id = models.UUIDField(primary_key=True)
    currency = models.CharField(max_length=3)
    legal_name = models.CharField(max_length=200, blank=True, default="")
    address = models.TextField(blank=True, default="")  # lines
    tax_id = models.CharField(max_length=40, blank=True, default="")
    emails = ArrayField(models.EmailField(), default=list)  # none: the owners'
    taxes = models.JSONField(default=list)  # [{"name": "VAT", "rate": "0.19"}]
    version = models.BigIntegerField(default=1)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_account"

    def __str__(self) -> str:
        return str(self.tenant_id)
