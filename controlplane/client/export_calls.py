"""The API's requests about exports, and how their files are fetched."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import BinaryIO

from controlplane.client.decoding import Document
from controlplane.client.errors import UnexpectedAnswer
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.wire import Answer, Call, path, query, without_none


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportFile(Document):
    """A file of an export; `rows` is None of its schema and manifest."""

    name: str
    kind: str
    rows: int | None
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Export(Document):
    """Files that were asked for; both days are included. `files` are there once it is DONE."""

    export_id: str
    tenant_id: str | None
    dataset: str  # USAGE, INVOICE_LINES, FOCUS
    format: str  # CSV, PARQUET
    from_: date
    to: date
    state: str  # REQUESTED, RUNNING, DONE, FAILED, EXPIRED
    scheduled: bool = False
    rows_done: int = 0
    rows_expected: int | None
    error: str | None
    files: Sequence[ExportFile] = ()
    created_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None

    @property
    def over(self) -> bool:
        """Whether nothing more happens."""
        return self.state not in ("REQUESTED", "RUNNING")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportSchedule(Document):
    """What is exported every day or month."""

    dataset: str
    format: str
    cadence: str  # DAILY, MONTHLY
    created_at: datetime | None
    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportSchedules(Document):
    """All of them, one for each data set at most."""

    items: Sequence[ExportSchedule] = ()


def create_export(
    dataset: str,
    since: date | str,
    until: date | str,
    *,
    format: str | None = None,  # noqa: A002 - as the API calls it
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Export]:
    """Ask for USAGE, INVOICE_LINES or FOCUS data of some days, both included, as CSV (if nothing is said)
    or PARQUET. The latter two come in whole months."""
    return Call(
        method="POST",
        path="/v1/exports",
        read=reads(Export),
        body=without_none(
            dataset=dataset,
            format=format,
            reason=reason,
            **{"from": str(since)},
            to=str(until),
        ),
        keyed=True,
        idempotency_key=idempotency_key,
    )


def list_exports(
    *, state: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Export]]:
    """Exports, the newest first."""
    return Call(
        method="GET",
        path="/v1/exports",
        read=reads_page(Export),
        query=query(state=state, limit=limit, cursor=cursor),
    )


def get_export(export_id: str) -> Call[Export]:
    """How far an export is."""
    return Call(method="GET", path=path("/v1/exports/{id}", id=export_id), read=reads(Export))


def get_export_file(export_id: str, name: str) -> Call[bytes]:
    """A file's content."""
    return Call(
        method="GET",
        path=path("/v1/exports/{id}/files/{name}", id=export_id, name=name),
        read=_content,
    )


def _content(answer: Answer) -> bytes:
    return answer.body


def list_schedules() -> Call[ExportSchedules]:
    """What is exported every day or month."""
    return Call(method="GET", path="/v1/export-schedules", read=reads(ExportSchedules))


def set_schedule(
    dataset: str,
    cadence: str,
    *,
    format: str | None = None,  # noqa: A002 - as the API calls it
) -> Call[ExportSchedule]:
    """Have a data set exported DAILY or MONTHLY from now on."""
    return Call(
        method="PUT",
        path=path("/v1/export-schedules/{dataset}", dataset=dataset),
        read=reads(ExportSchedule),
        body=without_none(cadence=cadence, format=format),
    )


def remove_schedule(dataset: str) -> Call[None]:
    """No more of them."""
    return Call(
        method="DELETE",
        path=path("/v1/export-schedules/{dataset}", dataset=dataset),
        read=lambda answer: None,
    )


@contextmanager
def arriving(file: ExportFile, folder: Path) -> Iterator[BinaryIO]:
    """Where a file is written while it arrives. It has its name once all of it is there and its SHA-256
    is what the export says; else `UnexpectedAnswer`, and nothing is left."""
    if Path(file.name).name != file.name:
        raise UnexpectedAnswer(f"a file of an export is called {file.name!r}")
    partial = folder / f"{file.name}.partial"
    try:
        with partial.open("w+b") as content:
            yield content
            content.flush()
            content.seek(0)
            found = hashlib.file_digest(content, "sha256").hexdigest()
        if found != file.sha256:
            raise UnexpectedAnswer(f"{file.name} arrived with SHA-256 {found}, it is {file.sha256}")
        partial.replace(folder / file.name)
    finally:
        partial.unlink(missing_ok=True)
