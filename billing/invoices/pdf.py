"""Invoices and credit notes as PDF. The same document is the same bytes."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from fpdf import FPDF
from fpdf.enums import XPos, YPos
from fpdf.fonts import FontFace

from billing.charging.charge import TAX
from billing.charging.money import quantize
from billing.invoices.lines import Line, described, unit_price
from billing.invoices.models import CreditNote, Invoice

_NEXT = {"new_x": XPos.LMARGIN, "new_y": YPos.NEXT}
_GREY = (238, 240, 242)
_HEAD = FontFace(emphasis="BOLD", fill_color=_GREY)


def invoice_pdf(invoice: Invoice, lines: Sequence[Line]) -> bytes:
    """The invoice on paper. A draft says so across its head and has no number."""
    final = invoice.finalized_at
    pdf = _begin(final or datetime.combine(invoice.period_end, time(), UTC), invoice.number or "draft")
    _heading(pdf, f"Invoice {invoice.number}" if invoice.number else "DRAFT - not an invoice", invoice)
    facts = [("Period", _days(invoice.period_start, invoice.period_end))]
    if final is not None and invoice.due_on is not None:
        facts += [("Date", f"{final:%d %B %Y}"), ("Due", f"{invoice.due_on:%d %B %Y}")]
    facts += [("Currency", invoice.currency), ("Invoice id", invoice.public_id)]
    _facts(pdf, facts)
    pdf.set_font("helvetica", size=8)
    with pdf.table(
        col_widths=(8, 66, 38, 26, 28, 24),
        text_align=("RIGHT", "LEFT", "LEFT", "RIGHT", "RIGHT", "RIGHT"),
        headings_style=_HEAD,
        borders_layout="HORIZONTAL_LINES",
        line_height=5,
    ) as table:
        table.row(("#", "What", "Days", "Quantity", "Unit price", "Amount"))
        for line in lines:
            if line.kind != TAX:
                table.row(_row(line))
    _sums(
        pdf,
        [
            ("Net", invoice.net),
            *((line.metric, Decimal(line.amount)) for line in lines if line.kind == TAX),
            ("Total", invoice.total),
        ],
        invoice.currency,
    )
    pdf.ln(4)
    pdf.set_font("helvetica", size=7)
    pdf.multi_cell(
        0,
        4,
        _latin(
            "Each line rests on usage days, each of them on meter records:"
            f" GET /v1/invoices/{invoice.public_id}/lines/<#>/usage shows them."
            f" SHA-256 of the lines: {invoice.digest}"
        ),
        **_NEXT,
    )
    return bytes(pdf.output())


def credit_note_pdf(note: CreditNote, lines: Sequence[Line]) -> bytes:
    """The credit note on paper; `lines` are those of its invoice."""
    pdf = _begin(note.created_at, note.number)
    _heading(pdf, f"Credit note {note.number}", note.invoice)
    _facts(
        pdf,
        [
            ("Date", f"{note.created_at:%d %B %Y}"),
            ("For invoice", note.invoice.number),
            ("Reason", " ".join(note.reason.split())),
            ("Currency", note.currency),
        ],
    )
    named = {line.n: line for line in lines}
    taken = [(named[item["n"]], Decimal(item["amount"])) for item in note.lines]
    pdf.set_font("helvetica", size=8)
    with pdf.table(
        col_widths=(12, 142, 36),
        text_align=("RIGHT", "LEFT", "RIGHT"),
        headings_style=_HEAD,
        borders_layout="HORIZONTAL_LINES",
        line_height=5,
    ) as table:
        table.row(("#", "Line of the invoice", "Taken back"))
        for line, amount in taken:
            if line.kind != TAX:
                table.row((str(line.n), _latin(described(line)), _money(amount, note.currency)))
    taxes = [(line.metric, amount) for line, amount in taken if line.kind == TAX]
    _sums(pdf, [("Net", note.net), *taxes, ("Total taken back", note.total)], note.currency)
    return bytes(pdf.output())


def _begin(created: datetime, title: str) -> FPDF:
    pdf = FPDF()
    pdf.set_creation_date(created.astimezone(UTC).replace(microsecond=0))
    pdf.set_title(_latin(title))
    pdf.set_producer("Clockhouse")
    pdf.set_margins(10, 12, 10)
    pdf.set_auto_page_break(True, margin=14)
    pdf.add_page()
    return pdf


def _heading(pdf: FPDF, title: str, invoice: Invoice) -> None:
    issuer, buyer = invoice.basis["issuer"], invoice.recipient
    pdf.set_font("helvetica", style="B", size=16)
    pdf.cell(0, 9, _latin(title), **_NEXT)
    top = pdf.get_y() + 2
    pdf.set_xy(10, top)
    _party(pdf, "From", issuer)
    under = pdf.get_y()
    pdf.set_xy(110, top)
    pdf.set_left_margin(110)
    _party(pdf, "To", buyer)
    pdf.set_left_margin(10)
    pdf.set_xy(10, max(under, pdf.get_y()) + 3)


def _party(pdf: FPDF, role: str, party: dict[str, Any]) -> None:
    pdf.set_font("helvetica", size=8)
    pdf.cell(90, 4, role, **_NEXT)
    pdf.set_font("helvetica", style="B", size=10)
    pdf.multi_cell(90, 5, _latin(party["name"]), **_NEXT)
    pdf.set_font("helvetica", size=9)
    for line in (*party["address"].splitlines(), party["tax_id"] and f"Tax id {party['tax_id']}"):
        if line:
            pdf.multi_cell(90, 4.5, _latin(line), **_NEXT)


def _facts(pdf: FPDF, facts: Iterable[tuple[str, str]]) -> None:
    for name, value in facts:
        pdf.set_font("helvetica", size=9)
        pdf.cell(30, 5, name)
        pdf.set_font("helvetica", style="B", size=9)
        pdf.multi_cell(0, 5, _latin(value), **_NEXT)
    pdf.ln(3)


def _row(line: Line) -> tuple[str, ...]:
    return (
        str(line.n),
        _latin(described(line)),
        _days(date.fromisoformat(line.start), date.fromisoformat(line.end)),
        f"{line.quantity:,}" if line.metric else "",
        unit_price(line),
        f"{Decimal(line.amount):,}",
    )


def _sums(pdf: FPDF, sums: Iterable[tuple[str, Decimal]], currency: str) -> None:
    pdf.ln(2)
    for name, amount in sums:
        pdf.set_font("helvetica", style="B" if name.startswith("Total") else "", size=10)
        pdf.cell(150, 6, _latin(name), align="R")
        pdf.cell(40, 6, _money(amount, currency), align="R", **_NEXT)


def _days(start: date, end: date) -> str:
    last = end - timedelta(days=1)
    return f"{start:%d %b} - {last:%d %b %Y}"


def _money(amount: Decimal, currency: str) -> str:
    return f"{quantize(amount, currency):,} {currency}"


def _latin(text: str) -> str:
    """What the built-in fonts of PDF can write: other letters lose their marks, or are a `?`."""
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        apart = unicodedata.normalize("NFKD", text)
        kept = "".join(c for c in apart if not unicodedata.combining(c))
        return kept.encode("latin-1", "replace").decode("latin-1")
    return text
