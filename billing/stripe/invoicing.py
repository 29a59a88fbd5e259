"""Our invoices at Stripe: made, finalised, settled and credited there as they are here."""

from __future__ import annotations

import uuid
from decimal import Decimal

import stripe
from django.db.models.functions import Now

from billing.charging.machine import InvoiceState
from billing.invoices.drafting import stored_lines
from billing.invoices.lines import Line, described
from billing.invoices.models import Invoice
from billing.stripe.amounts import minor_units
from billing.stripe.connecting import connect, is_connected
from billing.stripe.customers import ensure_customer
from billing.stripe.models import StripeInvoice

#: Stripe takes 250 items; further lines of ours become one.
_MOST_ITEMS = 240


def push_invoice(subject: str) -> None:
    """Outbox handler: brings Stripe's invoice to the state of ours. Whatever was done before is found
    again and not done twice."""
    if not is_connected():
        return
    invoice = Invoice.objects.filter(pk=uuid.UUID(subject)).first()
    if invoice is None or not invoice.number or invoice.total <= 0:
        return
    client = connect()
    row = StripeInvoice.objects.filter(pk=invoice.pk).first()
    try:
        there = _ensure(client, invoice, row)
        _bring(client, invoice, there)
    except (stripe.StripeError, ValueError) as error:
        StripeInvoice.objects.filter(pk=invoice.pk).update(error=str(error)[:500], updated_at=Now())
        raise


def _ensure(client: stripe.StripeClient, invoice: Invoice, row: StripeInvoice | None) -> stripe.Invoice:
    if row is not None:
        return client.v1.invoices.retrieve(row.stripe_id)
    customer = ensure_customer(client, invoice.tenant_id)
    there = _find(client, customer, invoice) or client.v1.invoices.create(
        {
            "customer": customer,
            "currency": invoice.currency.lower(),
            "collection_method": "send_invoice",
            "due_date": _due(invoice),
            "auto_advance": False,
            "pending_invoice_items_behavior": "exclude",
            "description": f"Clockhouse invoice {invoice.number}",
            "metadata": {"invoice_id": invoice.public_id, "number": invoice.number},
        },
        {"idempotency_key": f"invoice-{invoice.id}"},
    )
    StripeInvoice.objects.get_or_create(
        invoice=invoice, defaults={"stripe_id": there.id, "state": there.status or "draft"}
    )
    return there


def _due(invoice: Invoice) -> int:
    if invoice.finalized_at is None or invoice.due_on is None:
        raise ValueError(f"{invoice} is not final")
    days = (invoice.due_on - invoice.finalized_at.date()).days
    return int(invoice.finalized_at.timestamp()) + max(days, 1) * 86_400


def _find(client: stripe.StripeClient, customer: str, invoice: Invoice) -> stripe.Invoice | None:
    """One that a request made whose answer never came, longer ago than Stripe keeps its key."""
    for there in client.v1.invoices.list({"customer": customer, "limit": 100}).auto_paging_iter():
        if _meta(there.metadata, "invoice_id") == invoice.public_id:
            return there
    return None


def _meta(metadata: object, name: str) -> str | None:
    """A word of a resource's metadata; resources are no dictionaries."""
    return None if metadata is None else getattr(metadata, name, None)


def _bring(client: stripe.StripeClient, invoice: Invoice, there: stripe.Invoice) -> None:
    if there.status == "draft":
        _add_items(client, invoice, there)
        there = client.v1.invoices.finalize_invoice(
            there.id, {"auto_advance": False}, {"idempotency_key": f"finalize-{invoice.id}"}
        )
    _credit(client, invoice, there)
    there = client.v1.invoices.retrieve(there.id)
    if there.status in ("open", "uncollectible"):
        there = _settle(client, invoice, there)
    StripeInvoice.objects.filter(pk=invoice.pk).update(
        state=there.status or "", payment_url=there.hosted_invoice_url or "", error="", updated_at=Now()
    )


def _settle(client: stripe.StripeClient, invoice: Invoice, there: stripe.Invoice) -> stripe.Invoice:
    match InvoiceState(invoice.state):
        case InvoiceState.PAID:
            return client.v1.invoices.pay(
                there.id, {"paid_out_of_band": True}, {"idempotency_key": f"pay-{invoice.id}"}
            )
        case InvoiceState.VOID:
            return client.v1.invoices.void_invoice(
                there.id, options={"idempotency_key": f"void-{invoice.id}"}
            )
        case InvoiceState.UNCOLLECTIBLE if there.status == "open":
            return client.v1.invoices.mark_uncollectible(
                there.id, options={"idempotency_key": f"give-up-{invoice.id}"}
            )
        case _:
            return there


def _add_items(client: stripe.StripeClient, invoice: Invoice, there: stripe.Invoice) -> None:
    customer = ensure_customer(client, invoice.tenant_id)
    has = {
        _meta(item.metadata, "line")
        for item in client.v1.invoice_items.list({"invoice": there.id, "limit": 100}).auto_paging_iter()
    }
    for n, text, amount in _items(stored_lines(invoice)):
        if str(n) not in has:
            client.v1.invoice_items.create(
                {
                    "customer": customer,
                    "invoice": there.id,
                    "currency": invoice.currency.lower(),
                    "amount": minor_units(amount, invoice.currency),
                    "description": text,
                    "metadata": {"line": str(n)},
                },
                {"idempotency_key": f"item-{invoice.id}-{n}"},
            )


def _items(lines: list[Line]) -> list[tuple[int, str, Decimal]]:
    """(number, words, amount) of what is put on Stripe's invoice; lines of nothing are left out."""
    charged = [line for line in lines if Decimal(line.amount)]
    found = [(line.n, described(line), Decimal(line.amount)) for line in charged[:_MOST_ITEMS]]
    if rest := charged[_MOST_ITEMS:]:
        amount = sum((Decimal(line.amount) for line in rest), Decimal(0))
        found.append((rest[0].n, f"{len(rest)} further lines", amount))
    return found


def _credit(client: stripe.StripeClient, invoice: Invoice, there: stripe.Invoice) -> None:
    """Each credit note of ours as one there, in order."""
    notes = list(invoice.credit_notes.order_by("sequence"))
    if not notes or there.status not in ("open", "paid", "uncollectible"):
        return
    listed = client.v1.credit_notes.list({"invoice": there.id, "limit": 100})
    has = {_meta(note.metadata, "credit_note_id") for note in listed.auto_paging_iter()}
    for note in notes:
        if note.public_id not in has:
            amount = minor_units(note.total, note.currency)
            client.v1.credit_notes.create(
                {
                    "invoice": there.id,
                    "amount": amount,
                    **({"out_of_band_amount": amount} if there.status == "paid" else {}),
                    "memo": note.reason[:500],
                    "metadata": {"credit_note_id": note.public_id, "number": note.number},
                },
                {"idempotency_key": f"credit-{note.id}"},
            )
    StripeInvoice.objects.filter(pk=invoice.pk).update(credited=invoice.credited)
