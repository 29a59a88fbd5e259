"""Job creations/s, one a request, through the router and a cell."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.api import Api
from tests.bench.frame import Bar, Bench
from tests.stack import Stack
from tests.waiting import eventually_sync

SECONDS = 10
CONNECTIONS = 32
_SCRIPT = Path(__file__).with_name("creations.lua")


def once() -> Mapping[str, float]:
    wrk = shutil.which("wrk")
    if wrk is None:
        raise SystemExit("this bench needs wrk (apt-get install wrk)")
    with Stack(environment={"CLOCKHOUSE_DEMO_JOBS": "0"}) as stack:
        info = stack.info
        operator = Api(info["api_url"], info["operator_api_key"])
        operator.call(
            "PATCH",
            f"/v1/admin/tenants/{info['tenant_id']}/quotas",
            {"quotas": {"api_requests_per_second": 100_000, "pending_timers": 10_000_000}},
        )
        api = Api(info["api_url"], info["api_key"])
        api.register_target("http://127.0.0.1:9", target_id="tgt_bench")
        eventually_sync(
            lambda: "q=100000" in api.http.get("/v1/jobs").headers["RateLimit-Policy"], timeout=20
        )
        command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "--latency", "-s", str(_SCRIPT)]
        answer = subprocess.run(
            [*command, info["api_url"], "--", str(secrets.randbelow(10**9))],
            env={**os.environ, "BENCH_KEY": info["api_key"]},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return _figures(answer)


def _figures(report: str) -> Mapping[str, float]:
    """Figures of wrk's report."""
    rate = re.search(r"Requests/sec:\s+([\d.]+)", report)
    if rate is None:
        raise ValueError(f"not a report of wrk: {report[:500]}")
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", report)
    found = {"creations_per_second": float(rate[1]), "refused": float(refused[1]) if refused else 0.0}
    for quantile in ("50", "99"):
        latency = re.search(rf"{quantile}%\s+([\d.]+)(us|ms|s)", report)
        if latency:
            found[f"p{quantile}_ms"] = float(latency[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[latency[2]]
    return found


BENCH = Bench(
    name="creations",
    title=f"job creations through router and cell, {CONNECTIONS} connections for {SECONDS} s",
    topology="the whole stack, load by wrk, fsync on, all on one machine",
    once=once,
    bars=(
        Bar(figure="creations_per_second", what="jobs created, one a request", bar=800, unit="/s"),
        Bar(figure="refused", what="creations refused", bar=0, better="lower"),
    ),
)
