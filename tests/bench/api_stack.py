"""The whole stack under load at its API: the tenant without limits, wrk, and the router's CPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.api import Api
from tests.stack import Stack
from tests.waiting import eventually_sync

TARGET = "tgt_bench"
RATE = 100_000
_TO_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


@dataclass(frozen=True, kw_only=True)
class ApiStack:
    """A running product whose demo tenant may do as much as it can."""

    stack: Stack
    api: Api

    @property
    def info(self) -> dict[str, Any]:
        return self.stack.info

    def router_cpu_seconds(self) -> float:
        """CPU the router has used so far, with its threads."""
        times = psutil.Process(self.stack.pid("router")).cpu_times()
        return float(times.user + times.system)

    def wrk(
        self,
        path: str = "",
        *,
        connections: int,
        seconds: int,
        script: Path | None = None,
        arguments: Sequence[str] = (),
    ) -> Mapping[str, float]:
        """Load by wrk from one thread, and the figures of its report."""
        wrk = shutil.which("wrk")
        if wrk is None:
            raise SystemExit("this bench needs wrk (apt-get install wrk)")
        command = [wrk, "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
        command += ["-s", str(script)] if script else ["-H", f"Authorization: Bearer {self.info['api_key']}"]
        answer = subprocess.run(
            [*command, self.info["api_url"] + path, "--", *arguments],
            env={**os.environ, "BENCH_KEY": self.info["api_key"]},
            capture_output=True,
            text=True,
            check=True,
        )
        return _figures(answer.stdout)


@contextmanager
def api_stack() -> Iterator[ApiStack]:
    """A fresh product without demo jobs, limits out of the way, with an approved target."""
    with Stack(environment={"CLOCKHOUSE_DEMO_JOBS": "0"}) as stack:
        info = stack.info
        Api(info["api_url"], info["operator_api_key"]).call(
            "PATCH",
            f"/v1/admin/tenants/{info['tenant_id']}/quotas",
            {"quotas": {"api_requests_per_second": RATE, "pending_timers": 10_000_000}},
        )
        api = Api(info["api_url"], info["api_key"])
        api.register_target("http://127.0.0.1:9", target_id=TARGET)
        eventually_sync(
            lambda: f"q={RATE}" in api.http.get("/v1/jobs").headers["RateLimit-Policy"], timeout=20
        )
        yield ApiStack(stack=stack, api=api)


def _figures(report: str) -> Mapping[str, float]:
    rate = re.search(r"Requests/sec:\s+([\d.]+)", report)
    requests = re.search(r"(\d+) requests in", report)
    if rate is None or requests is None:
        raise ValueError(f"not a report of wrk: {report[:500]}")
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", report)
    found = {
        "per_second": float(rate[1]),
        "requests": float(requests[1]),
        "refused": float(refused[1]) if refused else 0.0,
    }
    for quantile in ("50", "99"):
        latency = re.search(rf"{quantile}%\s+([\d.]+)(us|ms|s)", report)
        if latency:
            found[f"p{quantile}_ms"] = float(latency[1]) * _TO_MS[latency[2]]
    return found
