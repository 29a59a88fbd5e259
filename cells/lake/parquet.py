"""Runs as Parquet: the schema, a writer of files of bounded size."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cells.history import COLUMNS, LakeFile, LakeRow

_INSTANT = pa.timestamp("us", tz="UTC")
_TYPES = {
    "scheduled_for": _INSTANT,
    "due_at": _INSTANT,
    "released_at": _INSTANT,
    "claimed_at": _INSTANT,
    "started_at": _INSTANT,
    "finished_at": _INSTANT,
    "ordinal": pa.int32(),
    "version": pa.int32(),
    "series": pa.int32(),
    "attempt": pa.int32(),
    "skipped": pa.int32(),
    "kind": pa.int16(),
    "priority": pa.int16(),
    "http_status": pa.int16(),
    "epoch": pa.int64(),
    "cancel_requested": pa.bool_(),
    "at_most_once": pa.bool_(),
}
SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in COLUMNS])

MANIFEST = "manifest.json"
#: A file is closed when it has at least so many runs.
ROWS_PER_FILE = 500_000


def day_prefix(*, region: str, cell: str, day: date) -> str:
    """The folder of a day; its parts are read as columns by what knows Hive's partitions."""
    return f"{cell_prefix(region=region, cell=cell)}date={day.isoformat()}/"


def cell_prefix(*, region: str, cell: str) -> str:
    """The folder of a cell's runs."""
    return f"runs/region={region}/cell={cell}/"


def day_of(name: str) -> date | None:
    """Which day a file's name belongs to."""
    for part in name.split("/"):
        if part.startswith("date="):
            return date.fromisoformat(part.removeprefix("date="))
    return None


class DayWriter:
    """Writes pages of runs into files in a scratch folder. One row group a page: what is sorted by
    tenant is found by the statistics of row groups."""

    def __init__(self, scratch: Path, *, prefix: str, rows_per_file: int = ROWS_PER_FILE) -> None:
        self._scratch, self._prefix, self._rows_per_file = scratch, prefix, rows_per_file
        self._writer: pq.ParquetWriter | None = None
        self._path = scratch
        self._rows = 0
        self.files: list[tuple[LakeFile, Path]] = []  # those that are complete

    def add(self, rows: Sequence[LakeRow]) -> None:
        """One page."""
        if self._writer is None:
            self._path = self._scratch / f"part-{uuid.uuid4().hex}.parquet"
            self._writer = pq.ParquetWriter(self._path, SCHEMA, compression="zstd")
        columns = [
            pa.array(values, type=field.type)
            for values, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
        ]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=SCHEMA))
        self._rows += len(rows)
        if self._rows >= self._rows_per_file:
            self.close()

    def close(self) -> None:
        """Complete the file at hand."""
        if self._writer is None:
            return
        self._writer.close()
        with self._path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").digest()
        found = LakeFile(
            name=self._prefix + self._path.name,
            rows=self._rows,
            size=self._path.stat().st_size,
            sha256=sha256,
        )
        self.files.append((found, self._path))
        self._writer, self._rows = None, 0


def manifest(day: date, *, generation: int, overlapping: bool, files: Sequence[LakeFile]) -> bytes:
    """What tells other readers which files make up a day. `overlapping`: a run may be in several; the
    greatest (series, epoch) is its last state."""
    return json.dumps(
        {
            "day": day.isoformat(),
            "generation": generation,
            "overlapping": overlapping,
            "rows": sum(file.rows for file in files),
            "files": [
                {
                    "name": file.name.rpartition("/")[2],
                    "rows": file.rows,
                    "bytes": file.size,
                    "sha256": file.sha256.hex(),
                }
                for file in files
            ],
        },
        indent=1,
    ).encode()
