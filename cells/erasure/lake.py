"""A tenant's rows out of the files of the history lake: each file that has some is written anew without them.

Whoever does this is the one who writes the lake, so that no file with old rows becomes part of it meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from cells.history import LakeFile
from cells.lake.cache import fetch_verified
from cells.lake.files import LakeFiles
from cells.lake.writer import Place
from cells.store.database import Connection
from cells.store.transfer import TransferStore

#: Whoever erases writes the lake under this host's number, for so long (seconds).
_HOST, _HELD_SECONDS = -1, 300.0
#: Files looked at with one question.
_PAGE = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """A file that is part of the lake."""

    day: date
    file: LakeFile
    runs: bool  # of runs, or of workflows

    @property
    def folder(self) -> str:
        return self.file.name.rpartition("/")[0]


class HistoryEraser:
    """Of one cell."""

    def __init__(self, store: TransferStore, files: LakeFiles, place: Place) -> None:
        self._store, self._files, self._place = store, files, place

    async def erase(
        self, connection: Connection, tenant: uuid.UUID, *, after: str, until: float, counts: Counter[str]
    ) -> tuple[str, str]:
        """Goes on behind the file `after`, for so long (monotonic). What it waits for (empty: all is done),
        and the name behind which the next call goes on."""
        held = await self._store.row(connection, "lake_take", host=_HOST, seconds=_HELD_SECONDS)
        if held is None:
            return "another process writes the history at the moment", after
        try:
            while page := await self._page(connection, after):
                for known in page:
                    if time.monotonic() > until:
                        return "removes what is in the history", after
                    await self._file(connection, known, tenant, counts)
                    after = known.file.name
            await self._strays(connection, tenant, counts)
            return "", after
        finally:
            await self._store.do(connection, "lake_leave", host=_HOST)

    async def _page(self, connection: Connection, after: str) -> Sequence[_Known]:
        rows = await self._store.rows(connection, "cell_lake_files", after=after, limit=_PAGE)
        return [
            _Known(day=day, file=LakeFile(name=name, rows=rows, size=size, sha256=bytes(sha256)), runs=runs)
            for name, day, rows, size, sha256, runs in rows
        ]

    async def _file(
        self, connection: Connection, known: _Known, tenant: uuid.UUID, counts: Counter[str]
    ) -> None:
        """One file: as it was, without the tenant's rows, or gone."""
        with tempfile.TemporaryDirectory(prefix="clockhouse-erasure-") as scratch:
            path = Path(scratch) / "old"
            await asyncio.to_thread(fetch_verified, self._files, known.file, path)
            if not await asyncio.to_thread(_names, path, tenant):
                return
            left = Path(scratch) / f"part-{uuid.uuid4().hex}.parquet"
            rows = await asyncio.to_thread(_without, path, tenant, left)
            new = f"{known.folder}/{left.name}"
            made: dict[str, Any] = {"new": new, "rows": rows, "bytes": 0, "sha256": b""}
            if rows:
                await asyncio.to_thread(self._files.put, new, left)
                made |= {"bytes": left.stat().st_size, "sha256": _sha256(left)}
            made |= {"day": known.day, "old": known.file.name}
            if known.runs:
                answer = await self._store.row(connection, "cell_lake_swap_runs", **made)
            else:
                answer = await self._store.row(connection, "lake_swap_workflows", tenant=tenant, **made)
            found, generation, overlapping = answer or (0, 0, False)
            if not found:  # it expired meanwhile
                await asyncio.to_thread(self._files.delete, [new])
                return
            if known.runs:
                await self._describe(connection, known, Path(scratch), generation, overlapping=overlapping)
            await asyncio.to_thread(self._files.delete, [known.file.name])
        counts["lake_files"] += 1
        counts["lake_rows"] += known.file.rows - rows

    async def _describe(
        self, connection: Connection, known: _Known, scratch: Path, generation: int, *, overlapping: bool
    ) -> None:
        """The day's manifest follows."""
        from cells.lake.parquet import MANIFEST, manifest

        rows = await self._store.rows(connection, "lake_files", day=known.day)
        files = [LakeFile(name=n, rows=r, size=s, sha256=bytes(h)) for n, r, s, h in rows]
        path = scratch / MANIFEST
        path.write_bytes(manifest(known.day, generation=generation, overlapping=overlapping, files=files))
        await asyncio.to_thread(self._files.put, f"{known.folder}/{MANIFEST}", path)

    async def _strays(self, connection: Connection, tenant: uuid.UUID, counts: Counter[str]) -> None:
        """Files that are no part of the lake: a writer that crashed left them."""
        from cells.lake.parquet import cell_prefix
        from cells.lake.workflow_files import workflows_prefix

        known: set[str] = set()
        after = ""
        while page := await self._page(connection, after):
            known |= {one.file.name for one in page}
            after = page[-1].file.name
        region, cell = self._place.region, self._place.cell
        for prefix in (cell_prefix(region=region, cell=cell), workflows_prefix(region=region, cell=cell)):
            for name in await asyncio.to_thread(self._parts, prefix):
                if name in known:
                    continue
                with tempfile.TemporaryDirectory(prefix="clockhouse-erasure-") as scratch:
                    path = Path(scratch) / "stray"
                    await asyncio.to_thread(self._files.fetch, name, path)
                    if await asyncio.to_thread(_names, path, tenant):
                        await asyncio.to_thread(self._files.delete, [name])
                        counts["lake_files"] += 1

    def _parts(self, prefix: str) -> list[str]:
        return [file.name for file in self._files.list(prefix) if file.name.endswith(".parquet")]


def _names(path: Path, tenant: uuid.UUID) -> bool:
    """Whether a file has rows of a tenant. Statistics of row groups tell at once where it has none."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    wanted = str(tenant)
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            told = file.metadata.row_group(number).column(0).statistics
            if told is not None and told.has_min_max and not told.min <= wanted <= told.max:
                continue
            column = file.read_row_group(number, columns=["tenant_id"])["tenant_id"]
            if pc.any(pc.equal(column, wanted)).as_py():
                return True
    return False


def _without(path: Path, tenant: uuid.UUID, to: Path) -> int:
    """Writes the rows of all others; how many there are."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rows = 0
    with pq.ParquetFile(path) as file, pq.ParquetWriter(to, file.schema_arrow, compression="zstd") as writer:
        for number in range(file.num_row_groups):
            group = file.read_row_group(number)
            kept = group.filter(pc.not_equal(group["tenant_id"], str(tenant)))
            if kept.num_rows:
                writer.write_table(kept)
                rows += kept.num_rows
    return rows


def _sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
