"""`clockhouse reconciliation`: what came back with a region that was lost."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.console import RenderableType
from rich.markup import escape

from controlplane.client.cli import tables
from controlplane.client.cli.job_options import Limit
from controlplane.client.cli.session import Session, Wrong, command, documents
from controlplane.client.cli.wording import counted, moment
from controlplane.client.returned_calls import ReturnedEntry

app = typer.Typer(no_args_is_help=True, help="What a lost region had done, once it came back.")

_PAGE = 200
_COLUMNS = (
    *("region", "epoch", "at", "kind", "verb", "thing", "id", "idempotency_key", "region_policy", "state"),
    *("fencing_token", "due_at", "claimed_at", "started_at", "finished_at", "outcome", "note", "settled_at"),
    *("here_state", "here_fencing_token", "here_finished_at"),
)


@command(app, "list")
def list_(session: Session, limit: Limit = 50) -> None:
    """List what a lost region had done, oldest first: runs with their keys, and whether each was called
    again; decisions, and what became of them."""
    found = session.take(session.client.topology.reconciliation(limit=_PAGE), limit)
    session.answer(documents(found), lambda: _table(session, found))


@command(app, "download")
def download(
    session: Session,
    file: Annotated[Path | None, typer.Option("--file", "-o", help="Where to; stdout if absent.")] = None,
    form: Annotated[str, typer.Option("--format", help="jsonl or csv.")] = "jsonl",
) -> None:
    """Write the whole report as JSON Lines or CSV."""
    if form not in ("jsonl", "csv"):
        raise Wrong(f"--format is jsonl or csv, not {form}")
    entries = session.client.topology.reconciliation(limit=_PAGE)
    if file is None:
        _write(sys.stdout, form, entries)
        return
    with file.open("w", newline="", encoding="utf-8") as opened:
        written = _write(opened, form, entries)
    session.answer({"file": str(file), "entries": written}, lambda: f"{counted(written, 'entry')} in {file}")


def _write(to: TextIO, form: str, entries: Iterable[ReturnedEntry]) -> int:
    written = 0
    table = csv.DictWriter(to, _COLUMNS, extrasaction="ignore") if form == "csv" else None
    if table is not None:
        table.writeheader()
    for entry in entries:
        written += 1
        if table is None:
            to.write(json.dumps(entry.raw, ensure_ascii=False) + "\n")
        else:
            table.writerow(_flat(entry.raw))
    return written


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    here = {f"here_{name}": value for name, value in (entry.get("here") or {}).items()}
    return {**entry, **(entry.get("times") or {}), **here}


def _table(session: Session, found: Sequence[ReturnedEntry]) -> RenderableType:
    if not found:
        return "Nothing came back: no region was lost, or what it had done was known."
    made = tables.table("when", "region", "what", "which", "there", "became", "why")
    for one in found:
        made.add_row(
            moment(one.at, session.now),
            escape(one.region),
            escape(one.verb or one.kind.lower()),
            escape(one.idempotency_key or one.id),
            escape(one.state or ""),
            escape(one.outcome),
            escape(one.note or ""),
        )
    return made
