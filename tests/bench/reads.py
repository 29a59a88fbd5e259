"""Reads/s through the router and a cell: one job, a page of jobs, a page of runs, statistics."""

from __future__ import annotations

from collections.abc import Mapping

from tests.bench.api_stack import api_stack
from tests.bench.creations import BATCH, batches
from tests.bench.frame import Bar, Bench

JOBS = 10 * BATCH
SECONDS = 5
CONNECTIONS = 16


def once() -> Mapping[str, float]:
    with api_stack() as loaded:
        batches(loaded, requests=JOBS // BATCH)
        job_id = loaded.api.get("/v1/jobs", limit=1)["items"][0]["job_id"]
        found: dict[str, float] = {"refused": 0.0}
        for name, path in (
            ("job", f"/v1/jobs/{job_id}"),
            ("jobs_page", "/v1/jobs?limit=50"),
            ("runs_page", "/v1/runs?limit=50"),
            ("stats", "/v1/stats"),
        ):
            figures = loaded.wrk(path, connections=CONNECTIONS, seconds=SECONDS)
            found[f"{name}_per_second"] = figures["per_second"]
            found[f"{name}_p50_ms"] = figures["p50_ms"]
            found[f"{name}_p99_ms"] = figures["p99_ms"]
            found["refused"] += figures["refused"]
    return found


BENCH = Bench(
    name="reads",
    title=f"reads among {JOBS:,} jobs, {CONNECTIONS} connections, {SECONDS} s each",
    topology="the whole stack on one machine, load by wrk",
    once=once,
    bars=(Bar(figure="refused", what="reads refused", bar=0, better="lower"),),
)
