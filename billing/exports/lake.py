"""Reports for operators over the cells' history, answered by DuckDB from Parquet files: no cell is asked.

A report reads whole days, as their manifests say, in bounded time and memory, one at a time in a process.
"""

from __future__ import annotations

import enum
import hashlib
import json
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from django.conf import settings

from billing.exports.places import LakeFiles, Missing, Retryable, open_files
from billing.ids import TENANT, encode
from billing.refusals import Conflicting, Refused, Unavailable
from billing.sql import named_sql

_SQL = named_sql("lake_reports")
_MANIFEST = "manifest.json"
MOST_DAYS, MOST_ITEMS = 31, 1_000
_alone = threading.Lock()


class Report(enum.StrEnum):
    """What operators may ask."""

    FAILED_RUNS = "failed-runs"  # by region, cell and day, how its runs ended
    BUSIEST_TENANTS = "busiest-tenants"  # those with most runs
    BYTES_PER_TENANT = "bytes-per-tenant"  # those of whose runs most is kept


class TooMuch(Refused):
    """The days asked for hold more than one report may read, or take longer than it may."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    """A day of a cell, as its manifest says."""

    region: str
    cell: str
    day: date
    overlapping: bool
    files: tuple[tuple[str, int, str], ...]  # name below the lake, bytes, SHA-256


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a report says, and what it read."""

    items: Sequence[Mapping[str, Any]]
    days: int  # of cells
    files: int
    bytes: int


def answer(report: Report, since: date, until: date, *, limit: int) -> Answer:
    """A report on the half-open days [since, until).

    `Conflicting`: there is no lake. `TooMuch`: more than it may read, or longer than it may take.
    `Unavailable`: another report is being made here, or the lake cannot be reached.
    """
    lake = settings.BILLING_LAKE
    if not lake["url"]:
        raise Conflicting("this installation has no history to report on: CONTROL_LAKE says where it is")
    if not _alone.acquire(blocking=False):
        raise Unavailable("another report is being made; try again in a few seconds")
    try:
        with tempfile.TemporaryDirectory(prefix="clockhouse-report-") as scratch:
            deadline = time.monotonic() + lake["seconds"]
            place = open_files(lake["url"], endpoint=lake["endpoint"])
            days = list(days_of(place, Path(scratch), since, until))
            total = sum(size for day in days for _, size, _ in day.files)
            if total > lake["most_bytes"]:
                raise TooMuch(
                    f"these days hold {total:,} bytes, a report reads {lake['most_bytes']:,}: fewer days"
                )
            found = _asked(report, place, days, Path(scratch), deadline)
    except Retryable as e:
        raise Unavailable(f"the history cannot be reached: {e}") from e
    finally:
        _alone.release()
    return Answer(
        items=_shown(report, found)[:limit],
        days=len(days),
        files=sum(len(day.files) for day in days),
        bytes=total,
    )


def days_of(place: LakeFiles, scratch: Path, since: date, until: date) -> Iterator[Day]:
    """Every cell's days in [since, until), as their manifests say. A file that no manifest names is not
    part of the lake."""
    for stored in list(place.list("runs/")):
        *folders, name = stored.name.split("/")
        parts = dict(folder.split("=", 1) for folder in folders if "=" in folder)
        if name != _MANIFEST or not {"region", "cell", "date"} <= parts.keys():
            continue
        day = date.fromisoformat(parts["date"])
        if not since <= day < until:
            continue
        try:
            manifest = json.loads(_content(place, stored.name, scratch))
        except Missing:
            continue  # the day expired just now
        prefix = "/".join(folders)
        yield Day(
            region=parts["region"],
            cell=parts["cell"],
            day=day,
            overlapping=bool(manifest["overlapping"]),
            files=tuple((f"{prefix}/{f['name']}", f["bytes"], f["sha256"]) for f in manifest["files"]),
        )


def _content(place: LakeFiles, name: str, scratch: Path) -> bytes:
    copy = scratch / f"{uuid.uuid4().hex}.json"
    place.fetch(name, copy)
    try:
        return copy.read_bytes()
    finally:
        copy.unlink()


def _asked(
    report: Report, place: LakeFiles, days: Sequence[Day], scratch: Path, deadline: float
) -> list[tuple[Any, ...]]:
    import duckdb  # loads slowly, and few processes make reports

    found: list[tuple[Any, ...]] = []
    connection = duckdb.connect(
        config={
            "memory_limit": settings.BILLING_LAKE["memory"],
            "threads": 1,
            "temp_directory": str(scratch / "duckdb"),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )
    try:
        # A cell's day at a time: only so much has to be at hand, and the sums are small.
        for day in days:
            paths = [_at_hand(place, file, scratch, deadline) for file in day.files]
            if not paths:
                continue
            with _interrupted(connection, deadline):
                files = connection.read_parquet(
                    [str(path) for path in paths], union_by_name=True, hive_partitioning=True
                )
                files.create_view("files", replace=True)
                chosen = _SQL["latest" if day.overlapping else "once"]
                connection.sql(chosen).create_view("runs", replace=True)
                found += connection.execute(_SQL[report.value.replace("-", "_")]).fetchall()
            if place.local(day.files[0][0]) is None:
                for path in paths:
                    path.unlink()
    except duckdb.InterruptException as e:
        raise _too_long() from e
    except duckdb.OutOfMemoryException as e:
        raise TooMuch(f"a report has {settings.BILLING_LAKE['memory']} of memory: fewer days") from e
    except duckdb.Error as e:
        raise Unavailable(f"the history cannot be read: {e}") from e
    finally:
        connection.close()
    return found


def _too_long() -> TooMuch:
    return TooMuch(f"it takes longer than {settings.BILLING_LAKE['seconds']} s: ask for fewer days")


def _at_hand(place: LakeFiles, file: tuple[str, int, str], scratch: Path, deadline: float) -> Path:
    """Where a file can be read; one that is fetched is verified."""
    if time.monotonic() > deadline:
        raise _too_long()
    name, _, sha256 = file
    local: Path | None = place.local(name)
    if local is not None:
        return local
    copy = scratch / name
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        place.fetch(name, copy)
    except Missing as e:
        raise Unavailable(f"the history has no {name}; try again") from e
    with copy.open("rb") as content:
        if hashlib.file_digest(content, "sha256").hexdigest() != sha256:
            raise Unavailable(f"{name} is not what was written")
    return copy


@contextmanager
def _interrupted(connection: Any, deadline: float) -> Iterator[None]:
    timer = threading.Timer(max(0.0, deadline - time.monotonic()), connection.interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _shown(report: Report, rows: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    if report is Report.FAILED_RUNS:
        return _by_day(rows)
    names = ("runs", "attempts", "failed") if report is Report.BUSIEST_TENANTS else ("runs", "bytes")
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * len(names))
    for tenant_id, *values in rows:
        sums[tenant_id] = [a + b for a, b in zip(sums[tenant_id], values, strict=True)]
    key = names.index("runs" if report is Report.BUSIEST_TENANTS else "bytes")
    ordered = sorted(sums.items(), key=lambda item: (-item[1][key], item[0]))
    return [
        {"tenant_id": encode(TENANT, uuid.UUID(tenant)), **dict(zip(names, values, strict=True))}
        for tenant, values in ordered
    ]


def _by_day(rows: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    states: dict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
    for region, cell, day, state, runs in rows:
        states[region, cell, day][state] = runs
    return [
        {
            "region": region,
            "cell": cell,
            "day": day,
            "runs": sum(found.values()),
            "failed": found.get("FAILED", 0) + found.get("UNKNOWN", 0),
            "states": found,
        }
        for (region, cell, day), found in sorted(states.items())
    ]
