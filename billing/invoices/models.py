"""Invoices as stored. Triggers keep what is numbered as it is (`billing/sql/invoice_schema.sql`)."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from billing.charging.machine import NUMBERED, InvoiceState
from billing.ids import CREDIT_NOTE, INVOICE, encode, new_id

STATES = [(s.value, s.value) for s in InvoiceState]


class NumberSeries(models.Model):
    """The last number an issuer gave. Locked by whoever takes the next one until that commits, so a
    number is given exactly if its document exists."""

    id = models.BigAutoField(primary_key=True)
    issuer = models.CharField(max_length=60)
    kind = models.CharField(max_length=12)  # invoice, credit_note
    last = models.BigIntegerField(default=0)

    class Meta:
        db_table = "billing_number_series"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["issuer", "kind"], name="number_series_once")
        ]

    def __str__(self) -> str:
        return f"{self.issuer} {self.kind}: {self.last}"


class Invoice(models.Model):
    """What a tenant is to pay for a period. `InvoiceState` says what may happen to it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant_id = models.UUIDField()
    period_start = models.DateField()
    period_end = models.DateField()  # half-open
    state = models.CharField(max_length=14, choices=STATES, default=InvoiceState.DRAFT)
    currency = models.CharField(max_length=3)
    issuer = models.CharField(max_length=60)
    sequence = models.BigIntegerField(null=True, blank=True)  # of the issuer, from 1
    number = models.CharField(max_length=40, blank=True, default="")  # as people write it
    net = models.DecimalField(max_digits=24, decimal_places=3, default=0)
    taxes = models.DecimalField(max_digits=24, decimal_places=3, default=0)
    total = models.DecimalField(max_digits=24, decimal_places=3, default=0)
    credited = models.DecimalField(max_digits=24, decimal_places=3, default=0)  # by credit notes
    # Who is billed, as it was when the invoice became final: name, address, tax_id, emails.
    recipient = models.JSONField(default=dict)
    # What it was made from: books, contracts, taxes, used metrics without a price.
    basis = models.JSONField(default=dict)
    digest = models.CharField(max_length=64, blank=True, default="")  # SHA-256 of the lines
    created_at = models.DateTimeField(db_default=Now())
    finalized_at = models.DateTimeField(null=True, blank=True)
    due_on = models.DateField(null=True, blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)  # paid, void or given up

    class Meta:
        db_table = "billing_invoice"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant_id", "period_start"],
                condition=~Q(state=InvoiceState.VOID),
                name="invoice_once_per_period",
            ),
            models.UniqueConstraint(fields=["issuer", "sequence"], name="invoice_number_once"),
            models.CheckConstraint(
                condition=Q(state=InvoiceState.DRAFT, sequence=None, finalized_at=None)
                | Q(state__in=sorted(NUMBERED), sequence__gte=1, finalized_at__isnull=False),
                name="invoice_numbered_when_final",
            ),
            models.CheckConstraint(
                condition=Q(credited__gte=0, credited__lte=models.F("total")) | Q(credited=0),
                name="invoice_credited_at_most",
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant_id", "id"], name="invoice_of_tenant")]

    def __str__(self) -> str:
        return self.number or self.public_id

    @property
    def public_id(self) -> str:
        return encode(INVOICE, self.id)


class NothingDue(models.Model):
    """A closed month that came to nothing: nobody looks at it again by itself. Whoever asks for its
    draft has it looked at anew."""

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField()
    month = models.DateField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_nothing_due"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant_id", "month"], name="nothing_due_once")
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.month:%Y-%m}"


class InvoiceLine(models.Model):
    """One line, as `billing.charging.charge` gave it. Exact amounts are text: they are never cut."""

    id = models.BigAutoField(primary_key=True)
    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="lines")
    n = models.IntegerField()  # from 1
    kind = models.CharField(max_length=12)  # usage, minimum, adjustment, tax
    metric = models.CharField(max_length=80)  # or the tax's name
    region_policy = models.CharField(max_length=20, blank=True)
    start = models.DateField()
    end = models.DateField()
    tier = models.IntegerField(null=True, blank=True)  # from 0; the included part is -1
    quantity = models.DecimalField(max_digits=30, decimal_places=0)  # units of the metric
    priced = models.DecimalField(max_digits=30, decimal_places=0, null=True)  # units or packages
    unit_amount = models.TextField(blank=True, default="")
    per = models.BigIntegerField(null=True, blank=True)
    book = models.CharField(max_length=80, blank=True, default="")
    exact = models.TextField()
    amount = models.DecimalField(max_digits=24, decimal_places=3)

    class Meta:
        db_table = "billing_invoice_line"
        ordering: ClassVar = ["n"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["invoice", "n"], name="invoice_line_once")]

    def __str__(self) -> str:
        return f"{self.n}: {self.metric} {self.amount}"


class CreditNote(models.Model):
    """Takes back a part, or all, of an invoice that is final. Append-only and numbered, too."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="credit_notes")
    tenant_id = models.UUIDField()
    issuer = models.CharField(max_length=60)
    sequence = models.BigIntegerField()
    number = models.CharField(max_length=40)
    currency = models.CharField(max_length=3)
    # [{"n": 3, "amount": "1.00"}]: what is taken back of the invoice's lines; taxes are lines, too.
    lines = models.JSONField()
    net = models.DecimalField(max_digits=24, decimal_places=3)
    taxes = models.DecimalField(max_digits=24, decimal_places=3)
    total = models.DecimalField(max_digits=24, decimal_places=3)
    reason = models.TextField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_credit_note"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["issuer", "sequence"], name="credit_note_number_once"),
            models.CheckConstraint(condition=Q(total__gt=0), name="credit_note_gives_back"),
        ]

    def __str__(self) -> str:
        return self.number

    @property
    def public_id(self) -> str:
        return encode(CREDIT_NOTE, self.id)


class SentMail(models.Model):
    """A mail that went out, by what it was about: asking again sends nothing. Written in the
    transaction that sends, so that a second sender waits for the first."""

    key = models.CharField(max_length=160, primary_key=True)
    tenant_id = models.UUIDField()
    sent_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "billing_sent_mail"

    def __str__(self) -> str:
        return self.key
