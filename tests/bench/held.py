"""What dispatch costs while somebody keeps a transaction open: nothing dead can be removed, and every
scan that starts at the beginning of an index walks all of it.

`HELD_MINUTES` says for how long (10). Recurring jobs run at a steady pace all the while, each of them
ten times under the open transaction; the last part of it is held against the same time before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg

from cells.domain.job import Schedule, ScheduleType
from tests.bench.cell import BenchCell, bench_cell
from tests.bench.frame import Bar, Bench
from tests.bench.target import KIND

BAR = 1.2
MINUTES = 10.0
PER_SECOND = 200
#: Updates of each job's row under the open transaction.
ROUNDS = 10
#: How long a figure is taken for (seconds), and how long the cell runs before the first.
WINDOW, SETTLING = 30.0, 10.0
#: Dead entries of the hot tables, as a held snapshot leaves them.
_DEAD = "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables WHERE relname ~ '^(jobs|runs)'"


def held(minutes: float | None = None, *, window: float = WINDOW) -> Mapping[str, float]:
    """Figures before, and at the end of, so many minutes with a transaction held open."""
    minutes = float(os.environ.get("HELD_MINUTES", MINUTES)) if minutes is None else minutes
    seconds = 60 * minutes
    with bench_cell() as cell:
        _write_jobs(cell, every=max(1, round(seconds / ROUNDS)))
        with cell.running():
            time.sleep(SETTLING)
            before = _measured(cell, window)
            with _open_transaction(cell):
                time.sleep(max(0.0, seconds - window))
                after = _measured(cell, window)
                dead = float(cell.query(_DEAD)[0][0])  # type: ignore[arg-type]
    return {
        **{f"before_{name}": value for name, value in before.items()},
        **{f"held_{name}": value for name, value in after.items()},
        "minutes": minutes,
        "dead_rows": dead,
        "cost_ratio": after["cpu_us_per_run"] / before["cpu_us_per_run"],
        "pace_ratio": before["runs_per_second"] / after["runs_per_second"],
    }


def _write_jobs(cell: BenchCell, *, every: int) -> None:
    """RATE jobs, so many that `PER_SECOND` of them are due in each second."""
    first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=20)
    jobs = []
    for second in range(every):
        at = first + timedelta(seconds=second)
        rate = Schedule(type=ScheduleType.RATE, every_seconds=every, start_at=at.isoformat())
        jobs += [cell.job(at, schedule=rate, window_seconds=1) for _ in range(PER_SECOND)]
    cell.write(jobs)
    time.sleep(max(0.0, (first - datetime.now(UTC)).total_seconds() - 15))


def _measured(cell: BenchCell, seconds: float) -> dict[str, float]:
    """CPU per run of hosts and engines, and pace and lag of what ended in so many seconds from now."""
    since, cpu = datetime.now(UTC), cell.cpu_seconds()
    began = time.monotonic()
    time.sleep(seconds)
    spent = {name: value - cpu[name] for name, value in cell.cpu_seconds().items() if name != "target"}
    took = time.monotonic() - began
    span = f"finished_at >= '{since.isoformat()}' AND finished_at < '{datetime.now(UTC).isoformat()}'"
    runs = cell.count_runs(span)
    lag = cell.lag_ms(span)
    return {
        "runs_per_second": runs / took,
        "cpu_us_per_run": 1e6 * sum(spent.values()) / runs,
        "cpu_us_per_run_postgres": 1e6 * spent["postgres"] / runs,
        "lag_p50_ms": lag["lag_p50_ms"],
        "lag_p99_ms": lag["lag_p99_ms"],
        "early": lag["early"],
        "not_succeeded": lag["not_succeeded"],
    }


@contextmanager
def _open_transaction(cell: BenchCell) -> Iterator[None]:
    """Somebody's, that has read and not ended: what dies from now on stays."""
    with psycopg.connect(cell.database_url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM tenants")
        yield
        connection.rollback()


BENCH = Bench(
    name="held",
    title="dispatch with a transaction held open, against the time before",
    topology=f"one cell, executor in a process of its own, {PER_SECOND} runs/s, {KIND}, fsync on",
    once=held,
    bars=(
        Bar(
            figure="cost_ratio",
            what="CPU per run with a transaction held open, against before",
            bar=BAR,
            unit="×",
            better="lower",
        ),
        Bar(
            figure="pace_ratio",
            what="runs a second before, against those with a transaction held open",
            bar=BAR,
            unit="×",
            better="lower",
        ),
    ),
    runs=1,
    default=False,
)
