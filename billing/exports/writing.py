"""Rows into files of bounded size, CSV or Parquet. The same rows are the same bytes."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from billing.charging.documents import shown
from billing.exports.columns import PRECISION, Column, Kind
from billing.exports.machine import Format

#: Rows of a file, and rows that are written at once (a row group of Parquet).
ROWS_PER_FILE, ROWS_AT_ONCE = 250_000, 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A complete file. Its name has the beginning of its SHA-256: whoever writes it again writes the same
    bytes, or another name."""

    name: str
    path: Path
    rows: int
    size: int
    sha256: str


class _Sink(Protocol):
    def write(self, rows: Sequence[Mapping[str, Any]]) -> None: ...
    def close(self) -> None: ...


class PartWriter:
    """Collects rows; `add` and `close` give the files that they complete."""

    def __init__(
        self, scratch: Path, *, stem: str, file_format: Format, columns: Sequence[Column],
        rows_per_file: int = ROWS_PER_FILE,
    ) -> None:  # fmt: skip
        self._scratch, self._stem, self._format, self._columns = scratch, stem, file_format, columns
        self._rows_per_file = rows_per_file
        self._waiting: list[Mapping[str, Any]] = []
        self._sink: _Sink | None = None
        self._rows = self._parts = 0

    @property
    def _path(self) -> Path:
        return self._scratch / f"{self._stem}-{self._parts + 1:05d}"

    def add(self, row: Mapping[str, Any]) -> Part | None:
        """One row; the file that it completes."""
        self._waiting.append(row)
        if self._rows + len(self._waiting) >= self._rows_per_file:
            return self._complete()
        if len(self._waiting) >= ROWS_AT_ONCE:
            self._flush()
        return None

    def close(self) -> Part | None:
        """The last file. Where there are no rows it has none: an empty export is a file, too."""
        return self._complete() if self._rows or self._waiting or not self._parts else None

    def _flush(self) -> None:
        if self._sink is None:
            kind = _Csv if self._format is Format.CSV else _Parquet
            self._sink = kind(self._path, self._columns)
        if self._waiting:
            self._sink.write(self._waiting)
            self._rows += len(self._waiting)
            self._waiting = []

    def _complete(self) -> Part:
        self._flush()
        if self._sink is not None:
            self._sink.close()
        path = self._path
        found = part_of(path, f"{path.name}-{{digest}}.{self._format.value.lower()}", rows=self._rows)
        self._sink, self._rows = None, 0
        self._parts += 1
        return found


def part_of(path: Path, name: str, *, rows: int) -> Part:
    """A file that is complete; `{digest}` in its name is filled in."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Part(
        name=name.replace("{digest}", sha256[:12]), path=path, rows=rows, size=path.stat().st_size,
        sha256=sha256,
    )  # fmt: skip


class _Csv:
    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        self._file: io.TextIOWrapper = path.open("w", encoding="utf-8", newline="")
        self._columns = columns
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(column.name for column in columns)

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._writer.writerows([text_of(row[c.name]) for c in self._columns] for row in rows)

    def close(self) -> None:
        self._file.close()


def text_of(value: Any) -> str:
    """A value as CSV has it; nothing where it is null."""
    match value:
        case None:
            return ""
        case Decimal():
            return shown(value)
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        case date():
            return value.isoformat()
        case _:
            return str(value)


_TYPES = {
    Kind.TEXT: pa.string(),
    Kind.JSON: pa.string(),
    Kind.INSTANT: pa.timestamp("us", tz="UTC"),
    Kind.DAY: pa.date32(),
}


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Columns as Parquet has them: decimals are decimals."""
    return pa.schema(
        [
            pa.field(
                column.name,
                pa.decimal128(PRECISION, column.scale or 0)
                if column.kind is Kind.DECIMAL
                else _TYPES[column.kind],
                nullable=column.nullable,
            )
            for column in columns
        ]
    )


class _Parquet:
    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        self._schema = arrow_schema(columns)
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        arrays = [pa.array([row[field.name] for row in rows], type=field.type) for field in self._schema]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        self._writer.close()
