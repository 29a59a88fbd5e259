"""Holds the ledger against what cells remember of their runs, day by day.

Three figures must be one: runs that ended as the cell's journal tells them, the ledger's sum, and
the rollup (with what was adjusted since). Whole days only, which the cell has sealed and shipped.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import structlog
from django.db import connection, transaction

from billing import watermarks
from billing.cells import CellAway, Cells
from billing.cells import cells as installed_cells
from billing.months import DAY, start_of
from billing.running import going_on
from billing.sql import named_sql
from cells.contract import Metric

_SQL = named_sql("drift")
_LOG = structlog.get_logger(__name__)
METRIC = Metric.JOB_RUNS
#: How many days back are compared: a record may be late, and a cell down for a while.
LOOKS_BACK_DAYS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Figures that should be one."""

    tenant_id: uuid.UUID
    region_policy: str
    ledger: int
    rollup: int
    counted: int  # by the cell


def differences(
    counted: Mapping[tuple[uuid.UUID, str], int], kept: Mapping[tuple[uuid.UUID, str], tuple[int, int | None]]
) -> list[Difference]:
    """What is not the same. `kept`: ledger and rollup (None: being added up). Pure."""
    found = []
    for key in sorted(counted.keys() | kept.keys()):
        there = counted.get(key, 0)
        ledger, rollup = kept.get(key, (0, 0))
        if ledger != there or (rollup is not None and rollup != ledger):
            found.append(
                Difference(
                    tenant_id=key[0],
                    region_policy=key[1],
                    ledger=ledger,
                    rollup=ledger if rollup is None else rollup,
                    counted=there,
                )
            )
    return found


def check_day(cell: str, day: date, *, cells: Cells | None = None) -> list[Difference] | None:
    """Compares a cell's day and keeps what is found, but for what a person has settled with the same
    figures; None where it cannot be compared yet. Raises `CellAway`."""
    mark = watermarks.newest([cell]).get((cell, 0))
    if mark is None or mark.sealed_until is None or mark.sealed_until < start_of(day + DAY):
        return None
    told = (cells or installed_cells()).runs_of_day(cell, day)
    if not told.complete:
        return None
    of: dict[str, Any] = {"cell": cell, "day": day, "metric": METRIC.value}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_SQL["of_day"], {**of, "tenants": list({tenant for tenant, _ in told.runs})})
        kept = {
            (tenant, policy): (ledger, None if dirty else rollup)
            for tenant, policy, ledger, rollup, dirty in cursor.fetchall()
        }
        found = differences(told.runs, kept)
        columns = {"tenants": [d.tenant_id for d in found], "policies": [d.region_policy for d in found]}
        cursor.execute(_SQL["settle"], {**of, **columns})
        if found:
            figures = {
                "ledgers": [d.ledger for d in found],
                "rollups": [d.rollup for d in found],
                "counts": [d.counted for d in found],
            }
            cursor.execute(_SQL["find"], {**of, **columns, **figures})
            open_ones = set(cursor.fetchall())
            # A person has looked into the others, with these very figures.
            found = [d for d in found if (d.tenant_id, d.region_policy) in open_ones]
        looked = len({tenant for tenant, _ in kept.keys() | told.runs.keys()})
        cursor.execute(_SQL["checked"], {**of, "looked": looked, "differences": len(found)})
    for d in found:
        _LOG.error(
            "the ledger and a cell's runs are not the same", cell=cell, day=day.isoformat(),
            tenant_id=str(d.tenant_id), region_policy=d.region_policy, ledger=d.ledger, rollup=d.rollup,
            counted=d.counted,
        )  # fmt: skip
    return found


def check_all() -> int:
    """Compares every cell's newest days that were not compared lately; how many differences there are.
    A cell that is away is looked at the next time."""
    known, total = installed_cells(), 0
    for cell in known.names():
        with connection.cursor() as cursor:
            cursor.execute(_SQL["due"], {"cell": cell, "days": LOOKS_BACK_DAYS})
            days = [day for (day,) in cursor.fetchall()]
        for day in days:
            there = True
            with going_on("compare a day's usage", cell=cell, day=day.isoformat()):
                try:
                    total += len(check_day(cell, day, cells=known) or ())
                except CellAway as e:
                    _LOG.warning("usage not compared", cell=cell, error=str(e))
                    there = False
            if not there:
                break
    return total
