"""Writes an export under a lease.

A crash anywhere leaves no half file under its final name: files are written in a scratch folder, put whole,
and named after their content; the manifest comes last, and what it does not name is swept away behind it.
Whoever is overtaken finds that out at the next page, and what it put until then is in nobody's manifest.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from django.conf import settings
from django.db import connection

from billing.exports import reading
from billing.exports.columns import Column, schema_of
from billing.exports.focus import PRODUCT, VERSION
from billing.exports.machine import Dataset, Format
from billing.exports.models import Export
from billing.exports.places import SCRATCH, LakeFiles, Retryable, folder_of, open_place, sweep
from billing.exports.writing import Part, PartWriter, part_of
from billing.ids import TENANT, encode
from billing.refusals import Refused
from billing.sql import named_sql

_SQL = named_sql("exports")
_LOG = structlog.get_logger(__name__)
#: Tries, and the longest pause between two (seconds).
_TRIES, _LONGEST_PAUSE = 8, 600
#: Rows between two looks at the lease, and the seconds that pass at least between two renewals.
_ROWS_A_LOOK, _SECONDS_A_LOOK = 2_000, 1.0
SCHEMA, MANIFEST = "schema.json", "manifest.json"


class Overtaken(Exception):
    """The lease is somebody else's: nothing that is done from here on counts."""


@dataclass(kw_only=True, slots=True)
class Held:
    """An export under our lease."""

    export: Export
    lease: uuid.UUID
    clock: Callable[[], float] = time.monotonic
    _said: float = field(default=float("-inf"))

    def tell(self, done: int, *, expected: int | None = None, now: bool = False) -> None:
        """Renews the lease and says how far it is; `Overtaken` if it is not ours any more."""
        if not now and self.clock() - self._said < _SECONDS_A_LOOK:
            return
        self._said = self.clock()
        if not self._move("progress", done=done, expected=expected, seconds=lease_seconds()):
            raise Overtaken(str(self.export))

    def finish(self, files: Sequence[Mapping[str, Any]], rows: int) -> None:
        """All of it is there."""
        days = settings.BILLING_EXPORTS["kept_days"]
        if not self._move("finish", files=json.dumps(list(files)), done=rows, days=days):
            raise Overtaken(str(self.export))

    def failed(self, error: str, *, for_good: bool) -> None:
        """Later again, or never."""
        tries = self.export.attempts
        if for_good or tries >= _TRIES:
            self._move("give_up", error=error[:1000])
        else:
            self._move("retry", error=error[:1000], delay=min(_LONGEST_PAUSE, 2**tries))

    def _move(self, name: str, **parameters: Any) -> bool:
        return _execute(name, id=self.export.id, lease=self.lease, **parameters)


def lease_seconds() -> int:
    """How long a worker may be silent until another takes over."""
    return int(settings.BILLING_EXPORTS["lease_seconds"])


def _execute(name: str, **parameters: Any) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_SQL[name], parameters)
        return cursor.fetchone() is not None


def due(limit: int = 20) -> list[uuid.UUID]:
    """Exports that can be taken now."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["due"], {"limit": limit})
        return [row[0] for row in cursor.fetchall()]


def take(export_id: uuid.UUID) -> Held | None:
    """The export under a lease of ours, if it waits for somebody."""
    lease = uuid.uuid4()
    parameters = {"id": export_id, "lease": lease, "seconds": lease_seconds()}
    if not any(_execute(name, **parameters) for name in ("begin", "take_over")):
        return None
    return Held(export=Export.objects.get(pk=export_id), lease=lease)


def run(export_id: uuid.UUID) -> bool:
    """Writes an export that waits. True: it is done. What fails is tried again later, eight times."""
    held = take(export_id)
    if held is None:
        return False
    try:
        if held.export.attempts > _TRIES:  # each of its workers died over it
            held.failed(held.export.error or "its workers ended before it was written", for_good=True)
            return False
        _write(held)
    except Overtaken:
        _LOG.warning("export was taken over", export=str(held.export))
        return False
    except Refused as refused:
        held.failed(str(refused), for_good=True)
        return False
    except Exception as e:  # noqa: BLE001 - whatever went wrong, it is kept, counted and tried again
        _LOG.warning("export failed", export=str(held.export), error=f"{type(e).__name__}: {e}")
        held.failed(f"{type(e).__name__}: {e}", for_good=False)
        return False
    return True


def _write(held: Held) -> None:
    export = held.export
    dataset = Dataset(export.dataset)
    wanted = reading.Wanted(
        dataset=dataset, tenant_id=export.about_tenant_id, since=export.since, until=export.until,
        at=export.created_at,
    )  # fmt: skip
    place, folder = open_place(export.place), folder_of(export)
    held.tell(0, expected=reading.expected(wanted), now=True)
    with tempfile.TemporaryDirectory(prefix=SCRATCH) as scratch:
        output = _Output(held, place, folder, Path(scratch), reading.COLUMNS[dataset])
        for row in reading.rows_of(wanted):
            output.add(row)
        output.close()
        held.finish(output.files, output.rows)
    try:
        # Only now: until it was done, what is not ours might have been of whoever overtook us.
        sweep(place, folder, kept=frozenset(file["name"] for file in output.files))
    except Retryable as away:
        _LOG.warning("files of other tries stay until it expires", export=str(export), error=str(away))


class _Output:
    """The files of one try."""

    def __init__(
        self, held: Held, place: LakeFiles, folder: str, scratch: Path, columns: Sequence[Column]
    ) -> None:
        self._held, self._place, self._folder, self._scratch = held, place, folder, scratch
        export = held.export
        self._columns = columns
        self._writer = PartWriter(
            scratch,
            stem=f"{export.dataset.lower().replace('_', '-')}-{export.since.isoformat()}",
            file_format=Format(export.format),
            columns=columns,
            rows_per_file=settings.BILLING_EXPORTS["rows_per_file"],
        )
        self.rows = 0
        self.files: list[dict[str, Any]] = []
        self._books: set[str] = set()

    def add(self, row: Mapping[str, Any]) -> None:
        self.rows += 1
        if book := row.get("x_PriceBookVersion") or row.get("price_book"):
            self._books.add(book)
        self._put(self._writer.add(row), "data")
        if self.rows % _ROWS_A_LOOK == 0:
            self._held.tell(self.rows)

    def close(self) -> None:
        self._put(self._writer.close(), "data")
        focus = self._held.export.dataset == Dataset.FOCUS
        schema = schema_of(self._columns, generator=PRODUCT, focus_version=VERSION if focus else None)
        self._put(self._document(SCHEMA, schema), "schema")
        self._put(self._document(MANIFEST, self._manifest(schema)), "manifest")

    def _put(self, part: Part | None, kind: str) -> None:
        if part is None:
            return
        self._held.tell(self.rows, now=True)
        self._place.put(self._folder + part.name, part.path)
        part.path.unlink()
        self.files.append(
            {"name": part.name, "kind": kind, "rows": part.rows if kind == "data" else None,
             "bytes": part.size, "sha256": part.sha256}
        )  # fmt: skip

    def _document(self, name: str, document: Mapping[str, Any]) -> Part:
        path = self._scratch / name
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        return part_of(path, name, rows=0)

    def _manifest(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """What it consists of. Nothing in it tells one try from another."""
        export = self._held.export
        about = export.about_tenant_id
        return {
            "export_id": export.public_id,
            "dataset": export.dataset,
            "format": export.format,
            "tenant_id": None if about is None else encode(TENANT, about),
            "period_start": export.since.isoformat(),
            "period_end": export.until.isoformat(),  # half-open
            "as_of": f"{export.created_at:%Y-%m-%dT%H:%M:%SZ}",
            "rows": self.rows,
            "price_books": sorted(self._books),
            "schema_id": schema["Schema"]["SchemaId"],
            "files": [file for file in self.files if file["kind"] != "manifest"],
        }
