"""HTTP runs/s of the whole pipeline, and CPU seconds of the executor per run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from tests.bench.cell import BenchCell, bench_cell
from tests.bench.frame import Bar, Bench
from tests.bench.target import KIND

RUNS = 30_000


def once() -> Mapping[str, float]:
    with bench_cell() as cell:
        now = datetime.now(UTC)
        due = (now + timedelta(seconds=16)).replace(microsecond=0)
        cell.write_jobs([due] * RUNS)
        with cell.running():
            before, written = cell.cpu_seconds(), _wal_bytes(cell)
            cell.wait_for_runs(RUNS, timeout=180)
            after = cell.cpu_seconds()
            written = _wal_bytes(cell) - written
            spent = {name: after[name] - before[name] for name in before}
            ended = cell.query("SELECT extract(epoch FROM max(finished_at)) FROM runs")[0][0]
            seconds = float(ended) - due.timestamp()  # type: ignore[arg-type]
            figures = {
                "runs_per_second": RUNS / seconds,
                "runs_per_executor_cpu_second": RUNS / spent["executor"],
                **{f"cpu_us_per_run_{name}": 1e6 * value / RUNS for name, value in spent.items()},
            }
            figures["wal_bytes_per_run"] = written / RUNS
            return {**figures, **{k: v for k, v in cell.lag_ms().items() if k in ("early", "not_succeeded")}}


def _wal_bytes(cell: BenchCell) -> float:
    """What PostgreSQL has written to its log so far: what a standby would have been sent."""
    return float(cell.query("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")[0][0])  # type: ignore[arg-type]


BENCH = Bench(
    name="pipeline",
    title=f"{RUNS:,} HTTP runs due at once, whole pipeline",
    topology=f"one cell, executor in a process of its own, {KIND}, fsync on, all on one machine",
    once=once,
    bars=(
        Bar(figure="runs_per_second", what="HTTP runs, whole pipeline", bar=5100, floor=3400, unit="/s"),
        Bar(
            figure="runs_per_executor_cpu_second",
            what="HTTP runs per CPU-second of the executor",
            bar=5500,
            unit="/s",
        ),
        Bar(figure="early", what="runs started early", bar=0, better="lower"),
    ),
)
