"""`clockhouse tenant-export`"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape

from controlplane.client.cli import tables
from controlplane.client.cli.job_options import Limit
from controlplane.client.cli.session import BAD_OUTCOME, Session, Wrong, command, documents
from controlplane.client.cli.wording import counted, moment
from controlplane.client.tenant_export_calls import TenantExport, faults_of

app = typer.Typer(no_args_is_help=True, help="Everything the tenant has, in JSON Lines with a manifest.")

ExportId = Annotated[str, typer.Argument(metavar="EXPORT", help="Its id: tex_…")]
Folder = Annotated[Path, typer.Option("--to-folder", "-o", help="Where files are written.")]
#: How often a running export is looked at (seconds).
_PAUSE = 1.0


@command(app, "create")
def create(
    session: Session,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until it is written.")] = True,
) -> None:
    """Export everything. Exit status 1 if it could not be written."""
    found = session.client.tenant_exports.create()
    if wait:
        found = _waited(session, found)
    session.answer(found.raw, lambda: _table(session, [found]))
    if found.state == "FAILED":
        raise typer.Exit(BAD_OUTCOME)


@command(app, "list")
def list_(session: Session, limit: Limit = 20) -> None:
    """List exports, the newest first."""
    found = session.take(session.client.tenant_exports.list(), limit)
    session.answer(documents(found), lambda: _table(session, found))


@command(app, "show")
def show(session: Session, export: ExportId) -> None:
    """Show how far an export is."""
    found = session.client.tenant_exports.get(export)
    session.answer(found.raw, lambda: _table(session, [found]))


@command(app, "download")
def download(session: Session, export: ExportId, folder: Folder = Path()) -> None:
    """Write an export's files into a folder, each verified. Waits for it, if it is not done yet."""
    found = session.client.tenant_exports.get(export)
    if not found.over:
        found = _waited(session, found)
    if found.state != "DONE":
        why = f": {found.error}" if found.error else ""
        raise Wrong(f"the export is {found.state}{why}; there is nothing to fetch")
    folder.mkdir(parents=True, exist_ok=True)
    total = sum(file.bytes for file in found.files)
    with session.progress("Fetching, bytes …", total=total) as told:
        files = session.client.tenant_exports.download(found, folder, told=told)
    written = [str(file) for file in files]
    session.answer({"files": written}, lambda: "\n".join(written))


@command(app, "verify")
def verify(
    session: Session, folder: Annotated[Path, typer.Argument(help="Where an export was written.")]
) -> None:
    """Compare a folder with its manifest: files, checksums, rows. Exit status 1 if anything differs."""
    counts, faults = faults_of(folder)
    said = f"{counted(sum(counts.values()), 'row')} of {counted(len(counts), 'kind')}, as the manifest says."
    session.answer(
        {"holds": not faults, "counts": counts, "faults": faults},
        lambda: "\n".join(map(escape, faults)) if faults else said,
    )
    if faults:
        raise typer.Exit(BAD_OUTCOME)


def _waited(session: Session, export: TenantExport) -> TenantExport:
    with session.progress(f"Exporting {export.tenant_export_id}, kinds …", total=len(export.kinds)) as told:
        seen = 0
        while not export.over:
            time.sleep(_PAUSE)
            export = session.client.tenant_exports.get(export.tenant_export_id)
            told(export.kinds_done - seen)
            seen = export.kinds_done
    return export


def _table(session: Session, exports: Sequence[TenantExport]) -> RenderableType:
    if not exports:
        return "No exports. `clockhouse tenant-export create` makes one."
    made = tables.table(
        "export", "state", "kinds", "rows", "asked for", "kept until", right=("kinds", "rows")
    )
    for one in exports:
        made.add_row(
            one.tenant_export_id,
            tables.state(one.state),
            f"{one.kinds_done} of {len(one.kinds)}",
            f"{sum(one.counts.values()):,}",
            moment(one.created_at, session.now),
            moment(one.expires_at, session.now) if one.expires_at else "",
        )
    return made
