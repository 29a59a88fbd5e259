"""What the API shows of invoices. Amounts are text."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from rest_framework import serializers

from billing.charging.money import quantize
from billing.ids import TENANT, encode
from billing.invoices.drafting import payable, stored_lines
from billing.invoices.lines import Line, described, unit_price
from billing.invoices.models import CreditNote, Invoice
from controlplane.api.documents import Document


class InvoiceLineDocument(Document):
    """`quantity` units of the metric; `exact` is unrounded, `amount` what counts."""

    n = serializers.IntegerField()
    kind = serializers.CharField()
    description = serializers.CharField()
    metric = serializers.CharField()
    region_policy = serializers.CharField()
    start = serializers.DateField()
    end = serializers.DateField()
    tier = serializers.IntegerField(allow_null=True)
    quantity = serializers.IntegerField()
    unit_price = serializers.CharField()
    price_book = serializers.CharField()
    exact = serializers.CharField()
    amount = serializers.CharField()


class CreditedLineDocument(Document):
    n = serializers.IntegerField()
    amount = serializers.CharField()


class CreditNoteDocument(Document):
    credit_note_id = serializers.CharField()
    number = serializers.CharField()
    invoice_id = serializers.CharField()
    currency = serializers.CharField()
    lines = CreditedLineDocument(many=True)
    net = serializers.CharField()
    taxes = serializers.CharField()
    total = serializers.CharField()
    reason = serializers.CharField()
    created_at = serializers.DateTimeField()


class InvoiceDocument(Document):
    """`due` is what is still to be paid; `payment_url` a page to pay it at, where there is one."""

    invoice_id = serializers.CharField()
    tenant_id = serializers.CharField()
    number = serializers.CharField(allow_null=True)
    state = serializers.CharField()
    period_start = serializers.DateField()
    period_end = serializers.DateField()
    currency = serializers.CharField()
    net = serializers.CharField()
    taxes = serializers.CharField()
    total = serializers.CharField()
    credited = serializers.CharField()
    due = serializers.CharField()
    due_on = serializers.DateField(allow_null=True)
    finalized_at = serializers.DateTimeField(allow_null=True)
    settled_at = serializers.DateTimeField(allow_null=True)
    payment_url = serializers.CharField(allow_null=True)
    digest = serializers.CharField()


class OneInvoiceDocument(InvoiceDocument):
    recipient = serializers.DictField()
    lines = InvoiceLineDocument(many=True)
    credit_notes = CreditNoteDocument(many=True)


class UsedDayDocument(Document):
    day = serializers.DateField()
    cell = serializers.CharField()
    quantity = serializers.IntegerField()


class MeterRecordDocument(Document):
    minute = serializers.DateTimeField()
    cell = serializers.CharField()
    store = serializers.IntegerField()
    epoch = serializers.IntegerField()
    host = serializers.CharField()
    quantity = serializers.IntegerField(help_text="Of a correction, what it adds to its record.")
    correction_id = serializers.CharField(allow_null=True, help_text="Null: the record itself.")
    reason = serializers.CharField(allow_null=True, help_text="Why it was corrected.")


class LineUsageDocument(Document):
    """Without `day` the line's usage days, with it that day's meter records, a page at a time."""

    line = InvoiceLineDocument()
    days = UsedDayDocument(many=True)
    records = MeterRecordDocument(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class StripeDifferenceDocument(Document):
    tenant_id = serializers.CharField(allow_null=True)
    kind = serializers.CharField()
    subject = serializers.CharField()
    ours = serializers.CharField()
    theirs = serializers.CharField()
    found_at = serializers.DateTimeField()
    settled_at = serializers.DateTimeField(allow_null=True)


def instant(value: Any) -> Any:
    return serializers.DateTimeField(allow_null=True).to_representation(value) if value else None


def money(amount: Decimal, currency: str) -> str:
    return f"{quantize(amount, currency):f}"


def show_line(line: Line) -> dict[str, Any]:
    return {
        "n": line.n,
        "kind": line.kind,
        "description": described(line),
        "metric": line.metric,
        "region_policy": line.region_policy,
        "start": line.start,
        "end": line.end,
        "tier": line.tier,
        "quantity": line.quantity,
        "unit_price": unit_price(line),
        "price_book": line.book,
        "exact": line.exact,
        "amount": line.amount,
    }


def show_credit_note(note: CreditNote) -> dict[str, Any]:
    return {
        "credit_note_id": note.public_id,
        "number": note.number,
        "invoice_id": note.invoice.public_id,
        "currency": note.currency,
        "lines": note.lines,
        "net": money(note.net, note.currency),
        "taxes": money(note.taxes, note.currency),
        "total": money(note.total, note.currency),
        "reason": note.reason,
        "created_at": instant(note.created_at),
    }


def show_invoice(invoice: Invoice) -> dict[str, Any]:
    currency = invoice.currency
    at_stripe = getattr(invoice, "stripe", None)
    return {
        "invoice_id": invoice.public_id,
        "tenant_id": encode(TENANT, invoice.tenant_id),
        "number": invoice.number or None,
        "state": invoice.state,
        "period_start": invoice.period_start.isoformat(),
        "period_end": invoice.period_end.isoformat(),
        "currency": currency,
        "net": money(invoice.net, currency),
        "taxes": money(invoice.taxes, currency),
        "total": money(invoice.total, currency),
        "credited": money(invoice.credited, currency),
        "due": money(payable(invoice), currency),
        "due_on": invoice.due_on.isoformat() if invoice.due_on else None,
        "finalized_at": instant(invoice.finalized_at),
        "settled_at": instant(invoice.settled_at),
        "payment_url": at_stripe.payment_url or None if at_stripe else None,
        "digest": invoice.digest,
    }


def show_one_invoice(invoice: Invoice) -> dict[str, Any]:
    notes = invoice.credit_notes.select_related("invoice").order_by("sequence")
    return {
        **show_invoice(invoice),
        "recipient": invoice.recipient,
        "lines": [show_line(line) for line in stored_lines(invoice)],
        "credit_notes": [show_credit_note(note) for note in notes],
    }
