"""Invoices as their tenant sees them: numbered ones, their lines down to meter records, PDFs."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import Http404, HttpResponse

from billing.charging.charge import ADJUSTMENT, USAGE
from billing.charging.machine import NUMBERED, InvoiceState
from billing.charging.money import quantize
from billing.ids import CREDIT_NOTE, INVOICE, decode
from billing.invoices import tracing
from billing.invoices.drafting import payable, stored_lines
from billing.invoices.lines import Line, described, unit_price
from billing.invoices.models import CreditNote, Invoice
from billing.invoices.pdf import credit_note_pdf, invoice_pdf
from billing.pricing.accounts import account_of
from billing.refusals import NotFound
from cells.contract import Scope
from controlplane.console.lists import PAGE, asked, next_page
from controlplane.console.visit import Visit, tenant_page

#: state → (word, look, sign)
WORDS = {
    InvoiceState.DRAFT: ("Draft", "mute", "○"),
    InvoiceState.FINAL: ("To be paid", "wait", "◔"),
    InvoiceState.PAID: ("Paid", "good", "●"),
    InvoiceState.VOID: ("Void", "mute", "—"),
    InvoiceState.UNCOLLECTIBLE: ("Not collected", "bad", "✕"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """An invoice as pages show it."""

    invoice: Invoice
    today: date

    @property
    def id(self) -> str:
        return self.invoice.public_id

    @property
    def state(self) -> InvoiceState:
        return InvoiceState(self.invoice.state)

    @property
    def late(self) -> bool:
        return (
            self.state is InvoiceState.FINAL
            and self.invoice.due_on is not None
            and self.invoice.due_on < self.today
        )

    @property
    def open(self) -> bool:
        """Whether anything is still to be paid."""
        return payable(self.invoice) > 0

    @property
    def word(self) -> str:
        return "Overdue" if self.late else WORDS[self.state][0]

    @property
    def look(self) -> str:
        return "bad" if self.late else WORDS[self.state][1]

    @property
    def sign(self) -> str:
        return "✕" if self.late else WORDS[self.state][2]

    @property
    def said(self) -> str:
        """What the state means for its reader."""
        match self.state:
            case InvoiceState.DRAFT:
                return "it has no number yet, and may still change"
            case InvoiceState.FINAL:
                return f"due on {self.invoice.due_on:%d %B %Y}"
            case InvoiceState.PAID:
                return "nothing is owed" if self.invoice.total > 0 else "nothing was to be paid"
            case InvoiceState.VOID:
                return "not to be paid; another invoice may stand for its month"
            case _:
                return "the money is not expected any more"

    @property
    def net(self) -> str:
        return self._shown(self.invoice.net)

    @property
    def taxes(self) -> str:
        return self._shown(self.invoice.taxes)

    @property
    def total(self) -> str:
        return self._shown(self.invoice.total)

    @property
    def due(self) -> str:
        return self._shown(payable(self.invoice))

    def _shown(self, amount: Any) -> str:
        return f"{quantize(amount, self.invoice.currency):,}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownLine:
    """A line in words."""

    n: int
    words: str
    days: str
    metric: str
    region_policy: str
    quantity: int
    unit_price: str
    amount: str
    book: str
    traced: bool  # whether usage stands behind it


def shown_line(line: Line) -> ShownLine:
    """A line as pages show it."""
    first, last = date.fromisoformat(line.start), date.fromisoformat(line.end) - timedelta(days=1)
    return ShownLine(
        n=line.n,
        words=described(line),
        days=f"{first.day} to {last.day} {last:%b %Y}",
        metric=line.metric,
        region_policy=line.region_policy,
        quantity=line.quantity,
        unit_price=unit_price(line),
        amount=line.amount,
        book=line.book,
        traced=line.kind in (USAGE, ADJUSTMENT) and bool(line.metric),
    )


def _mine(visit: Visit) -> QuerySet[Invoice]:
    """A tenant sees its invoices once they are numbered."""
    return Invoice.objects.select_related("stripe").filter(tenant_id=visit.tenant.id, sequence__isnull=False)


def _invoice(visit: Visit, invoice_id: str) -> Invoice:
    found = _mine(visit).filter(pk=_uuid(INVOICE, invoice_id)).first()
    if found is None:
        raise Http404
    return found


def _uuid(prefix: str, text: str) -> uuid.UUID:
    found = decode(prefix, text)
    if found is None:
        raise Http404
    return found


@tenant_page(Scope.USAGE_READ)
def invoice_list(visit: Visit) -> HttpResponse:
    """GET …/invoices/?state=&cursor="""
    filters = asked(visit, "state")
    rows = _mine(visit)
    if "state" in filters:
        rows = rows.filter(state=filters["state"])
    if cursor := visit.request.GET.get("cursor", ""):
        rows = rows.filter(pk__lt=_uuid(INVOICE, cursor))
    found = list(rows.order_by("-id")[: PAGE + 1])
    more, found = len(found) > PAGE, found[:PAGE]
    today = visit.now.date()
    return visit.page(
        "console/money/invoices.html",
        section="usage",
        tab="invoices",
        filters=filters,
        states=[state.value for state in InvoiceState if state in NUMBERED],
        invoices=[Row(invoice=invoice, today=today) for invoice in found],
        recipients=account_of(visit.tenant.id).emails,
        review_days=settings.BILLING_REVIEW_DAYS,
        next=next_page(visit, filters, found[-1].public_id if more else None),
        paged=bool(cursor),
    )


@tenant_page(Scope.USAGE_READ)
def invoice(visit: Visit, invoice_id: str) -> HttpResponse:
    """GET …/invoices/<id>/"""
    found = _invoice(visit, invoice_id)
    row = Row(invoice=found, today=visit.now.date())
    notes = list(found.credit_notes.order_by("sequence"))
    for note in notes:
        note.shown = f"{quantize(note.total, note.currency):,}"  # type: ignore[attr-defined]
    at_stripe = getattr(found, "stripe", None)
    return visit.page(
        "console/money/invoice.html",
        section="usage",
        tab="invoices",
        row=row,
        lines=[shown_line(line) for line in stored_lines(found)],
        notes=notes,
        payment_url=at_stripe.payment_url if at_stripe and row.open else "",
    )


@tenant_page(Scope.USAGE_READ)
def invoice_line(visit: Visit, invoice_id: str, n: int) -> HttpResponse:
    """GET …/invoices/<id>/lines/<n>: the days a line stands for."""
    found = _invoice(visit, invoice_id)
    try:
        line = tracing.find_line(found, min(n, 2**31 - 1))
    except NotFound:
        raise Http404 from None
    days = tracing.days_of_line(found, line)
    return visit.page(
        "console/money/line.html",
        section="usage",
        tab="invoices",
        row=Row(invoice=found, today=visit.now.date()),
        line=next(shown_line(each) for each in stored_lines(found) if each.n == line.n),
        days=days,
        sum=sum(used.quantity for used in days),
    )


@tenant_page(Scope.USAGE_READ)
def invoice_paper(visit: Visit, invoice_id: str) -> HttpResponse:
    """GET …/invoices/<id>/pdf"""
    found = _invoice(visit, invoice_id)
    return paper(invoice_pdf(found, stored_lines(found)), found.number)


@tenant_page(Scope.USAGE_READ)
def credit_note_paper(visit: Visit, invoice_id: str, note_id: str) -> HttpResponse:
    """GET …/invoices/<id>/credit-notes/<id>/pdf"""
    found = _invoice(visit, invoice_id)
    note = (
        CreditNote.objects.select_related("invoice")
        .filter(invoice=found, pk=_uuid(CREDIT_NOTE, note_id))
        .first()
    )
    if note is None:
        raise Http404
    return paper(credit_note_pdf(note, stored_lines(found)), note.number)


def paper(content: bytes, name: str) -> HttpResponse:
    """A PDF to be kept."""
    headers = {"Content-Disposition": f'attachment; filename="{name}.pdf"'}
    return HttpResponse(content, content_type="application/pdf", headers=headers)
