"""`clockhouse invoices`, `budget`, `forecast` and, for operators' keys, `price-books`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.markup import escape

from controlplane.client import NotFound
from controlplane.client.cli import tables
from controlplane.client.cli.job_options import Limit, Yes
from controlplane.client.cli.reading import read_document, schedule_of
from controlplane.client.cli.session import Session, Wrong, command, documents
from controlplane.client.cli.wording import moment
from controlplane.client.money_documents import (
    Budget,
    Forecast,
    Invoice,
    InvoiceLine,
    LineUsage,
    PriceBook,
    PricePreview,
    ScheduleForecast,
)

invoices = typer.Typer(no_args_is_help=True, help="Invoices: what was charged, down to meter records.")
budget = typer.Typer(no_args_is_help=True, help="The budget of a month, and what happens once it is spent.")
price_books = typer.Typer(no_args_is_help=True, help="Versions of the list prices, with an operator's key.")

InvoiceId = Annotated[str, typer.Argument(metavar="INVOICE", help="Its id: ivc_…")]
Reason = Annotated[str | None, typer.Option(help="Goes into the audit log.")]


def _amount(amount: Decimal, currency: str = "") -> str:
    return f"{amount:,f} {currency}".strip()


# --- invoices ----------------------------------------------------------------------------
@command(invoices, "list")
def list_(
    session: Session,
    state: Annotated[str | None, typer.Option(help="FINAL, PAID, VOID or UNCOLLECTIBLE.")] = None,
    limit: Limit = 50,
) -> None:
    """List invoices, newest first."""
    found = session.take(session.client.invoices.list(state=state and state.upper()), limit)
    session.answer(documents(found), lambda: _invoices_table(found))


def _invoices_table(found: Sequence[Invoice]) -> RenderableType:
    if not found:
        return "No invoices. One is made for each month that something was charged for, once it is closed."
    made = tables.table("number", "month", "state", "total", "still to pay", "due", "invoice",
                        right=("total", "still to pay"))  # fmt: skip
    for each in found:
        made.add_row(
            each.number or "draft",
            f"{each.period_start:%Y-%m}",
            tables.state(each.state),
            _amount(each.total, each.currency),
            _amount(each.due),
            str(each.due_on or "–"),
            each.invoice_id,
        )
    return made


@command(invoices, "show")
def show(
    session: Session,
    invoice: InvoiceId,
    line: Annotated[int | None, typer.Option(help="The usage days that this line stands for.")] = None,
    day: Annotated[str | None, typer.Option(help="With --line: that day's meter records.")] = None,
) -> None:
    """Show an invoice with its lines; with --line, what one rests on."""
    if line is None:
        if day is not None:
            raise Wrong("--day goes with --line")
        found = session.client.invoices.get(invoice)
        session.answer(found.raw, lambda: _invoice_card(session, found))
        return
    pages = [session.client.invoices.line_usage(invoice, line, day=day)]
    while cursor := pages[-1].next_cursor:
        pages.append(session.client.invoices.line_usage(invoice, line, day=day, cursor=cursor))
    records = [record.raw for page in pages for record in page.records]
    raw = {**pages[0].raw, "records": records, "next_cursor": None}
    session.answer(raw, lambda: _usage_of_line(pages, day))


def _invoice_card(session: Session, found: Invoice) -> RenderableType:
    currency = found.currency
    facts = tables.card(
        (
            ("invoice", f"{found.number or 'draft'} ({found.invoice_id})"),
            ("month", f"{found.period_start:%Y-%m}"),
            ("state", tables.state(found.state)),
            ("net", _amount(found.net, currency)),
            ("taxes", _amount(found.taxes, currency) if found.taxes else None),
            ("total", _amount(found.total, currency)),
            ("credited", _amount(found.credited, currency) if found.credited else None),
            ("still to pay", _amount(found.due, currency)),
            ("due on", found.due_on),
            ("pay at", found.payment_url),
        )
    )
    parts: list[RenderableType] = [facts, "", _lines_table(found.lines)]
    if found.credit_notes:
        notes = tables.table("credit note", "total", "when", "why", right=("total",))
        for note in found.credit_notes:
            notes.add_row(
                note.number, _amount(note.total), moment(note.created_at, session.now), escape(note.reason)
            )
        parts += ["", notes]
    return Group(*parts)


def _lines_table(lines: Sequence[InvoiceLine]) -> RenderableType:
    made = tables.table("n", "what", "quantity", "unit price", "amount", right=("n", "quantity", "amount"))
    for line in lines:
        made.add_row(
            str(line.n),
            escape(line.description),
            f"{line.quantity:,}" if line.quantity else "–",
            line.unit_price or "–",
            _amount(line.amount),
        )
    return made


def _usage_of_line(pages: Sequence[LineUsage], day: str | None) -> RenderableType:
    if day is None:
        made = tables.table("day", "counted by", "quantity", right=("quantity",))
        for used in pages[0].days:
            made.add_row(str(used.day), used.cell, f"{used.quantity:,}")
        return made if pages[0].days else "It rests on other lines: it has no usage of its own."
    made = tables.table("minute", "counted by", "host", "quantity", right=("quantity",))
    for page in pages:
        for record in page.records:
            minute = f"{record.minute.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
            made.add_row(minute, record.cell, escape(record.host), f"{record.quantity:,}")
    return made


@command(invoices, "pdf")
def pdf(
    session: Session,
    invoice: InvoiceId,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file; its number and .pdf if absent.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Save an invoice as PDF."""
    found = session.client.invoices.get(invoice)
    content = session.client.invoices.pdf(invoice)
    file = output or Path(f"{found.number or found.invoice_id}.pdf")
    try:
        with file.open("wb" if force else "xb") as opened:
            opened.write(content)
    except FileExistsError:
        raise Wrong(f"{file} is there already; --force replaces it") from None
    session.answer({"file": str(file), "bytes": len(content)}, lambda: f"{file}: {len(content):,} bytes")


# --- budget ------------------------------------------------------------------------------
@command(budget, "show")
def budget_show(session: Session) -> None:
    """Show the budget and how much of it is used."""
    try:
        found = session.client.budget.get()
    except NotFound as none:
        none.add_note("`clockhouse budget set 100` sets one.")
        raise
    session.answer(found.raw, lambda: _budget_card(found, session.now))


@command(budget, "set")
def budget_set(
    session: Session,
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="Of a month, before taxes: 250 or 99.90.")],
    cap: Annotated[
        bool, typer.Option("--cap/--no-cap", help="LOW work waits once it is spent, until the month is over.")
    ] = False,
    grace_hours: Annotated[int | None, typer.Option(help="From 100 % until it waits; 24 if absent.")] = None,
    reason: Reason = None,
) -> None:
    """Set the budget. People are told at 50, 80 and 100 %; with --cap LOW work waits once it is spent."""
    found = session.client.budget.set(amount, capped=cap, grace_hours=grace_hours, reason=reason)
    session.answer(found.raw, lambda: _budget_card(found, session.now))


@command(budget, "remove")
def budget_remove(session: Session, yes: Yes = False) -> None:
    """Remove the budget: nobody is told any more, and LOW work that waits for it goes on."""
    found = session.client.budget.get()
    session.confirm(f"Remove the budget of {_amount(found.amount, found.currency)} a month?", yes=yes)
    session.client.budget.remove()
    session.answer({"removed": True}, lambda: "The budget is removed.")


def _budget_card(found: Budget, now: datetime) -> RenderableType:
    reached = ", ".join(f"{alert.threshold} % {moment(alert.at, now)}" for alert in found.alerts)
    cap = f"LOW work waits {found.grace_hours} h after 100 %" if found.capped else "none: all work goes on"
    return tables.card(
        (
            ("budget", f"{_amount(found.amount, found.currency)} a month, before taxes"),
            ("used", f"{found.percent} %, {_amount(found.spent, found.currency)} in {found.month}"),
            ("reached", reached or "nothing of 50, 80 and 100 %"),
            ("cap", cap),
            ("LOW work waits since", found.low_delayed_since and moment(found.low_delayed_since, now)),
        )
    )


# --- forecast ----------------------------------------------------------------------------
def forecast(
    session: Session,
    cron: Annotated[str | None, typer.Option(help="What this schedule would add in 30 days.")] = None,
    every: Annotated[str | None, typer.Option(help="As --cron: 90s, 15m, 2h.")] = None,
    time_zone: Annotated[str | None, typer.Option(help="Of --cron; UTC if absent.")] = None,
    occurrences: Annotated[int | None, typer.Option(help="So many runs in 30 days, instead.")] = None,
    region_policy: Annotated[str | None, typer.Option(help="Of the job; the tenant's if absent.")] = None,
) -> None:
    """Show what this month will come to; with a schedule, what that adds in 30 days. Changes nothing."""
    schedule = schedule_of(cron=cron, once=None, every=every, now=False, time_zone=time_zone)
    if schedule is None and occurrences is None:
        month = session.client.forecasts.month()
        session.answer(month.raw, lambda: _forecast_card(month))
        return
    if schedule is not None and occurrences is not None:
        raise Wrong("give either a schedule or --occurrences")
    added = session.client.forecasts.schedule(
        schedule, occurrences=occurrences, region_policy=region_policy and region_policy.upper()
    )
    session.answer(added.raw, lambda: _added_card(added))


def _forecast_card(found: Forecast) -> RenderableType:
    so_far, expected = found.so_far, found.expected
    facts = tables.card(
        (
            ("month", found.month),
            ("so far", f"{_amount(so_far.net, so_far.currency)} before taxes"),
            ("expected", f"{_amount(expected.net, expected.currency)} before taxes"),
            ("with taxes", _amount(expected.total, expected.currency) if expected.taxes else None),
        )
    )
    if not expected.lines:
        return Group(facts, "Nothing was used yet: a forecast needs some usage.")
    return Group(facts, "", _lines_table(expected.lines))


def _added_card(found: ScheduleForecast) -> RenderableType:
    return tables.card(
        (
            ("from", f"{found.since}, {found.days} days"),
            ("runs", f"{found.occurrences:,}"),
            ("attempts", f"{found.attempts:,}"),
            ("adds", f"{_amount(found.total, found.currency)} before taxes"),
        )
    )


# --- price books -------------------------------------------------------------------------
@command(price_books, "list")
def books_list(
    session: Session,
    currency: Annotated[str | None, typer.Option(help="Only of this one: USD.")] = None,
    limit: Limit = 50,
) -> None:
    """List versions, newest first."""
    found = session.take(session.client.price_books.list(currency=currency), limit)
    session.answer(documents(found), lambda: _books_table(found))


def _books_table(found: Sequence[PriceBook]) -> RenderableType:
    if not found:
        return "No price books: everything is free."
    made = tables.table("name", "currency", "from", "prices", "minimum", "id", right=("prices", "minimum"))
    for each in found:
        made.add_row(
            escape(each.name), each.currency, str(each.effective_from), str(len(each.prices)),
            _amount(each.minimum), each.price_book_id,
        )  # fmt: skip
    return made


BookId = Annotated[str, typer.Argument(metavar="BOOK", help="Its id: pbk_…")]
Source = Annotated[
    str,
    typer.Argument(metavar="FILE", help="JSON or TOML: name, currency, effective_from, prices; - is stdin."),
]


@command(price_books, "show")
def books_show(session: Session, book: BookId) -> None:
    """Show one version as a document, which `preview` and `create` take."""
    session.answer(session.client.price_books.get(book).raw)


@command(price_books, "preview")
def books_preview(
    session: Session,
    file: Source,
    month: Annotated[str | None, typer.Option(help="A month that is over: 2026-11; the last one.")] = None,
) -> None:
    """Show what a book would have made of a month that is over. Changes nothing."""
    found = _preview(session, _book_in(file), month)
    session.answer(found.raw, lambda: _preview_table(found))


@command(price_books, "create")
def books_create(session: Session, file: Source, yes: Yes = False, reason: Reason = None) -> None:
    """Make a version that holds from a day to come on. Shows its effect on last month and asks first."""
    book = _book_in(file)
    effect = _preview(session, book, None)
    session.say(f"Last month: {_effect(effect)}")
    session.confirm(f"Save {book.get('name')} from {book.get('effective_from')} on?", yes=yes)
    made = session.client.price_books.create(
        str(book.get("name", "")), effective_from=str(book.get("effective_from", "")),
        note=book.get("note"), reason=reason, **_priced(book),
    )  # fmt: skip
    session.answer(made.raw, lambda: _books_table([made]))


@command(price_books, "withdraw")
def books_withdraw(session: Session, book: BookId, yes: Yes = False, reason: Reason = None) -> None:
    """Take a version back that is not in force yet."""
    found = session.client.price_books.get(book)
    session.confirm(f"Withdraw {found.name}, which would hold from {found.effective_from} on?", yes=yes)
    session.client.price_books.withdraw(book, reason=reason)
    session.answer({"withdrawn": book}, lambda: f"{escape(found.name)} is withdrawn.")


def _book_in(source: str) -> dict[str, Any]:
    found = read_document(source)
    if not isinstance(found, dict) or not isinstance(found.get("prices"), list):
        raise Wrong(f"{source}: an object with name, currency, effective_from and prices is expected")
    return found


def _priced(book: dict[str, Any]) -> dict[str, Any]:
    return {
        "currency": str(book.get("currency", "")),
        "prices": book["prices"],
        "minimum": None if book.get("minimum") is None else str(book["minimum"]),
    }


def _preview(session: Session, book: dict[str, Any], month: str | None) -> PricePreview:
    return session.client.price_books.preview(**_priced(book), month=month)


def _effect(found: PricePreview) -> str:
    return (
        f"{_amount(found.before, found.currency)} would have been {_amount(found.after, found.currency)};"
        f" of {found.tenants} tenants {found.more} pay more, {found.less} less."
    )


def _preview_table(found: PricePreview) -> RenderableType:
    made = tables.table(
        "tenant", "charged", "would be", "difference", right=("charged", "would be", "difference")
    )
    for change in found.changes:
        made.add_row(
            change.tenant_id,
            _amount(change.before),
            _amount(change.after),
            f"{change.after - change.before:+,f}",
        )
    return Group(f"{found.month}: {_effect(found)}", *([made] if found.changes else []))
