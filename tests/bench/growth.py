"""What a run costs in a cell with ten million future jobs, against one with ten thousand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from tests.bench.cell import BenchCell, bench_cell
from tests.bench.frame import Bar, Bench
from tests.bench.target import KIND

FEW, MANY = 10_000, 10_000_000
RUNS = 10_000
#: Future jobs are spread over this; two hours of it lie in buckets.
SPAN = timedelta(days=30)


def cost(cell: BenchCell) -> dict[str, float]:
    """CPU time per run of hosts and engines together, and the pace, of runs due at once."""
    done = int(cell.query("SELECT count(*) FROM runs")[0][0])  # type: ignore[call-overload]
    due = (datetime.now(UTC) + timedelta(seconds=25)).replace(microsecond=0)
    cell.write_jobs([due] * RUNS)
    with cell.running():
        before = cell.cpu_seconds()
        cell.wait_for_runs(done + RUNS, timeout=180)
        after = cell.cpu_seconds()
        ended = cell.query("SELECT extract(epoch FROM max(finished_at)) FROM runs")[0][0]
    spent = {name: after[name] - before[name] for name in before if name != "target"}
    return {
        "cpu_us_per_run": 1e6 * sum(spent.values()) / RUNS,
        "cpu_us_per_run_postgres": 1e6 * spent["postgres"] / RUNS,
        "runs_per_second": RUNS / (float(ended) - due.timestamp()),  # type: ignore[arg-type]
    }


def grown(few: int = FEW, many: int = MANY) -> Mapping[str, float]:
    with bench_cell() as cell:
        since = datetime.now(UTC) + timedelta(minutes=30)
        cell.fill(few, since=since, span=SPAN)
        small = cost(cell)
        cell.fill(many - few, since=since, span=SPAN)
        large = cost(cell)
    return {
        **{f"few_{name}": value for name, value in small.items()},
        **{f"many_{name}": value for name, value in large.items()},
        "cost_ratio": large["cpu_us_per_run"] / small["cpu_us_per_run"],
        "pace_ratio": large["runs_per_second"] / small["runs_per_second"],
    }


def _bench(many: int) -> Bench:
    return Bench(
        name="growth" if many == MANY else f"growth-{many}",
        title=f"cost of a run with {many:,} future jobs against {FEW:,}",
        topology=f"one cell, executor in a process of its own, {KIND}, fsync on",
        once=lambda: grown(many=many),
        bars=(
            Bar(
                figure="cost_ratio",
                what=f"CPU per run with {many:,} future jobs, against {FEW:,}",
                bar=1.2,
                unit="×",
                better="lower",
            ),
        ),
        runs=1,
        default=False,
    )


BENCHES = (_bench(MANY), _bench(1_000_000))
