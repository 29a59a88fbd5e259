"""The moves of an invoice (`billing.charging.machine`), and credit notes."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import transaction

from billing.charging.charge import TAX
from billing.charging.machine import CREDITABLE, InvoiceState, allowed, destination
from billing.charging.money import EXACT, quantize
from billing.hooks import Actor, audit, want
from billing.invoices.drafting import lock_invoice, recompute, stored_lines
from billing.invoices.lines import Line
from billing.invoices.models import CreditNote, Invoice
from billing.invoices.numbers import CREDIT_NOTES, INVOICES, take_number
from billing.periods import closed
from billing.refusals import Conflicting, Invalid, refuse_faults

MAIL_INVOICE = "billing_mail_invoice"
MAIL_CREDIT_NOTE = "billing_mail_credit_note"
STRIPE_INVOICE = "stripe_invoice"


@transaction.atomic
def finalize(*, invoice_id: uuid.UUID, now: datetime, actor: Actor, reason: str) -> Invoice:
    """Computes a draft a last time, numbers it, and has it sent. Where nothing is to be paid it is
    settled at once; what it gives back beyond its charges is a line of the next month's. Of a final one
    nothing happens."""
    invoice = lock_invoice(invoice_id)
    if invoice.state != InvoiceState.DRAFT and invoice.sequence is not None:
        return invoice
    _check("finalize", invoice)
    if closed(invoice.tenant_id, invoice.period_start) is None:
        raise Conflicting(f"{invoice.period_start:%Y-%m} is not closed: its usage may still change")
    recompute(invoice)
    _check_order(invoice)
    invoice.finalized_at = now
    invoice.due_on = now.date() + timedelta(days=settings.BILLING_DUE_DAYS)
    invoice.state = destination("finalize")
    invoice.sequence, invoice.number = take_number(INVOICES, invoice.issuer)
    invoice.save()
    _audit("invoice.finalize", invoice, InvoiceState.DRAFT, actor, reason)
    if invoice.total <= 0:
        over = f"; {invoice.net} before taxes is carried over" if invoice.total < 0 else ""
        _settle("pay", invoice, now, actor, f"nothing is to be paid{over}")
    want(topic=MAIL_INVOICE, subject=str(invoice.id))
    _tell_stripe(invoice)
    return invoice


def _check_order(invoice: Invoice) -> None:
    """A month may give back to the next one, so an earlier one must not be open, and what is below zero
    needs a next one that is."""
    others = Invoice.objects.filter(tenant_id=invoice.tenant_id)
    earlier = others.filter(state=InvoiceState.DRAFT, period_start__lt=invoice.period_start)
    if first := earlier.order_by("period_start").first():
        raise Conflicting(f"the draft for {first.period_start:%Y-%m} is to be final first")
    after = others.filter(period_start=invoice.period_end, sequence__isnull=False)
    if invoice.total < 0 and (there := after.exclude(state=InvoiceState.VOID).first()):
        raise Conflicting(f"it gives back {invoice.total}, and {there} behind it is final: credit that one")


@transaction.atomic
def pay(*, invoice_id: uuid.UUID, now: datetime, actor: Actor, reason: str) -> Invoice:
    """Paid in full. Of a paid one nothing happens."""
    return _move("pay", invoice_id, now, actor, reason)


@transaction.atomic
def void(*, invoice_id: uuid.UUID, now: datetime, actor: Actor, reason: str) -> Invoice:
    """Wrong as a whole, and not to be paid. It keeps its number; its month is drafted anew only if
    somebody asks for that."""
    invoice = lock_invoice(invoice_id)  # a credit note that is being made is seen
    if invoice.state != InvoiceState.VOID and invoice.credited:
        raise Conflicting(f"{invoice} has credit notes: take back the rest by another one")
    return _move("void", invoice_id, now, actor, reason)


@transaction.atomic
def give_up(*, invoice_id: uuid.UUID, now: datetime, actor: Actor, reason: str) -> Invoice:
    """Nobody expects the money any more; it may come all the same."""
    return _move("give_up", invoice_id, now, actor, reason)


@transaction.atomic
def credit(
    *,
    invoice_id: uuid.UUID,
    lines: Sequence[Mapping[str, Any]] | None = None,
    now: datetime,
    actor: Actor,
    reason: str,
) -> CreditNote:
    """Takes back amounts of lines (`n`, `amount` before taxes), or with no lines all that is left.
    Taxes follow. An invoice that is credited in full is settled."""
    invoice = lock_invoice(invoice_id)
    if InvoiceState(invoice.state) not in CREDITABLE:
        raise Conflicting(f"an invoice that is {invoice.state} cannot be credited")
    if not reason.strip():
        raise Invalid([("/reason", "a credit note says why")])
    kept = stored_lines(invoice)
    left = left_of(invoice, kept)
    taken = _all(kept, left) if lines is None else _chosen(invoice, kept, left, lines)
    taken |= _taxes(invoice, kept, left, taken)
    taken = {n: amount for n, amount in taken.items() if amount}
    total = sum(taken.values(), Decimal(0))
    if total <= 0:
        raise Conflicting(f"there is nothing left to credit of {invoice}")
    if total > (rest := invoice.total - invoice.credited):
        # Lines below zero are a part of what was to be paid.
        raise Invalid([("/lines", f"{total} with taxes; only {rest} is left of {invoice}")])
    tax = sum((amount for n, amount in taken.items() if kept[n - 1].kind == TAX), Decimal(0))
    sequence, number = take_number(CREDIT_NOTES, invoice.issuer)
    note = CreditNote.objects.create(
        invoice=invoice,
        tenant_id=invoice.tenant_id,
        issuer=invoice.issuer,
        sequence=sequence,
        number=number,
        currency=invoice.currency,
        lines=[{"n": n, "amount": f"{taken[n]:f}"} for n in sorted(taken)],
        net=total - tax,
        taxes=tax,
        total=total,
        reason=reason,
        created_at=now,
    )
    invoice.credited += total
    invoice.save(update_fields=["credited"])
    audit(
        action="invoice.credit", subject=invoice.public_id, tenant_id=invoice.tenant_id, actor=actor,
        reason=reason, before={"credited": str(invoice.credited - total)},
        after={"credited": str(invoice.credited), "credit_note": number},
    )  # fmt: skip
    if invoice.credited == invoice.total and allowed("pay", InvoiceState(invoice.state)):
        _settle("pay", invoice, now, actor, f"credited in full by {number}")
    want(topic=MAIL_CREDIT_NOTE, subject=str(note.id))
    _tell_stripe(invoice)
    return note


def left_of(invoice: Invoice, kept: Sequence[Line]) -> dict[int, Decimal]:
    """What credit notes have left of each line, by its number."""
    gone: dict[int, Decimal] = defaultdict(Decimal)
    for note in invoice.credit_notes.all():
        for line in note.lines:
            gone[line["n"]] += Decimal(line["amount"])
    return {line.n: Decimal(line.amount) - gone[line.n] for line in kept}


def _all(kept: Sequence[Line], left: Mapping[int, Decimal]) -> dict[int, Decimal]:
    return {line.n: left[line.n] for line in kept if line.kind != TAX}


def _chosen(
    invoice: Invoice,
    kept: Sequence[Line],
    left: Mapping[int, Decimal],
    lines: Sequence[Mapping[str, Any]],
) -> dict[int, Decimal]:
    taken: dict[int, Decimal] = {}
    faults = []
    taxes = {line.n for line in kept if line.kind == TAX}
    for i, line in enumerate(lines):
        n, amount = line["n"], Decimal(line["amount"])
        if n not in left:
            faults.append((f"/lines/{i}/n", f"{invoice} has no line {n}"))
        elif n in taxes:
            faults.append((f"/lines/{i}/n", "taxes follow from what is credited"))
        elif n in taken:
            faults.append((f"/lines/{i}/n", "is there twice"))
        elif amount <= 0 or amount != quantize(amount, invoice.currency):
            faults.append((f"/lines/{i}/amount", f"an amount above 0 that can be paid in {invoice.currency}"))
        elif amount > left[n]:
            faults.append((f"/lines/{i}/amount", f"only {left[n]} is left of line {n}"))
        else:
            taken[n] = amount
    refuse_faults(faults)
    return taken


def _taxes(
    invoice: Invoice, kept: Sequence[Line], left: Mapping[int, Decimal], taken: Mapping[int, Decimal]
) -> dict[int, Decimal]:
    """Each tax on what is taken back, at most what is left of it; all of it with the last of the net."""
    net = sum(taken.values(), Decimal(0))
    all_of_it = net == sum((left[line.n] for line in kept if line.kind != TAX), Decimal(0))
    rates = iter(invoice.basis["taxes"])
    found = {}
    for line in kept:
        if line.kind == TAX:
            share = quantize(EXACT.multiply(net, Decimal(next(rates)["rate"])), invoice.currency)
            found[line.n] = left[line.n] if all_of_it else min(share, left[line.n])
    return found


def _move(name: str, invoice_id: uuid.UUID, now: datetime, actor: Actor, reason: str) -> Invoice:
    invoice = lock_invoice(invoice_id)
    if invoice.state == destination(name):
        return invoice
    _check(name, invoice)
    _settle(name, invoice, now, actor, reason)
    _tell_stripe(invoice)
    return invoice


def _settle(name: str, invoice: Invoice, now: datetime, actor: Actor, reason: str) -> None:
    before = InvoiceState(invoice.state)
    invoice.state = destination(name)
    invoice.settled_at = now
    invoice.save(update_fields=["state", "settled_at"])
    _audit(f"invoice.{name}", invoice, before, actor, reason)


def _check(name: str, invoice: Invoice) -> None:
    if not allowed(name, InvoiceState(invoice.state)):
        raise Conflicting(f"an invoice that is {invoice.state} cannot make the move {name}")


def _audit(action: str, invoice: Invoice, before: InvoiceState, actor: Actor, reason: str) -> None:
    audit(
        action=action, subject=invoice.public_id, tenant_id=invoice.tenant_id, actor=actor, reason=reason,
        before={"state": before},
        after={"state": invoice.state, "number": invoice.number, "total": str(invoice.total)},
    )  # fmt: skip


def _tell_stripe(invoice: Invoice) -> None:
    if settings.BILLING_STRIPE["key"]:
        want(topic=STRIPE_INVOICE, subject=str(invoice.id))
