"""Days of a cell's history, written by the cells' own code."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from django.conf import settings

from cells.history import COLUMNS
from cells.lake.files import LakeFiles, open_files
from cells.lake.parquet import DayWriter, day_prefix, manifest
from controlplane.identity import TENANT, encode


def write_day(
    url: str,
    scratch: Path,
    day: date,
    *,
    cell: str,
    states: Mapping[str, int],
    region: str = "eu-1",
    tenant_id: uuid.UUID | None = None,
    again: Mapping[str, int] | None = None,
) -> str:
    """A day of a tenant's runs, so many in each state; the tenant's id. `again`: runs of the first file
    that a further file has, too, in another state, as their last one."""
    files = open_files(url, endpoint=settings.BILLING_LAKE["endpoint"])
    tenant_id = tenant_id or uuid.uuid4()
    prefix = day_prefix(region=region, cell=cell, day=day)
    start = datetime.combine(day, time(), UTC)
    parents = [uuid.UUID(int=n + 1) for n in range(sum(states.values()))]
    written = _write(files, scratch, prefix, _rows(tenant_id, start, parents, states, series=0))
    if again is not None:
        parents = parents[: sum(again.values())]
        written += _write(files, scratch, prefix, _rows(tenant_id, start, parents, again, series=1))
    path = scratch / "manifest"
    path.write_bytes(manifest(day, generation=1, overlapping=again is not None, files=written))
    files.put(f"{prefix}manifest.json", path)
    return encode(TENANT, tenant_id)


def _write(files: LakeFiles, scratch: Path, prefix: str, rows: list[tuple[object, ...]]) -> list:  # type: ignore[type-arg]
    folder = scratch / uuid.uuid4().hex
    folder.mkdir()
    writer = DayWriter(folder, prefix=prefix)
    writer.add(rows)
    writer.close()
    for file, path in writer.files:
        files.put(file.name, path)
    return [file for file, _ in writer.files]


def _rows(
    tenant_id: uuid.UUID,
    start: datetime,
    parents: list[uuid.UUID],
    states: Mapping[str, int],
    *,
    series: int,
) -> list[tuple[object, ...]]:
    ended = [state for state, count in states.items() for _ in range(count)]
    found = []
    for parent, state in zip(parents, ended, strict=True):
        values = dict.fromkeys(COLUMNS)
        values |= {  # type: ignore[arg-type]
            "tenant_id": str(tenant_id), "parent_id": str(parent), "scheduled_for": start, "ordinal": 0,
            "kind": 0, "state": state, "priority": 1, "version": 1, "epoch": 1, "series": series,
            "attempt": 2, "due_at": start, "finished_at": start + timedelta(seconds=1 + series),
            "attempts": "[1]",
            "cancel_requested": False, "skipped": 0, "at_most_once": False,
        }  # fmt: skip
        found.append(tuple(values[name] for name in COLUMNS))
    return found
