"""Writing a day of runs to the lake, and proving that it is there.

A day is written page by page in short transactions: what ends meanwhile, or is set going again, gets a
further file later. Files become part of the lake in one transaction of the store; until then they are
nobody's, and a crash leaves nothing but files that a later round removes.
"""

from __future__ import annotations

import asyncio
import enum
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

from cells.history import LakeDay, LakeFile, LakePlace, LakeRow
from cells.lake.cache import Damaged, fetch_verified
from cells.lake.files import LakeFiles
from cells.ports import Retryable, Store
from cells.scratch import scratch_folder

#: Runs read in one transaction.
PAGE = 20_000
#: A run's end is dated by its host, and written a while later: a further file reaches back so far.
_OVERLAP = timedelta(hours=1)
#: What verifying a day's files may take (seconds).
_VERIFY_SECONDS = 900.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Whose lake it is."""

    region: str
    cell: str


class Verdict(enum.Enum):
    """What comparing a day's files with the store found."""

    SAME = enum.auto()  # the store's rows may go
    UNFINISHED = enum.auto()  # some runs are not over
    DIFFERS = enum.auto()  # the files have to be written anew


class Lost(Retryable):
    """Another process wrote this day meanwhile."""


class LakeWriter:
    """One day at a time. `renew` is awaited now and then during long work; it raises when the right to
    write was lost."""

    def __init__(
        self,
        store: Store,
        files: LakeFiles,
        place: Place,
        *,
        renew: Callable[[], Awaitable[None]],
        page: int = PAGE,
        rows_per_file: int | None = None,
    ) -> None:
        self._store, self._files, self._place, self._renew = store, files, place, renew
        self._page, self._rows_per_file = page, rows_per_file

    async def write(self, day: LakeDay, *, further: bool = False) -> int:
        """Write what is over of a day: all of it, or what ended since the last look into a further file.
        How many rows."""
        ended_from = day.looked_at - _OVERLAP if further and day.looked_at is not None else None
        _, unfinished, _ = await self._sum(day.day)
        return await self._commit(
            day, self._pages(day.day, ended_from), further=further, unfinished=unfinished, looked_at=day.now
        )

    async def write_rows(self, day: LakeDay, rows: Sequence[LakeRow]) -> int:
        """Put some runs of a day into a further file; the day is in the lake only, from then on."""

        async def once() -> AsyncIterator[Sequence[LakeRow]]:
            yield sorted(rows, key=lambda row: (row[0], row[2], row[1], row[3]))

        return await self._commit(
            day, once(), further=True, unfinished=0, looked_at=day.now, gone=not day.partitioned
        )

    async def verify(self, day: date) -> Verdict:
        """Whether the lake holds a day exactly as the store does: every file as it was written, as many
        runs, each in the same state."""
        from cells.lake.engine import Engine

        rows, unfinished, digest = await self._sum(day)
        if unfinished:
            return Verdict.UNFINISHED
        files = await self._store.lake_files(day)
        held, total = 0, 0
        with scratch_folder("lake") as folder:
            paths = [folder / f"{i}.parquet" for i in range(len(files))]
            for file, path in zip(files, paths, strict=True):
                try:
                    await asyncio.to_thread(fetch_verified, self._files, file, path)
                except Damaged:
                    return Verdict.DIFFERS
                await self._renew()
            if paths:
                engine = Engine(folder)
                try:
                    (found,) = await engine.ask("lake_digest", paths, seconds=_VERIFY_SECONDS)
                    held, total = found["runs"], int(found["digest"])
                finally:
                    engine.close()
        return Verdict.SAME if (held, total) == (rows, digest) else Verdict.DIFFERS

    async def _sum(self, day: date) -> tuple[int, int, int]:
        rows = unfinished = digest = 0
        after: LakePlace | None = None
        while True:
            page = await self._store.lake_check(day, after=after, limit=self._page)
            rows, unfinished, digest = rows + page.rows, unfinished + page.unfinished, digest + page.digest
            if page.rows < self._page:
                return rows, unfinished, digest
            after = page.last
            await self._renew()

    async def _pages(self, day: date, ended_from: datetime | None) -> AsyncIterator[Sequence[LakeRow]]:
        after: LakePlace | None = None
        while True:
            rows = await self._store.lake_page(day, after=after, ended_from=ended_from, limit=self._page)
            if rows:
                yield rows
            if len(rows) < self._page:
                return
            tenant, parent, at, ordinal = rows[-1][:4]
            after = (uuid.UUID(tenant), at, uuid.UUID(parent), ordinal)
            await self._renew()

    async def _commit(
        self,
        day: LakeDay,
        pages: AsyncIterator[Sequence[LakeRow]],
        *,
        further: bool,
        unfinished: int,
        looked_at: datetime,
        gone: bool = False,
    ) -> int:
        from cells.lake.parquet import ROWS_PER_FILE, DayWriter, day_prefix

        prefix = day_prefix(region=self._place.region, cell=self._place.cell, day=day.day)
        with scratch_folder("lake") as folder:
            writer = DayWriter(folder, prefix=prefix, rows_per_file=self._rows_per_file or ROWS_PER_FILE)
            uploaded: list[LakeFile] = []

            async def upload() -> None:
                for file, path in writer.files[len(uploaded) :]:
                    await asyncio.to_thread(self._files.put, file.name, path)
                    path.unlink()
                    uploaded.append(file)
                    await self._renew()

            async for rows in pages:
                await asyncio.to_thread(writer.add, rows)
                await upload()
            await asyncio.to_thread(writer.close)
            await upload()
            removed = await self._store.lake_commit(
                day.day,
                base=day.generation,
                files=uploaded,
                further=further,
                unfinished=unfinished,
                looked_at=looked_at,
                gone=gone,
            )
            if removed is None:
                await asyncio.to_thread(self._files.delete, [file.name for file in uploaded])
                raise Lost(f"another process wrote {day.day}")
            await self._describe(day.day, prefix, folder)
            await asyncio.to_thread(self._files.delete, list(removed))
        return sum(file.rows for file in uploaded)

    async def _describe(self, day: date, prefix: str, folder: Path) -> None:
        from cells.lake.parquet import MANIFEST, manifest

        (state,) = [known for known in await self._store.lake_calendar() if known.day == day]
        files = await self._store.lake_files(day)
        path = folder / MANIFEST
        path.write_bytes(
            manifest(day, generation=state.generation, overlapping=state.overlapping, files=files)
        )
        await asyncio.to_thread(self._files.put, prefix + MANIFEST, path)


def by_day(rows: Sequence[LakeRow]) -> dict[date, list[LakeRow]]:
    """Runs by the day they were scheduled for."""
    days: defaultdict[date, list[LakeRow]] = defaultdict(list)
    for row in rows:
        days[row[2].date()].append(row)
    return dict(days)
