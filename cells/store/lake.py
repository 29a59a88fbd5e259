"""The history lake's side of the store (`cells.history.HistoryStore`)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta

from cells.history import DayCheck, LakeDay, LakeFile, LakePlace, LakeRow
from cells.store.arrays import blobs, from_datetime, instants, int4s, int8s, texts, uuids
from cells.store.base import StoreBase
from cells.store.database import fetch_all, fetch_one, fetch_row, run

_DAY = timedelta(days=1)
_NOBODY = uuid.UUID(int=0)
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: LakePlace = (_NOBODY, _LONG_AGO, _NOBODY, -(2**31))
#: Jobs in one transaction: each is looked for in every partition of runs.
_JOBS_PAGE = 1000


class Lake(StoreBase):
    """Days and files of the lake, and what leaves the store once it is there."""

    async def lake_take(self, *, host_id: int, seconds: float) -> bool:
        """See `HistoryStore`; so everywhere here."""
        async with self._database.transaction() as connection:
            return await fetch_one(connection, "lake_take", {"host": host_id, "seconds": seconds}) is not None

    async def lake_leave(self, *, host_id: int) -> None:
        async with self._database.transaction() as connection:
            await run(connection, "lake_leave", {"host": host_id})

    async def lake_calendar(self) -> Sequence[LakeDay]:
        async with self._database.transaction() as connection:
            return [
                LakeDay(
                    day=row[0],
                    partitioned=row[1],
                    generation=row[2] or 0,
                    rows=row[3] or 0,
                    unfinished=row[4] or 0,
                    overlapping=bool(row[5]),
                    looked_at=row[6],
                    dropped_at=row[7],
                    now=row[8],
                )
                for row in await fetch_all(connection, "lake_calendar")
            ]

    async def lake_files(self, day: date) -> Sequence[LakeFile]:
        async with self._database.transaction() as connection:
            return [
                LakeFile(name=name, rows=rows, size=size, sha256=bytes(sha256))
                for name, rows, size, sha256 in await fetch_all(connection, "lake_files", {"day": day})
            ]

    async def lake_file_names(self) -> frozenset[str]:
        async with self._database.transaction() as connection:
            return frozenset(name for (name,) in await fetch_all(connection, "lake_file_names"))

    async def lake_page(
        self, day: date, *, after: LakePlace | None, ended_from: datetime | None, limit: int
    ) -> Sequence[LakeRow]:
        parameters = _from(day, after) | {"ended_from": ended_from or _LONG_AGO, "page": limit}
        async with self._database.transaction() as connection:
            return await fetch_all(connection, "lake_page", parameters)

    async def lake_check(self, day: date, *, after: LakePlace | None, limit: int) -> DayCheck:
        async with self._database.transaction() as connection:
            rows, unfinished, digest, *last = await fetch_row(
                connection, "lake_check_page", _from(day, after) | {"page": limit}
            )
            tenant, at, parent, ordinal = last
            place = (tenant, at, parent, ordinal) if rows else None
            return DayCheck(rows=rows, unfinished=unfinished, digest=int(digest), last=place)

    async def lake_commit(
        self,
        day: date,
        *,
        base: int,
        files: Sequence[LakeFile],
        further: bool,
        unfinished: int,
        looked_at: datetime,
        gone: bool = False,
    ) -> Sequence[str] | None:
        async with self._database.transaction() as connection:
            made = await fetch_one(
                connection,
                "lake_commit_day",
                {
                    "day": day,
                    "base": base,
                    "rows": sum(file.rows for file in files),
                    "unfinished": unfinished,
                    "further": further,
                    "looked_at": looked_at,
                    "gone": gone,
                },
            )
            if made is None:
                return None
            removed: list[str] = []
            if not further:
                removed = [name for (name,) in await fetch_all(connection, "lake_remove_files", {"day": day})]
            if files:
                columns = {
                    "names": texts([file.name for file in files]),
                    "rows": int8s([file.rows for file in files]),
                    "bytes": int8s([file.size for file in files]),
                    "hashes": blobs([file.sha256 for file in files]),
                }
                await run(connection, "lake_add_files", {"day": day, **columns})
            return removed

    async def watch_runs_day(self, day: date) -> tuple[int, bool]:
        async with self._database.transaction() as connection:
            await run(connection, "purge_patience")
            seen, metered = await fetch_row(connection, "lake_watch", {"day": day})
            return seen, bool(metered)

    async def drop_runs_day(self, day: date, *, seen: int) -> bool:
        async with self._database.transaction() as connection:
            await run(connection, "purge_patience")
            (dropped,) = await fetch_row(connection, "lake_drop_day", {"day": day, "seen": seen})
            return bool(dropped)

    async def lake_strays(self, *, before: date, limit: int) -> Sequence[LakeRow]:
        async with self._database.transaction() as connection:
            return await fetch_all(connection, "lake_strays", {"before": _start(before), "page": limit})

    async def remove_strays(self, rows: Sequence[LakeRow]) -> int:
        if not rows:
            return 0
        columns = {
            "tenants": uuids([uuid.UUID(row[0]) for row in rows]),
            "parents": uuids([uuid.UUID(row[1]) for row in rows]),
            "instants": instants([from_datetime(row[2]) for row in rows]),
            "ordinals": int4s([row[3] for row in rows]),
            "states": texts([row[5] for row in rows]),
            "epochs": int8s([row[8] for row in rows]),
            "series": int4s([row[9] for row in rows]),
        }
        async with self._database.transaction() as connection:
            return (await run(connection, "lake_remove_strays", columns)).rowcount

    async def lake_expire(self, *, before: date) -> int:
        async with self._database.transaction() as connection:
            return (await run(connection, "lake_expire", {"before": before})).rowcount

    async def runs_horizon(self) -> datetime | None:
        async with self._database.transaction() as connection:
            (horizon,) = await fetch_row(connection, "lake_horizon")
            return horizon  # type: ignore[no-any-return]

    async def purge_jobs(
        self,
        *,
        ended_before: datetime,
        replaced: tuple[datetime, datetime],
        failed_before: datetime,
        page: int,
    ) -> dict[str, int]:
        steps: dict[str, dict[str, object]] = {
            "lake_ended_jobs": {"before": ended_before, "page": min(page, _JOBS_PAGE)},
            "lake_old_versions": {"since": replaced[0], "before": replaced[1], "page": page},
            "lake_dead_letters": {"before": failed_before, "page": page},
        }
        gone = {}
        for name, parameters in steps.items():
            async with self._database.transaction() as connection:
                gone[name.removeprefix("lake_")] = (await run(connection, name, parameters)).rowcount
        return gone


def _start(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _from(day: date, after: LakePlace | None) -> dict[str, object]:
    tenant, at, parent, ordinal = after or _FIRST
    span = {"from": _start(day), "until": _start(day) + _DAY}
    return span | {"tenant": tenant, "at": at, "parent": parent, "ordinal": ordinal}
