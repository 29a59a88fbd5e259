"""Stripe's sums beside ours. Differences stay on a list until they are gone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal

import stripe
from django.db import transaction
from django.db.models.functions import Now

from billing.charging.machine import InvoiceState
from billing.hooks import Actor, audit
from billing.ids import TENANT, encode
from billing.invoices.models import Invoice
from billing.months import window
from billing.running import going_on
from billing.stripe.amounts import minor_units
from billing.stripe.connecting import connect
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
        with _going_on(
            "compare usage with Stripe", tenant_id=str(customer.tenant_id), month=f"{month:%Y-%m}"
        ):
            found += _compare_tenant(client, customer, month)
    return found


@contextmanager
def _going_on(what: str, **names: str) -> Iterator[None]:
    """As `going_on`; that Stripe is away ends the comparison."""
    away: stripe.APIConnectionError | None = None
    with going_on(what, **names):
        try:
            yield
        except stripe.APIConnectionError as error:
            away = error
    if away is not None:
        raise away


def _compare_tenant(client: stripe.StripeClient, customer: StripeCustomer, month: date) -> int:
    found = 0
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
        with _going_on("compare an invoice with Stripe", invoice=invoice.number):
            found += _compare_invoice(client, invoice)
    return found


def _compare_invoice(client: stripe.StripeClient, invoice: Invoice) -> bool:
    ours = f"{_STATES[InvoiceState(invoice.state)]} {_minor(invoice.total, invoice.currency)}"
    row = StripeInvoice.objects.filter(pk=invoice.pk).first()
    theirs = "none"
    if row is not None:
        there = client.v1.invoices.retrieve(row.stripe_id)
        theirs = f"{there.status} {there.total}"
        StripeInvoice.objects.filter(pk=invoice.pk).update(state=there.status or "", updated_at=Now())
    return differ(kind=INVOICE, subject=invoice.number, tenant_id=invoice.tenant_id, ours=ours, theirs=theirs)


@transaction.atomic
def settle_difference(*, difference_id: int, actor: Actor, reason: str) -> bool:
    """A person has looked into it, and there is nothing more to do; False: it was settled before."""
    row = StripeDifference.objects.select_for_update().filter(pk=difference_id, settled_at=None).first()
    if row is None:
        return False
    StripeDifference.objects.filter(pk=row.pk).update(settled_at=Now())
    audit(
        action="stripe_difference.settle", subject=f"{row.kind} {row.subject}"[:200], tenant_id=row.tenant_id,
        actor=actor, reason=reason, before={"ours": row.ours, "theirs": row.theirs},
    )  # fmt: skip
    return True


def _minor(amount: Decimal, currency: str) -> str:
    return str(minor_units(amount, currency))
