"""/v1/invoices, /v1/admin/invoices"""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from billing.charging.machine import InvoiceState
from billing.ids import CREDIT_NOTE, INVOICE
from billing.invoices import drafting, settling, tracing
from billing.invoices.lines import Line
from billing.invoices.models import CreditNote, Invoice
from billing.invoices.pdf import credit_note_pdf, invoice_pdf
from billing.stripe.models import StripeDifference
from cells.contract import Scope
from controlplane.api.base import ApiView
from controlplane.api.documents import page_of
from controlplane.api.forms import Because
from controlplane.api.idempotency import once
from controlplane.api.invoice_documents import (
    CreditNoteDocument,
    InvoiceDocument,
    LineUsageDocument,
    OneInvoiceDocument,
    StripeDifferenceDocument,
    show_credit_note,
    show_invoice,
    show_line,
    show_one_invoice,
)
from controlplane.api.money_forms import CreditInvoice, DraftInvoice
from controlplane.api.pagination import decode_cursor, encode_cursor, keyset_page, limit_of
from controlplane.api.permissions import needs
from controlplane.api.problems import bad_parameter
from controlplane.api.views.operators import OperatorView
from controlplane.api.views.price_books import month_named, named, tenant_in_body
from controlplane.errors import Conflicting, NotFound
from controlplane.identity import TENANT, encode
from controlplane.tenants.models import tenant_uuid

InvoicePage = page_of(InvoiceDocument)
PDF = {(200, "application/pdf"): OpenApiTypes.BINARY}


def _paper(content: bytes, name: str) -> HttpResponse:
    headers = {"Content-Disposition": f'inline; filename="{name}.pdf"'}
    return HttpResponse(content, content_type="application/pdf", headers=headers)


def _states(request: Request) -> dict[str, Any]:
    state = request.query_params.get("state")
    if state is None:
        return {}
    if state not in list(InvoiceState):
        raise bad_parameter("state", f"one of {', '.join(InvoiceState)}")
    return {"state": state}


class _Mine(ApiView):
    """A tenant sees its invoices once they are numbered; drafts are operators' own."""

    scopes = needs(GET=Scope.USAGE_READ)

    def invoices(self) -> QuerySet[Invoice]:
        return Invoice.objects.select_related("stripe").filter(
            tenant_id=self.tenant_id, sequence__isnull=False
        )

    def invoice(self, invoice_id: str) -> Invoice:
        found = self.invoices().filter(pk=named(INVOICE, invoice_id, "invoice")).first()
        if found is None:
            raise NotFound("no such invoice")
        return found


class InvoicesView(_Mine):
    parameters = frozenset({"limit", "cursor", "state"})

    @extend_schema(operation_id="list_invoices", responses=InvoicePage)
    def get(self, request: Request) -> Response:
        """Your invoices, newest first."""
        rows = self.invoices().filter(**_states(request))
        return keyset_page(request, rows, ["id"], show_invoice, newest_first=True)


class InvoiceView(_Mine):
    @extend_schema(operation_id="get_invoice", responses=OneInvoiceDocument)
    def get(self, request: Request, invoice_id: str) -> Response:
        """One invoice with its lines and credit notes."""
        return Response(show_one_invoice(self.invoice(invoice_id)))


class InvoicePdfView(_Mine):
    @extend_schema(operation_id="get_invoice_pdf", responses=PDF)
    def get(self, request: Request, invoice_id: str) -> HttpResponse:
        """The invoice as PDF; the same bytes each time."""
        invoice = self.invoice(invoice_id)
        return _paper(invoice_pdf(invoice, drafting.stored_lines(invoice)), invoice.number)


class CreditNotePdfView(_Mine):
    @extend_schema(operation_id="get_credit_note_pdf", responses=PDF)
    def get(self, request: Request, invoice_id: str, credit_note_id: str) -> HttpResponse:
        """A credit note as PDF."""
        invoice = self.invoice(invoice_id)
        note = (
            CreditNote.objects.select_related("invoice")
            .filter(invoice=invoice, pk=named(CREDIT_NOTE, credit_note_id, "credit note"))
            .first()
        )
        if note is None:
            raise NotFound("no such credit note")
        return _paper(credit_note_pdf(note, drafting.stored_lines(invoice)), note.number)


class LineUsageView(_Mine):
    parameters = frozenset({"limit", "cursor", "day"})

    @extend_schema(operation_id="get_invoice_line_usage", responses=LineUsageDocument)
    def get(self, request: Request, invoice_id: str, n: str) -> Response:
        """The usage days that a line stands for; with `day`, that day's meter records."""
        return trace(request, self.invoice(invoice_id), n)


def trace(request: Request, invoice: Invoice, n: str) -> Response:
    """What a line rests on, for the tenant and for operators."""
    number = int(n) if n.isascii() and n.isdigit() and len(n) < 10 else 0
    line = tracing.find_line(invoice, number)
    shown: dict[str, Any] = {
        "line": show_line(_stored(invoice, line.n)),
        "days": [],
        "records": [],
        "next_cursor": None,
    }
    text = request.query_params.get("day")
    if text is None:
        shown["days"] = [
            {"day": used.day.isoformat(), "cell": used.cell, "quantity": used.quantity}
            for used in tracing.days_of_line(invoice, line)
        ]
        return Response(shown)
    try:
        day = date.fromisoformat(text)
    except ValueError as e:
        raise bad_parameter("day", "a day: YYYY-MM-DD") from e
    limit = limit_of(request)
    after = _mark(request.query_params["cursor"]) if "cursor" in request.query_params else None
    found = tracing.records_of_day(invoice, line, day, after=after, limit=limit + 1)
    if len(found) > limit:
        found = found[:limit]
        shown["next_cursor"] = encode_cursor(tracing.mark_text(found[-1].mark))
    shown["records"] = [
        {
            "minute": f"{r.minute.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "cell": r.cell,
            "store": r.store,
            "epoch": r.epoch,
            "host": r.host,
            "quantity": r.quantity,
            "correction_id": r.correction or None,
            "reason": r.reason or None,
        }
        for r in found
    ]
    return Response(shown)


def _stored(invoice: Invoice, n: int) -> Line:
    return next(line for line in drafting.stored_lines(invoice) if line.n == n)


def _mark(cursor: str) -> tracing.Mark:
    found = tracing.mark_of(decode_cursor(cursor, 6))
    if found is None:
        raise bad_parameter("cursor", "not a cursor of this list")
    return found


# --- operators -----------------------------------------------------------------------------
class AllInvoicesView(OperatorView):
    scopes = needs(GET=Scope.OPERATOR, POST=Scope.OPERATOR)
    parameters = frozenset({"limit", "cursor", "state", "tenant_id", "month"})
    idempotent_post = True

    @extend_schema(operation_id="list_all_invoices", responses=InvoicePage)
    def get(self, request: Request) -> Response:
        """All tenants' invoices, drafts among them, newest first."""
        rows = Invoice.objects.select_related("stripe").filter(**_states(request))
        if "tenant_id" in request.query_params:
            tenant_id = tenant_uuid(request.query_params["tenant_id"])
            if tenant_id is None:
                raise bad_parameter("tenant_id", "not a tenant's id")
            rows = rows.filter(tenant_id=tenant_id)
        if "month" in request.query_params:
            try:
                month = datetime.strptime(request.query_params["month"], "%Y-%m").replace(tzinfo=UTC)
            except ValueError as e:
                raise bad_parameter("month", "a month: YYYY-MM") from e
            rows = rows.filter(period_start=month.date())
        return keyset_page(request, rows, ["id"], show_invoice, newest_first=True)

    @extend_schema(operation_id="draft_invoice", request=DraftInvoice, responses={201: OneInvoiceDocument})
    def post(self, request: Request) -> Response:
        """The draft of a closed month; the one that is there, if there is one."""
        form = self.read(DraftInvoice)
        tenant_id = tenant_in_body(form["tenant_id"])
        month = month_named(form["month"], "/month")

        def create() -> Response:
            made = drafting.open_draft(
                tenant_id=tenant_id, month=month, actor=self.actor, reason=form["reason"]
            )
            if made is None:
                raise Conflicting(f"nothing is to be charged for {month:%Y-%m}")
            location = f"/v1/admin/invoices/{made.public_id}"
            return Response(show_one_invoice(made), 201, headers={"Location": location})

        return once(request, create)


class _AnyInvoice(OperatorView):
    def id_of(self, invoice_id: str) -> uuid.UUID:
        return named(INVOICE, invoice_id, "invoice")

    def found(self, invoice_id: str) -> Invoice:
        """The invoice; that an operator reads it is in its tenant's audit log."""
        invoice = drafting.find_invoice(self.id_of(invoice_id))
        self.reads_of(invoice.tenant_id)
        return invoice

    def shown(self, invoice_id: str) -> Response:
        return Response(show_one_invoice(self.found(invoice_id)))


class AnyInvoiceView(_AnyInvoice):
    scopes = needs(GET=Scope.OPERATOR)

    @extend_schema(operation_id="get_any_invoice", responses=OneInvoiceDocument)
    def get(self, request: Request, invoice_id: str) -> Response:
        """One invoice with its lines and credit notes."""
        return self.shown(invoice_id)


class AnyInvoicePdfView(_AnyInvoice):
    scopes = needs(GET=Scope.OPERATOR)

    @extend_schema(operation_id="get_any_invoice_pdf", responses=PDF)
    def get(self, request: Request, invoice_id: str) -> HttpResponse:
        """The invoice as PDF; a draft says that it is one."""
        invoice = self.found(invoice_id)
        return _paper(invoice_pdf(invoice, drafting.stored_lines(invoice)), invoice.number or "draft")


class AnyLineUsageView(_AnyInvoice):
    scopes = needs(GET=Scope.OPERATOR)
    parameters = frozenset({"limit", "cursor", "day"})

    @extend_schema(operation_id="get_any_invoice_line_usage", responses=LineUsageDocument)
    def get(self, request: Request, invoice_id: str, n: str) -> Response:
        """The usage days that a line stands for; with `day`, that day's meter records."""
        return trace(request, self.found(invoice_id), n)


class _InvoiceVerb(_AnyInvoice):
    scopes = needs(POST=Scope.OPERATOR)
    act: Any = None

    @extend_schema(request=Because, responses=OneInvoiceDocument)
    def post(self, request: Request, invoice_id: str) -> Response:
        type(self).act(
            invoice_id=self.id_of(invoice_id),
            now=datetime.now(UTC),
            actor=self.actor,
            reason=self.read(Because)["reason"],
        )
        return self.shown(invoice_id)


@extend_schema_view(
    post=extend_schema(
        operation_id="finalize_invoice",
        description="Computes a draft a last time, numbers it and sends it. It never changes again.",
    )
)
class FinalizeInvoiceView(_InvoiceVerb):
    act = staticmethod(settling.finalize)


@extend_schema_view(post=extend_schema(operation_id="pay_invoice", description="It was paid in full."))
class PayInvoiceView(_InvoiceVerb):
    act = staticmethod(settling.pay)


@extend_schema_view(
    post=extend_schema(
        operation_id="void_invoice",
        description="Wrong as a whole, not to be paid. It keeps its number; its month is drafted anew only if"
        " asked for.",
    )
)
class VoidInvoiceView(_InvoiceVerb):
    act = staticmethod(settling.void)


@extend_schema_view(
    post=extend_schema(operation_id="give_up_invoice", description="Nobody expects the money any more.")
)
class GiveUpInvoiceView(_InvoiceVerb):
    act = staticmethod(settling.give_up)


class CreditInvoiceView(_AnyInvoice):
    scopes = needs(POST=Scope.OPERATOR)
    idempotent_post = True

    @extend_schema(operation_id="credit_invoice", request=CreditInvoice, responses={201: CreditNoteDocument})
    def post(self, request: Request, invoice_id: str) -> Response:
        """A credit note: takes back amounts of lines, taxes with them; or all that is left."""
        form = self.read(CreditInvoice)

        def create() -> Response:
            note = settling.credit(
                invoice_id=self.id_of(invoice_id), now=datetime.now(UTC), actor=self.actor, **form
            )
            return Response(show_credit_note(note), 201)

        return once(request, create)


class StripeDifferencesView(OperatorView):
    scopes = needs(GET=Scope.OPERATOR)
    parameters = frozenset({"limit", "cursor"})

    @extend_schema(operation_id="list_stripe_differences", responses=page_of(StripeDifferenceDocument))
    def get(self, request: Request) -> Response:
        """Where Stripe's sums and ours differ, or did, newest first."""

        def show(row: StripeDifference) -> dict[str, Any]:
            return {
                **StripeDifferenceDocument(row).data,
                "tenant_id": encode(TENANT, row.tenant_id) if row.tenant_id else None,
            }

        return keyset_page(request, StripeDifference.objects.all(), ["id"], show, newest_first=True)
