"""One of two dispatchers is killed: how long its shards wait for the other, and whether all runs come."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from tests.bench.cell import bench_cell
from tests.bench.frame import Bar, Bench
from tests.bench.target import KIND
from tests.waiting import eventually_sync

PER_SECOND = 100
SECONDS = 30
#: The kill falls so long after the first job is due.
KILL_AFTER = 8.0
ROLES = {"rest": "api,loader,executor,reaper,meter", "one": "dispatcher", "two": "dispatcher"}
SHARED = "SELECT count(DISTINCT host_id) = 2 AND count(host_id) = 256 FROM shard_leases"
HELD_BY_ONE = (
    "SELECT count(DISTINCT host_id) = 1 AND bool_and(host_id IN (SELECT host_id FROM live_hosts))"
    " AND count(host_id) = 256 FROM shard_leases"
)


def once() -> Mapping[str, float]:
    with bench_cell() as cell:
        begin = (datetime.now(UTC) + timedelta(seconds=25)).replace(microsecond=0)
        count = PER_SECOND * SECONDS
        cell.write_jobs([begin + timedelta(seconds=1) / PER_SECOND * n for n in range(count)])
        with cell.running(ROLES):
            eventually_sync(lambda: cell.query(SHARED)[0][0], timeout=20)
            time.sleep(max(0.0, begin.timestamp() + KILL_AFTER - time.time()))
            cell.hosts["one"].kill()
            killed, killed_at = time.monotonic(), datetime.now(UTC)
            eventually_sync(lambda: cell.query(HELD_BY_ONE)[0][0], timeout=30)
            takeover = time.monotonic() - killed
            cell.wait_for_runs(count, timeout=SECONDS + 60)
            after = cell.lag_ms(f"due_at >= '{killed_at.isoformat()}'")
            lag = cell.lag_ms()
            return {
                "takeover_seconds": takeover,
                "lag_max_ms": lag["lag_max_ms"],
                "late_share_after_kill_p50_ms": after["lag_p50_ms"],
                "early": lag["early"],
                "lost": count - float(cell.query("SELECT count(*) FROM runs")[0][0]),  # type: ignore[arg-type]
            }


BENCH = Bench(
    name="dispatcher-death",
    title=f"one of two dispatchers is killed at {PER_SECOND} runs/s",
    topology=f"one cell: two dispatchers and one process with the rest, {KIND}, fsync on",
    once=once,
    bars=(
        Bar(
            figure="takeover_seconds",
            what="shards of a dead dispatcher are taken over",
            bar=11,
            unit="s",
            better="lower",
        ),
        Bar(
            figure="lag_max_ms",
            what="the latest start around a dispatcher's death",
            bar=11_000,
            unit="ms",
            better="lower",
        ),
        Bar(figure="lost", what="runs lost by a dispatcher's death", bar=0, better="lower"),
    ),
    default=False,
)
