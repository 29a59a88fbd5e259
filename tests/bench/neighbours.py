"""Many tenants on one cell: a flood of one of them beside others that are quiet."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from cells.domain import ids
from tests.bench.cell import BenchCell, bench_cell
from tests.bench.flood import ALL, START_SECONDS

FLOOD = 500_000
QUIET = 50
#: The quiet ones have a job a second each, so long before the flood and so long beside it (seconds).
ALONE, BESIDE = 20, 20
#: What a quiet tenant's lag may grow to (p99): so many times that without the flood, or so many ms.
TIMES, LEAST_MS = 2, 100
#: Jobs of the flood that are written and loaded in a second at least.
_PER_SECOND = 6_000


def quiet_tenants(cell: BenchCell, count: int) -> Sequence[BenchCell]:
    """The same cell as further tenants see it, each with a target of its own."""
    views = [
        replace(cell, tenant_id=ids.fresh_id(now_ms=number, entropy=os.urandom(10)))
        for number in range(1, count + 1)
    ]
    for view in views:
        asyncio.run(view.prepare())
    return views


def beside_a_flood(flood: int = FLOOD, *, quiet: int = QUIET) -> Mapping[str, float]:
    """Figures of the quiet tenants before (`alone_…`) and beside (`beside_…`) a flood of one other tenant,
    all of which is due at one instant. Half of them are due at whole seconds, and so with the flood."""
    with bench_cell() as cell:
        views = quiet_tenants(cell, quiet)
        ready_in = timedelta(seconds=START_SECONDS + quiet * 0.4 + flood / _PER_SECOND)
        begin = datetime.now(UTC).replace(microsecond=0) + ready_in
        flood_at = begin + timedelta(seconds=ALONE)
        cell.fill(flood, since=flood_at, span=timedelta(0))
        for number, view in enumerate(views):
            within = timedelta(milliseconds=1000 * number // quiet if number % 2 else 0)
            view.write_jobs([begin + timedelta(seconds=second) + within for second in range(ALONE + BESIDE)])
        count = quiet * (ALONE + BESIDE)
        quietly = f"tenant_id <> '{cell.tenant_id}'"
        at = flood_at.isoformat()
        with cell.running({"cell": ALL}):
            late = max(0.0, (datetime.now(UTC) - begin).total_seconds())
            until_begin = max(0.0, (begin - datetime.now(UTC)).total_seconds())
            cell.wait_for_runs(count, timeout=until_begin + ALONE + BESIDE + 120, where=quietly)
            ended = cell.count_runs(f"tenant_id = '{cell.tenant_id}' AND finished_at IS NOT NULL")
            alone = cell.lag_ms(f"{quietly} AND due_at < '{at}'")
            beside = cell.lag_ms(f"{quietly} AND due_at >= '{at}'")
            stages = cell.stages_ms(f"{quietly} AND due_at >= '{at}'")
            early = cell.lag_ms()["early"]
    return {
        **{f"alone_{name}": value for name, value in alone.items()},
        **{f"beside_{name}": value for name, value in beside.items()},
        **{f"beside_{name}": value for name, value in stages.items()},
        "may_be_ms": max(TIMES * alone["lag_p99_ms"], LEAST_MS),
        "flood_ended_meanwhile": ended,
        "early": early,
        "ready_after_begin_seconds": late,
    }
