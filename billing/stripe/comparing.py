"""Stripe's sums beside ours. Differences stay on a list until they are gone."""

from __future__ import annotations

import uuid
from datetime import date
from decimal import Decimal

import stripe
from django.db.models.functions import Now

from billing.charging.machine import InvoiceState
from billing.ids import TENANT, encode
from billing.invoices.models import Invoice
from billing.months import window
from billing.stripe.connecting import connect
from billing.stripe.invoicing import minor_units
from billing.stripe.metering import told_sum, totals_of
from billing.stripe.models import StripeCursor, StripeCustomer, StripeDifference, StripeInvoice

USAGE = "usage"
INVOICE = "invoice"
METER_ERROR = "meter_error"
#: How Stripe calls the states of ours.
_STATES = {
    InvoiceState.FINAL: "open",
    InvoiceState.PAID: "paid",
    InvoiceState.VOID: "void",
    InvoiceState.UNCOLLECTIBLE: "uncollectible",
}


def differ(*, kind: str, subject: str, tenant_id: uuid.UUID | None, ours: str, theirs: str) -> bool:
    """Writes down what differs, or that it no longer does; says whether it does."""
    open_one = StripeDifference.objects.filter(kind=kind, subject=subject, settled_at=None)
    if ours == theirs:
        open_one.update(settled_at=Now())
        return False
    if not open_one.update(ours=ours, theirs=theirs):
        StripeDifference.objects.get_or_create(
            kind=kind, subject=subject, settled_at=None,
            defaults={"tenant_id": tenant_id, "ours": ours, "theirs": theirs},
        )  # fmt: skip
    return True


def compare_month(month: date) -> int:
    """Every tenant's usage and invoice of a month at Stripe beside ours; says how many differ."""
    client = connect()
    return _compare_usage(client, month) + _compare_invoices(client, month)


def _compare_usage(client: stripe.StripeClient, month: date) -> int:
    found = 0
    for customer in StripeCustomer.objects.order_by("tenant_id"):
        cursors = StripeCursor.objects.filter(tenant_id=customer.tenant_id, month=month)
        totals = totals_of(customer.tenant_id, month) if cursors else {}
        for cursor in cursors.order_by("metric", "region_policy"):
            theirs = told_sum(client, customer.customer, cursor)
            ours = totals.get((cursor.metric, cursor.region_policy), 0)
            if theirs == cursor.sent and cursor.sent <= ours and not _is_over(month, cursor):
                ours = theirs  # on its way: the next run tells the rest
            found += differ(
                kind=USAGE,
                subject=f"{encode(TENANT, cursor.tenant_id)} {month:%Y-%m} {cursor.metric}"
                f" {cursor.region_policy}",
                tenant_id=cursor.tenant_id,
                ours=str(ours),
                theirs=str(theirs),
            )
    return found


def _is_over(month: date, cursor: StripeCursor) -> bool:
    """Whether the month's usage is all told as far as it will be: its invoice is numbered."""
    start, _ = window(month)
    numbered = Invoice.objects.filter(
        tenant_id=cursor.tenant_id, period_start=start.date(), sequence__isnull=False
    )
    return numbered.exists()


def _compare_invoices(client: stripe.StripeClient, month: date) -> int:
    found = 0
    rows = Invoice.objects.filter(period_start=month, sequence__isnull=False, total__gt=0)
    for invoice in rows.order_by("sequence"):
        ours = f"{_STATES[InvoiceState(invoice.state)]} {_minor(invoice.total, invoice.currency)}"
        row = StripeInvoice.objects.filter(pk=invoice.pk).first()
        theirs = "none"
        if row is not None:
            there = client.v1.invoices.retrieve(row.stripe_id)
            theirs = f"{there.status} {there.total}"
            StripeInvoice.objects.filter(pk=invoice.pk).update(state=there.status or "", updated_at=Now())
        found += differ(
            kind=INVOICE, subject=invoice.number, tenant_id=invoice.tenant_id, ours=ours, theirs=theirs
        )
    return found


def _minor(amount: Decimal, currency: str) -> str:
    return str(minor_units(amount, currency))
