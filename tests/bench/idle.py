"""What a cell costs while nothing is due: 100,000 future jobs, spread over a day."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import redis

from tests.bench.cell import bench_cell
from tests.bench.frame import Bar, Bench
from tests.bench.target import KIND

SECONDS = 30


def with_jobs(count: int) -> Callable[[], Mapping[str, float]]:
    def once() -> Mapping[str, float]:
        with bench_cell() as cell:
            begin = datetime.now(UTC) + timedelta(minutes=10)
            cell.fill(count, since=begin, span=timedelta(days=1))
            with cell.running({"cell": "api,loader,dispatcher,executor,reaper,meter"}):
                time.sleep(10)  # the horizon is loaded in this time
                before, began = cell.cpu_seconds(), time.monotonic()
                time.sleep(SECONDS)
                after, seconds = cell.cpu_seconds(), time.monotonic() - began
                memory = redis.Redis.from_url(cell.valkey_url).info("memory")["used_memory"]
                return {
                    **{
                        f"cpu_percent_{n}": 100 * (after[n] - before[n]) / seconds
                        for n in before
                        if n != "target"
                    },
                    "cell_rss_mb": cell.hosts["cell"].memory_info().rss / 1e6,
                    "valkey_mb": memory / 1e6,
                }

    return once


def _bench(count: int, *, default: bool) -> Bench:
    return Bench(
        name=f"idle-{count}",
        title=f"idle with {count:,} future jobs, {SECONDS} s",
        topology=f"one cell in one process, {KIND}, fsync on",
        once=with_jobs(count),
        bars=(
            Bar(
                figure="cpu_percent_cell",
                what=f"CPU of the idle host, {count:,} jobs",
                bar=3,
                unit="%",
                better="lower",
            ),
            Bar(
                figure="cell_rss_mb",
                what=f"RSS of the idle host, {count:,} jobs",
                bar=200,
                unit="MB",
                better="lower",
            ),
            Bar(
                figure="valkey_mb", what=f"Valkey memory, {count:,} jobs", bar=100, unit="MB", better="lower"
            ),
        ),
        default=default,
    )


BENCHES = (_bench(100_000, default=True), _bench(1_000_000, default=False))
