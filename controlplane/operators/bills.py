"""Invoices of all tenants: drafts to be looked at, what can be done to each, and what it will do."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from billing.charging.charge import TAX
from billing.charging.machine import CREDITABLE, InvoiceState, allowed
from billing.charging.money import quantize
from billing.ids import INVOICE, decode
from billing.invoices import checking, settling
from billing.invoices.drafting import open_draft, payable, stored_lines
from billing.invoices.lines import described, unit_price
from billing.invoices.models import Invoice
from billing.invoices.pdf import invoice_pdf
from billing.pricing.accounts import account_of
from controlplane.adminsite import operator
from controlplane.errors import Invalid, Refused, invalid
from controlplane.operators.meters import named
from controlplane.operators.pages import act, operator_page, page
from controlplane.operators.reads import record_read
from controlplane.refusals import of_billing
from controlplane.tenants.models import Tenant

_PAGE = 50
_AMOUNT = re.compile(r"(?:0|[1-9][0-9]{0,11})(?:\.[0-9]{1,3})?")


@dataclass(frozen=True, kw_only=True)
class Move:
    """Something that can be done to an invoice. `words` say in numbers what it will do."""

    verb: str
    word: str
    words: str
    done: str
    use_case: Callable[..., Any]
    danger: bool = False


MOVES = {
    move.verb: move
    for move in (
        Move(
            verb="finalize", word="Finalise", done="It is final.", use_case=settling.finalize,
            words="Computes it a last time, gives it the next number, makes it due in {days} days and mails"
            " it to {mails}. It never changes again: what is wrong then is taken back by a credit note.",
        ),
        Move(
            verb="pay", word="Mark as paid", done="It is paid.", use_case=settling.pay,
            words="Says that {due} were paid in full. Nothing is collected by it.",
        ),
        Move(
            verb="void", word="Void", done="It is void.", use_case=settling.void, danger=True,
            words="Wrong as a whole: nothing of {total} is to be paid. It keeps its number, and its month may"
            " be drafted anew.",
        ),
        Move(
            verb="give_up", word="Give up", done="It is given up.", use_case=settling.give_up, danger=True,
            words="Nobody expects {due} any more. It may be paid all the same.",
        ),
    )
}  # fmt: skip


def moves_of(invoice: Invoice, days: int) -> list[Move]:
    """What can be done to an invoice now, in numbers."""
    state = InvoiceState(invoice.state)
    currency = invoice.currency
    told = {
        "days": days,
        "due": f"{payable(invoice):,} {currency}",
        "total": f"{quantize(invoice.total, currency):,} {currency}",
        "mails": ", ".join(account_of(invoice.tenant_id).emails) or "nobody: the tenant has no address",
    }
    return [
        replace(move, words=move.words.format(**told))
        for move in MOVES.values()
        if allowed(move.verb, state) and not (move.verb == "void" and invoice.credited)
    ]


@operator_page("GET", "POST")
def bill_list(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/invoices/?state=&month=&tenant=&after=; POST drafts a closed month."""
    if request.method == "POST":
        return _draft(request)
    asked = {name: request.GET.get(name, "").strip()[:48] for name in ("state", "month", "tenant")}
    invoices = Invoice.objects.order_by("-id")
    if asked["state"] in list(InvoiceState):
        invoices = invoices.filter(state=asked["state"])
    if asked["month"]:
        try:
            invoices = invoices.filter(period_start=_month(asked["month"]))
        except Invalid:
            messages.error(request, f"{asked['month']} is no month: YYYY-MM.")
    if asked["tenant"]:
        invoices = invoices.filter(tenant_id__in=Tenant.objects.filter(slug=asked["tenant"]).values("pk"))
    if after := request.GET.get("after", ""):
        invoices = invoices.filter(pk__lt=_uuid(after))
    found = list(invoices[: _PAGE + 1])
    more, found = len(found) > _PAGE, found[:_PAGE]
    return page(
        request,
        "bills.html",
        "Invoices",
        rows=[_shown(invoice) for invoice in named(found)],
        asked=asked,
        states=[state.value for state in InvoiceState],
        after=found[-1].public_id if more else None,
    )


def _shown(invoice: Invoice) -> dict[str, Any]:
    currency = invoice.currency
    return {
        "invoice": invoice,
        "total": f"{quantize(invoice.total, currency):,}",
        "net": f"{quantize(invoice.net, currency):,}",
        "taxes": f"{quantize(invoice.taxes, currency):,}",
        "credited": f"{quantize(invoice.credited, currency):,}",
        "due": f"{payable(invoice):,}",
    }


def _draft(request: HttpRequest) -> HttpResponse:
    tenant = Tenant.objects.filter(slug=request.POST.get("tenant", "").strip()).first()
    made: list[Invoice] = []
    try:
        if tenant is None:
            raise invalid("/tenant", "no tenant has this slug")
        month = _month(request.POST.get("month", ""))
        with of_billing():
            draft = open_draft(
                tenant_id=tenant.id, month=month, actor=operator(request),
                reason=request.POST.get("reason", "").strip()[:300],
            )  # fmt: skip
        made += [draft] if draft is not None else []
    except Refused as refused:
        messages.error(request, f"Nothing was drafted: {refused}")
        return redirect("operators:invoices")
    if not made:
        messages.info(request, f"Nothing is to be charged to {tenant} for {month:%B %Y}.")
        return redirect("operators:invoices")
    return redirect("operators:invoice", made[0].public_id)


def _month(text: str) -> date:
    try:
        return date.fromisoformat(f"{text}-01")
    except ValueError:
        raise invalid("/month", "a month: YYYY-MM") from None


def _uuid(text: str) -> uuid.UUID:
    found = decode(INVOICE, text)
    if found is None:
        raise Http404
    return found


def _invoice(invoice_id: str) -> Invoice:
    found = Invoice.objects.select_related("stripe").filter(pk=_uuid(invoice_id)).first()
    if found is None:
        raise Http404
    return found


@operator_page()
def bill(request: HttpRequest, invoice_id: str) -> HttpResponse:
    """GET /admin/pages/invoices/<id>/"""
    found = _invoice(invoice_id)
    record_read(tenant_id=found.tenant_id, actor=operator(request), what=request.path)
    kept = stored_lines(found)
    left = settling.left_of(found, kept)
    lines = [
        {
            "line": line,
            "words": described(line),
            "unit_price": unit_price(line),
            "left": f"{left[line.n]:f}" if line.kind != TAX and left[line.n] > 0 else "",
        }
        for line in kept
    ]
    return page(
        request,
        "bill.html",
        f"Invoice {found.number or 'draft'}",
        **_shown(named([found])[0]),
        lines=lines,
        notes=found.credit_notes.order_by("sequence"),
        at_stripe=getattr(found, "stripe", None),
        agrees=checking.agrees(found) if found.number else None,
        moves=moves_of(found, settings.BILLING_DUE_DAYS),
        creditable=InvoiceState(found.state) in CREDITABLE and any(each["left"] for each in lines),
        unpriced=found.basis.get("unpriced", ()),
    )


@operator_page("POST")
def bill_act(request: HttpRequest, invoice_id: str, verb: str) -> HttpResponse:
    """POST /admin/pages/invoices/<id>/finalize, /pay, /void, /give_up, /credit"""
    found = _invoice(invoice_id)
    reason = request.POST.get("reason", "").strip()[:300]
    now = datetime.now(UTC)
    if verb == "credit":
        try:
            lines = _credited(request)
        except Refused as refused:
            messages.error(request, f"Nothing was credited: {refused}")
        else:
            act(
                request, settling.credit, "The credit note is written, numbered and mailed.",
                invoice_id=found.id, lines=lines, now=now, reason=reason,
            )  # fmt: skip
    elif verb in MOVES:
        if not reason:
            messages.error(request, "Nothing was changed: say why, for the audit log.")
        else:
            move = MOVES[verb]
            act(request, move.use_case, move.done, invoice_id=found.id, now=now, reason=reason)
    else:
        raise Http404
    return redirect("operators:invoice", found.public_id)


def _credited(request: HttpRequest) -> list[dict[str, Any]] | None:
    """The lines to be taken back; None: all that is left, if that was chosen."""
    if request.POST.get("all") == "on":
        return None
    lines: list[dict[str, Any]] = []
    for name, text in request.POST.items():
        n = name.removeprefix("line-")
        if name == n or not (amount := str(text).strip()):
            continue
        if not (n.isascii() and n.isdecimal() and len(n) < 10) or not _AMOUNT.fullmatch(amount):
            raise invalid(f"/line {n}", "an amount such as 12.50")
        lines.append({"n": int(n), "amount": amount})
    if not lines:
        raise invalid("/lines", "give an amount of at least one line, or choose all that is left")
    return lines


@operator_page()
def bill_paper(request: HttpRequest, invoice_id: str) -> HttpResponse:
    """GET /admin/pages/invoices/<id>/pdf; a draft says that it is one."""
    found = _invoice(invoice_id)
    record_read(tenant_id=found.tenant_id, actor=operator(request), what=request.path)
    headers = {"Content-Disposition": f'inline; filename="{found.number or "draft"}.pdf"'}
    return HttpResponse(
        invoice_pdf(found, stored_lines(found)), content_type="application/pdf", headers=headers
    )
