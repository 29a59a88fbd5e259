"""A due storm: 10,000 strict runs at one instant, of a tenant that has the allowance."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from cells.domain.job import Priority
from tests.bench.cell import bench_cell
from tests.bench.frame import Bar, Bench
from tests.bench.target import KIND

RUNS = 10_000


def once() -> Mapping[str, float]:
    with bench_cell() as cell:
        due = (datetime.now(UTC) + timedelta(seconds=12)).replace(microsecond=0)
        cell.write_jobs([due] * RUNS, priority=Priority.CRITICAL)
        with cell.running():
            cell.wait_for_runs(RUNS, timeout=90)
            return cell.lag_ms()


BENCH = Bench(
    name="storm",
    title=f"{RUNS:,} strict runs due at one instant",
    topology=f"one cell, executor in a process of its own, {KIND}, fsync on, all on one machine",
    once=once,
    bars=(
        Bar(
            figure="lag_p99_ms",
            what="lag p99 of 10,000 strict runs at one instant",
            bar=2500,
            unit="ms",
            better="lower",
        ),
        Bar(figure="early", what="strict runs started early", bar=0, better="lower"),
    ),
)
