"""Dispatch lag (start minus due) at a steady rate of HTTP runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from tests.bench.cell import bench_cell
from tests.bench.frame import Bar, Bench
from tests.bench.target import KIND

SECONDS = 20


def at_rate(per_second: int) -> Callable[[], Mapping[str, float]]:
    def once() -> Mapping[str, float]:
        with bench_cell() as cell:
            begin = (datetime.now(UTC) + timedelta(seconds=12)).replace(microsecond=0)
            step = timedelta(seconds=1) / per_second
            count = per_second * SECONDS
            cell.write_jobs([begin + step * number for number in range(count)])
            with cell.running({"cell": "api,loader,dispatcher,executor,reaper,meter"}):
                cell.wait_for_runs(count, timeout=SECONDS + 60)
                return cell.lag_ms()

    return once


def _bench(per_second: int, p99: float, p999: float) -> Bench:
    return Bench(
        name=f"lag-{per_second}",
        title=f"dispatch lag at {per_second} HTTP runs/s for {SECONDS} s",
        topology=f"one cell in one process, {KIND}, fsync on, all on one machine",
        once=at_rate(per_second),
        bars=(
            Bar(figure="lag_p99_ms", what=f"lag p99 at {per_second}/s", bar=p99, unit="ms", better="lower"),
            Bar(
                figure="lag_p999_ms", what=f"lag p99.9 at {per_second}/s", bar=p999, unit="ms", better="lower"
            ),
            Bar(figure="early", what=f"runs started early at {per_second}/s", bar=0, better="lower"),
        ),
    )


BENCHES = (_bench(100, 10, 250), _bench(1000, 50, 250))
