"""Work that windows spread: a storm of ONCE jobs over a minute, and cron jobs each every minute."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from cells.domain.job import Schedule, ScheduleType
from tests.bench.cell import BenchCell, bench_cell
from tests.bench.frame import Bar, Bench
from tests.bench.target import KIND

JOBS = 100_000
WINDOW_SECONDS = 60
#: Full minutes of cron that are measured.
MINUTES = 2
#: A uniform spread over 60 cells exceeds this once in a thousand times (59 degrees of freedom).
CHI_SQUARE_LIMIT = 98.3


def chi_square(cell: BenchCell) -> float:
    """Of the instants at which runs were due, by second of the minute: how even windows spread."""
    by_second: dict[int, int] = {
        int(second): int(count)  # type: ignore[call-overload]
        for second, count in cell.query(
            "SELECT floor(date_part('second', due_at)), count(*) FROM runs GROUP BY 1"
        )
    }
    counts = [by_second.get(second, 0) for second in range(60)]
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 / expected for count in counts)


def storm() -> Mapping[str, float]:
    with bench_cell() as cell:
        at = (datetime.now(UTC) + timedelta(seconds=12 + JOBS / 4000)).replace(microsecond=0)
        cell.write([cell.job(at, window_seconds=WINDOW_SECONDS) for _ in range(JOBS)])
        with cell.running({"cell": "api,loader,dispatcher,executor,reaper,meter"}):
            cell.wait_for_runs(JOBS, timeout=WINDOW_SECONDS + 120)
            return {**cell.lag_ms(), "chi_square": chi_square(cell)}


def cron() -> Mapping[str, float]:
    every_minute = Schedule(type=ScheduleType.CRON, cron="* * * * *", time_zone="UTC")
    with bench_cell() as cell:
        # Whole minutes after everything is written and loaded.
        ready = datetime.now(UTC) + timedelta(seconds=20 + JOBS / 4000)
        first = ready.replace(second=0, microsecond=0) + timedelta(minutes=1)
        cell.write(
            [cell.job(first, schedule=every_minute, window_seconds=WINDOW_SECONDS - 1) for _ in range(JOBS)]
        )
        with cell.running():
            wait = first.timestamp() - time.time()
            time.sleep(max(0.0, wait))
            before, began = cell.cpu_seconds(), time.monotonic()
            time.sleep(60 * MINUTES)
            after, seconds = cell.cpu_seconds(), time.monotonic() - began
            until = first + timedelta(minutes=MINUTES)
            where = f"due_at < '{until.isoformat()}'"
            cell.wait_for_runs(JOBS * MINUTES, timeout=120, where=where)
            return {
                **cell.lag_ms(where),
                "runs_per_second": JOBS / 60,
                "runs_missing": JOBS * MINUTES - cell.count_runs(where),
                **{f"cpu_percent_{n}": 100 * (after[n] - before[n]) / seconds for n in before},
            }


STORM = Bench(
    name="storm-windowed",
    title=f"{JOBS:,} jobs of one instant, windowed over {WINDOW_SECONDS} s",
    topology=f"one cell in one process, {KIND}, fsync on, all on one machine",
    once=storm,
    bars=(
        Bar(
            figure="lag_p99_ms",
            what=f"lag p99 behind their own offsets, {JOBS:,} windowed over {WINDOW_SECONDS} s",
            bar=250,
            unit="ms",
            better="lower",
        ),
        Bar(
            figure="chi_square",
            what="χ² of their seconds (59 degrees, 0.1 %)",
            bar=CHI_SQUARE_LIMIT,
            better="lower",
        ),
        Bar(figure="early", what="windowed runs started early", bar=0, better="lower"),
    ),
    runs=1,
    default=False,
)
CRON = Bench(
    name="cron-100000",
    title=f"{JOBS:,} cron jobs, each every minute, {MINUTES} minutes",
    topology=f"one cell, executor in a process of its own, {KIND}, fsync on, all on one machine",
    once=cron,
    bars=(
        Bar(
            figure="lag_p99_ms",
            what=f"lag p99 of {JOBS:,} cron jobs every minute (1,667/s)",
            bar=250,
            unit="ms",
            better="lower",
        ),
        Bar(figure="runs_missing", what="occurrences of them without a run", bar=0, better="lower"),
        Bar(figure="early", what="cron runs started early", bar=0, better="lower"),
    ),
    runs=1,
    default=False,
)
BENCHES = (STORM, CRON)
