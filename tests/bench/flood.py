"""A flood of LOW jobs, all due at once, beside a trickle of CRITICAL ones: bulkheads hold, or not."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from cells.domain.job import Priority
from tests.bench.cell import BenchCell, bench_cell
from tests.bench.frame import Bar, Bench
from tests.bench.target import KIND

LOW = 200_000
CRITICAL_PER_SECOND = 50
#: The trickle begins so long before the flood, and ends so long after it began.
BEFORE, AFTER = 5, 30
CRITICAL_BAR_MS = 250
#: One process with all roles: loader, dispatcher, executor and API share one event loop.
ALL = "api,loader,dispatcher,executor,reaper,meter"


#: What the start of a cell may take, and reading so many jobs a second into its buckets (seconds).
START_SECONDS, LOADED_PER_SECOND = 25, 15_000


def when_ready(cell: BenchCell, jobs: int) -> datetime:
    """A whole second at which so many jobs will have been written and loaded, and the cell be up, on this
    machine as it is now: measured by writing a few that are due some other day."""
    sample = min(2_000, jobs)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    per_second = cell.write_jobs([tomorrow] * sample)
    seconds = 1.5 * jobs / per_second + jobs / LOADED_PER_SECOND + START_SECONDS
    return datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=round(seconds))


def flooded(low: int = LOW, *, after: int = AFTER) -> Mapping[str, float]:
    """Figures of the trickle (`critical_…`) and of the flood that was under way beside it."""
    with bench_cell() as cell:
        count = CRITICAL_PER_SECOND * (BEFORE + after)
        flood_at = when_ready(cell, low + count) + timedelta(seconds=BEFORE)
        begin = flood_at - timedelta(seconds=BEFORE)
        step = timedelta(seconds=1) / CRITICAL_PER_SECOND
        cell.write_jobs([flood_at] * low, priority=Priority.LOW)
        cell.write_jobs([begin + step * n for n in range(count)], priority=Priority.CRITICAL)
        with cell.running({"cell": ALL}):
            late = max(0.0, (datetime.now(UTC) - begin).total_seconds())
            cell.wait_for_runs(count, timeout=after + BEFORE + 90, where="priority = 0")
            ended = cell.query("SELECT count(*) FROM runs WHERE priority = 3 AND finished_at IS NOT NULL")
            critical = cell.lag_ms("priority = 0")
            beside = cell.lag_ms(f"priority = 0 AND due_at >= '{flood_at.isoformat()}'")
            stages = cell.stages_ms(f"priority = 0 AND due_at >= '{flood_at.isoformat()}'")
            early = cell.lag_ms()["early"]
    return {
        **{f"critical_{name}": value for name, value in critical.items()},
        **{f"critical_{name}": value for name, value in stages.items()},
        "critical_beside_flood_p99_ms": beside["lag_p99_ms"],
        "low_ended_meanwhile": float(ended[0][0]),  # type: ignore[arg-type]
        "early": early,
        "ready_after_begin_seconds": late,
    }


BENCH = Bench(
    name="flood",
    title=f"{LOW:,} LOW runs due at once beside {CRITICAL_PER_SECOND}/s CRITICAL",
    topology=f"one cell in one process, {KIND}, fsync on, all on one machine",
    once=flooded,
    bars=(
        Bar(
            figure="critical_beside_flood_p99_ms",
            what=f"lag p99 of CRITICAL beside {LOW:,} due LOW runs",
            bar=CRITICAL_BAR_MS,
            unit="ms",
            better="lower",
        ),
        Bar(figure="early", what="runs started early in a flood", bar=0, better="lower"),
    ),
    runs=1,
    default=False,
)
