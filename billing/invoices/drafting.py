"""Drafts: the lines of a closed month, recomputed as often as anybody likes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from billing.charging.charge import Statement, TaxRate
from billing.charging.machine import InvoiceState, allowed
from billing.charging.money import quantize
from billing.hooks import Actor, audit
from billing.invoices.lines import Line, digest, lines_of, stored_line
from billing.invoices.models import Invoice, InvoiceLine, NothingDue
from billing.months import next_month
from billing.periods import closed
from billing.pricing.accounts import lock_account, shown_taxes
from billing.pricing.many import Rated
from billing.pricing.statements import Terms, statement_of, terms_of
from billing.refusals import Conflicting, NotFound
from billing.sql import named_sql

_SQL = named_sql("invoices")
_PAGE = 500


def find_invoice(invoice_id: uuid.UUID, *, tenant_id: uuid.UUID | None = None) -> Invoice:
    """An invoice; of another tenant than the given one there is none."""
    mine = {} if tenant_id is None else {"tenant_id": tenant_id}
    found = Invoice.objects.filter(pk=invoice_id, **mine).first()
    if found is None:
        raise NotFound("no such invoice")
    return found


def lock_invoice(invoice_id: uuid.UUID) -> Invoice:
    """The invoice, its tenant's account locked before it: the order of all that touches money."""
    found = find_invoice(invoice_id)
    lock_account(found.tenant_id)
    return Invoice.objects.select_for_update().get(pk=invoice_id)


def stored_lines(invoice: Invoice) -> list[Line]:
    """The lines as they are kept."""
    return [stored_line(row, invoice.currency) for row in invoice.lines.order_by("n")]


def to_be_drafted(since: datetime) -> Iterator[tuple[uuid.UUID, date]]:
    """(tenant, month) of months closed since an instant that never had an invoice, not even a void one."""
    month: date | None = None
    tenant_id: uuid.UUID | None = None
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                _SQL["to_be_drafted"],
                {"since": since, "after_month": month, "after_tenant": tenant_id, "limit": _PAGE},
            )
            rows = cursor.fetchall()
        if not rows:
            return
        for month, tenant_id in rows:
            yield tenant_id, month


@transaction.atomic
def open_draft(
    *, tenant_id: uuid.UUID, month: date, rated: Rated | None = None, actor: Actor, reason: str
) -> Invoice | None:
    """The draft of a closed month, made if there is none, with its lines; None: nothing is to be
    charged. An invoice that is already final comes back as it is. `rated`: what it came to a moment ago;
    a draft may be that old, as it is computed again when it becomes final."""
    if closed(tenant_id, month) is None:
        raise Conflicting(f"{month:%Y-%m} is not closed: its usage may still change")
    lock_account(tenant_id)
    found = (
        Invoice.objects.select_for_update()
        .filter(tenant_id=tenant_id, period_start=month)
        .exclude(state=InvoiceState.VOID)
        .first()
    )
    if found is not None and found.state != InvoiceState.DRAFT:
        return found
    if rated is not None and rated.statement.lines:
        terms, statement = rated.terms, rated.statement
    else:
        terms = terms_of(tenant_id)
        statement = statement_of(tenant_id, month, terms)
    _check_priced(statement, terms)
    if not statement.lines:
        if found is not None:
            found.delete()
        if not Invoice.objects.filter(tenant_id=tenant_id, state=InvoiceState.DRAFT).exists():
            # An earlier one that is open may still give something back, which is carried over.
            NothingDue.objects.get_or_create(tenant_id=tenant_id, month=month)
        return None
    if found is None:
        found = Invoice.objects.create(
            tenant_id=tenant_id,
            period_start=month,
            period_end=next_month(month),
            currency=statement.currency,
            issuer=settings.BILLING_ISSUER["key"],
        )
        found.refresh_from_db()
        audit(
            action="invoice.open", subject=found.public_id, tenant_id=tenant_id, actor=actor, reason=reason,
            after={"month": f"{month:%Y-%m}", "total": str(statement.total)},
        )  # fmt: skip
    write_lines(found, statement, terms)
    return found


def recompute(invoice: Invoice) -> Statement:
    """Puts the lines of a locked draft as usage and prices give them."""
    if not allowed("recompute", InvoiceState(invoice.state)):
        raise Conflicting(f"an invoice that is {invoice.state} is never recomputed")
    terms = terms_of(invoice.tenant_id)
    statement = statement_of(invoice.tenant_id, invoice.period_start, terms)
    _check_priced(statement, terms)
    write_lines(invoice, statement, terms)
    return statement


def _check_priced(statement: Statement, terms: Terms) -> None:
    """What a book in force leaves out is free; where there is no book at all, nobody meant that."""
    in_force = [book for book in terms.books if book.effective_from < statement.period.end]
    if statement.unpriced and not in_force:
        raise Conflicting(f"no price book in {statement.currency} is in force: the usage has no price")


def write_lines(invoice: Invoice, statement: Statement, terms: Terms) -> None:
    """Replaces a draft's lines and sums. Writing the same again leaves the same rows."""
    lines = lines_of(statement)
    invoice.currency = statement.currency
    if stored_lines(invoice) != lines:
        invoice.lines.all().delete()
        InvoiceLine.objects.bulk_create(
            InvoiceLine(**{**asdict(line), "invoice": invoice, "amount": Decimal(line.amount)})
            for line in lines
        )
    invoice.net, invoice.taxes, invoice.total = statement.net, statement.taxes, statement.total
    invoice.recipient = terms.account.recipient
    invoice.basis = basis_of(statement, terms)
    invoice.digest = digest(lines)
    invoice.save()


def basis_of(statement: Statement, terms: Terms) -> dict[str, Any]:
    """From what a statement was made, to make it again."""
    return {
        "issuer": {k: settings.BILLING_ISSUER[k] for k in ("name", "address", "tax_id")},
        "books": sorted({line.book for line in statement.lines if line.book}),
        "taxes": shown_taxes(terms.taxes),
        "unpriced": [list(pair) for pair in statement.unpriced],
    }


def rated_again(invoice: Invoice) -> list[Line]:
    """The invoice's lines, rated anew from usage, books and contracts as they are stored now, with
    its own currency and taxes. They equal the stored ones, byte by byte; anything else is a fault."""
    now = terms_of(invoice.tenant_id)
    taxes = tuple(TaxRate(name=t["name"], rate=Decimal(t["rate"])) for t in invoice.basis["taxes"])
    account = replace(now.account, currency=invoice.currency, taxes=taxes)
    terms = Terms(account=account, books=now.books, overrides=now.overrides)
    return lines_of(statement_of(invoice.tenant_id, invoice.period_start, terms))


def payable(invoice: Invoice) -> Decimal:
    """What is still to be paid of it."""
    if invoice.state not in (InvoiceState.FINAL, InvoiceState.UNCOLLECTIBLE):
        return quantize(Decimal(0), invoice.currency)
    return quantize(max(invoice.total - invoice.credited, Decimal(0)), invoice.currency)
