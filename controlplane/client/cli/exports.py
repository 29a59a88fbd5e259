"""`clockhouse exports`"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.markup import escape

from controlplane.client.cli import tables
from controlplane.client.cli.reading import day_of
from controlplane.client.cli.session import BAD_OUTCOME, Session, Wrong, command, documents
from controlplane.client.cli.wording import counted, moment
from controlplane.client.export_calls import Export, ExportSchedule

app = typer.Typer(no_args_is_help=True, help="Usage, invoice lines and FOCUS data as files.")


class Dataset(enum.Enum):
    """What is exported."""

    USAGE = "usage"  # each hour's usage
    INVOICE_LINES = "invoice-lines"  # lines of invoices
    FOCUS = "focus"  # cost and usage as FOCUS 1.2 has it

    @property
    def sent(self) -> str:
        """As the API calls it."""
        return self.name


class Format(enum.Enum):
    """How files are written."""

    CSV = "csv"  # text
    PARQUET = "parquet"  # exact decimals


class Cadence(enum.Enum):
    """How often."""

    DAILY = "daily"  # the day before, or the month so far
    MONTHLY = "monthly"  # the month before, once it is closed


ExportId = Annotated[str, typer.Argument(metavar="EXPORT", help="Its id: exp_…")]
What = Annotated[Dataset, typer.Argument(metavar="DATASET", help="usage, invoice-lines or focus.")]
As = Annotated[Format, typer.Option("--format", "-f", help="How files are written.")]
Folder = Annotated[Path, typer.Option("--to-folder", "-o", help="Where files are written.")]


@command(app, "create")
def create(
    session: Session,
    dataset: What,
    since: Annotated[str | None, typer.Option("--from", help="First day, UTC.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="Last day, UTC.")] = None,
    month: Annotated[str | None, typer.Option("--month", help="All of a month, instead: YYYY-MM.")] = None,
    file_format: As = Format.CSV,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until it is written.")] = True,
) -> None:
    """Export usage, invoice lines or FOCUS data of some days; the latter two of whole months. Exit status 1
    if it could not be written."""
    today = session.now.date()
    if month is not None:
        if since or until:
            raise typer.BadParameter("give either --month or --from and --to")
        first, last = _month(month)
    elif since and until:
        first, last = str(day_of(since, today)), str(day_of(until, today))
    else:
        raise typer.BadParameter("say which days: --from and --to, or --month")
    found = session.client.exports.create(dataset.sent, first, last, format=file_format.name)
    if wait:
        found = _waited(session, found)
    session.answer(found.raw, lambda: _card(found, session.now))
    if found.state == "FAILED":
        raise typer.Exit(BAD_OUTCOME)


@command(app, "list")
def list_(
    session: Session,
    state: Annotated[str | None, typer.Option(help="REQUESTED, RUNNING, DONE, FAILED, EXPIRED")] = None,
    limit: Annotated[int, typer.Option(help="At most so many; 0: all.")] = 50,
) -> None:
    """List exports, the newest first."""
    found = session.take(session.client.exports.list(state=state.upper() if state else None), limit)
    session.answer(documents(found), lambda: _table(found, session.now))


@command(app, "show")
def show(session: Session, export: ExportId) -> None:
    """Show how far an export is, and its files."""
    found = session.client.exports.get(export)
    session.answer(found.raw, lambda: _card(found, session.now))


@command(app, "download")
def download(session: Session, export: ExportId, folder: Folder = Path()) -> None:
    """Write an export's files into a folder, verified. Waits for it, if it is not done yet."""
    found = session.client.exports.get(export)
    if not found.over:
        found = _waited(session, found)
    if found.state != "DONE":
        why = f": {found.error}" if found.error else ""
        raise Wrong(f"the export is {found.state}{why}; there is nothing to fetch")
    folder.mkdir(parents=True, exist_ok=True)
    total = sum(file.bytes for file in found.files)
    with session.progress("Fetching, bytes …", total=total) as told:
        paths = session.client.exports.download(found, folder, told=told)
    written = [str(path) for path in paths]
    session.answer({"files": written}, lambda: "\n".join(written))


@command(app, "schedule")
def schedule(
    session: Session,
    dataset: What,
    cadence: Annotated[Cadence, typer.Argument(metavar="CADENCE", help="daily or monthly.")],
    file_format: As = Format.CSV,
) -> None:
    """Have a data set exported every day or month from now on."""
    found = session.client.exports.set_schedule(dataset.sent, cadence.name, format=file_format.name)
    session.answer(found.raw, lambda: _schedules([found]))


@command(app, "schedules")
def schedules(session: Session) -> None:
    """List what is exported every day or month."""
    found = session.client.exports.schedules()
    session.answer(found.raw, lambda: _schedules(found.items))


@command(app, "unschedule")
def unschedule(session: Session, dataset: What) -> None:
    """No more of a scheduled export. What was exported stays until it expires."""
    session.client.exports.remove_schedule(dataset.sent)
    session.answer({"dataset": dataset.sent, "scheduled": False}, lambda: "No more of them.")


def _waited(session: Session, export: Export) -> Export:
    expected = export.rows_expected
    with session.progress(f"Exporting {export.export_id}, rows …", total=expected) as told:
        seen = 0

        def tell(found: Export) -> None:
            nonlocal seen
            told(found.rows_done - seen)
            seen = found.rows_done

        return session.client.exports.wait(export.export_id, told=tell)


def _month(text: str) -> tuple[str, str]:
    try:
        first = datetime.strptime(text, "%Y-%m").date()  # noqa: DTZ007 - a month has no zone
    except ValueError:
        raise Wrong(f"{text!r} is no month; 2026-10 would be") from None
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return first.isoformat(), following.fromordinal(following.toordinal() - 1).isoformat()


def _table(exports: Sequence[Export], now: datetime) -> RenderableType:
    if not exports:
        return "No exports. `clockhouse exports create focus --month 2026-10` makes one."
    made = tables.table(
        "export", "data", "format", "from", "to", "state", "rows", "asked for", right=("rows",)
    )
    for one in exports:
        made.add_row(
            one.export_id,
            one.dataset,
            one.format,
            str(one.from_),
            str(one.to),
            tables.state(one.state),
            f"{one.rows_done:,}",
            moment(one.created_at, now),
        )
    return made


def _card(export: Export, now: datetime) -> RenderableType:
    of = "" if export.rows_expected is None else f" of about {export.rows_expected:,}"
    rows = f"{export.rows_done:,}" + ("" if export.over else of)
    said = tables.card(
        (
            ("export", export.export_id),
            ("data", f"{export.dataset} as {export.format}"),
            ("days", f"{export.from_} to {export.to}"),
            ("state", tables.state(export.state)),
            ("rows", rows),
            ("error", export.error),
            ("kept until", moment(export.expires_at, now) if export.expires_at else None),
        )
    )
    if not export.files:
        return said
    made = tables.table("file", "rows", "bytes", "SHA-256", right=("rows", "bytes"))
    for file in export.files:
        made.add_row(file.name, "" if file.rows is None else f"{file.rows:,}", f"{file.bytes:,}", file.sha256)
    hint = f"`clockhouse exports download {export.export_id}` fetches {counted(len(export.files), 'file')}."
    return Group(said, made, f"[dim]{escape(hint)}[/dim]")


def _schedules(found: Sequence[ExportSchedule]) -> RenderableType:
    if not found:
        return "Nothing is exported regularly. `clockhouse exports schedule focus monthly` begins."
    made = tables.table("data", "format", "every")
    for one in found:
        made.add_row(one.dataset, one.format, "day" if one.cadence == "DAILY" else "month")
    return made
