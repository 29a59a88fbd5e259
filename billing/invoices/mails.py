"""Mails with invoices and credit notes. Outbox handlers: tried again while the server is away."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from email.utils import parseaddr

import structlog
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.template.loader import render_to_string

from billing.charging.money import quantize
from billing.hooks import BILLING, audit
from billing.invoices.drafting import payable, stored_lines
from billing.invoices.models import CreditNote, Invoice, SentMail
from billing.invoices.pdf import credit_note_pdf, invoice_pdf
from billing.pricing.accounts import account_of

_LOG = structlog.get_logger(__name__)


def mail_invoice(subject: str) -> None:
    """Sends a final invoice, once."""
    invoice = Invoice.objects.filter(pk=uuid.UUID(subject)).first()
    if invoice is None or not invoice.number:
        return
    send_once(
        key=f"invoice:{invoice.id}",
        tenant_id=invoice.tenant_id,
        to=_addresses(invoice),
        subject=f"Invoice {invoice.number} from {invoice.basis['issuer']['name']}",
        text=render_to_string(
            "billing/mail/invoice.txt",
            {"invoice": invoice, "total": quantize(invoice.total, invoice.currency), "due": payable(invoice)},
        ),
        attach=lambda: (f"{invoice.number}.pdf", invoice_pdf(invoice, stored_lines(invoice))),
    )


def mail_credit_note(subject: str) -> None:
    """Sends a credit note, once."""
    note = CreditNote.objects.select_related("invoice").filter(pk=uuid.UUID(subject)).first()
    if note is None:
        return
    send_once(
        key=f"credit_note:{note.id}",
        tenant_id=note.tenant_id,
        to=_addresses(note.invoice),
        subject=f"Credit note {note.number} from {note.invoice.basis['issuer']['name']}",
        text=render_to_string(
            "billing/mail/credit_note.txt", {"note": note, "total": quantize(note.total, note.currency)}
        ),
        attach=lambda: (f"{note.number}.pdf", credit_note_pdf(note, stored_lines(note.invoice))),
    )


def _addresses(invoice: Invoice) -> Sequence[str]:
    """Of whom the invoice names; if it names nobody, of whom the account does now."""
    return invoice.recipient["emails"] or account_of(invoice.tenant_id).emails


@transaction.atomic
def send_once(
    *,
    key: str,
    tenant_id: uuid.UUID,
    to: Sequence[str],
    subject: str,
    text: str,
    attach: Callable[[], tuple[str, bytes]] | None = None,
) -> bool:
    """Sends what was not sent yet; says whether it did. Where there is nobody to send it to, that is in
    the audit log, and asking again may find somebody. Should the process die between the server's
    yes and the commit, it is sent again under the same Message-ID, by which readers know it."""
    if not to:
        _LOG.error("nobody to send a mail to", key=key, tenant_id=str(tenant_id))
        audit(
            action="mail.unaddressed", subject=key, tenant_id=tenant_id, actor=BILLING,
            reason="there is neither a billing address nor an owner",
        )  # fmt: skip
        return False
    _, fresh = SentMail.objects.get_or_create(key=key, defaults={"tenant_id": tenant_id})
    if not fresh:
        return False
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    message = EmailMessage(
        " ".join(subject.split()),
        text,
        to=list(to),
        headers={"Message-ID": f"<{key.replace(':', '.').replace('/', '.')}@{domain}>"},
    )
    if attach is not None:
        name, content = attach()
        message.attach(name, content, "application/pdf")
    message.send()
    return True
