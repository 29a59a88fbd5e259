"""What the router costs: time added to a request, and requests for a second of its CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import httpx
import psutil

from cells.contract import Caller, sign_request
from tests.bench.api_stack import TARGET, ApiStack, api_stack
from tests.bench.frame import Bar, Bench

PAIRS = 1000
SECONDS = 10
CONNECTIONS = 32


def once() -> Mapping[str, float]:
    with api_stack() as loaded:
        job = loaded.api.create_job(
            {"schedule": {"type": "ONCE", "run_at": "2099-01-01T00:00:00Z"}, "target": {"target_id": TARGET}}
        )
        path = f"/v1/jobs/{job['job_id']}"
        added = overhead(loaded, path, pairs=PAIRS)
        before = loaded.router_cpu_seconds()
        found = loaded.wrk(path, connections=CONNECTIONS, seconds=SECONDS)
        cpu = loaded.router_cpu_seconds() - before
    return {
        **added,
        "requests_per_cpu_second": found["requests"] / cpu,
        "requests_per_second": found["per_second"],
        "refused": found["refused"],
    }


def overhead(loaded: ApiStack, path: str, *, pairs: int) -> Mapping[str, float]:
    """The same read through the router and straight from the cell, in turn, one at a time."""
    info = loaded.info
    home = next(iter(info["cells"]))
    url = info["cells"][home]["url"]
    environment = psutil.Process(loaded.stack.pid(f"cell-{home}")).environ()
    kid, _, secret = environment["CELL_KEYS"].split(",")[0].partition(":")
    caller = Caller(tenant_id=info["tenant_id"], actor="key:bench", scopes=("admin",), epoch=0)

    with httpx.Client() as client:

        def through_router() -> httpx.Response:
            return client.get(info["api_url"] + path, headers={"Authorization": f"Bearer {info['api_key']}"})

        def straight() -> httpx.Response:
            signed = sign_request(
                kid=kid,
                secret=bytes.fromhex(secret),
                now_ms=time.time_ns() // 1_000_000,
                method="GET",
                target=path,
                caller=caller,
            )
            return client.get(url + path, headers=signed)

        both: tuple[list[float], list[float]] = ([], [])
        for _ in range(pairs):
            for call, times in zip((through_router, straight), both, strict=True):
                times.append(_timed(call))
    routed, direct = both
    return {
        "added_p50_ms": statistics.median(routed) - statistics.median(direct),
        "routed_p50_ms": statistics.median(routed),
        "direct_p50_ms": statistics.median(direct),
    }


def _timed(call: Callable[[], httpx.Response]) -> float:
    began = time.perf_counter()
    call().raise_for_status()
    return (time.perf_counter() - began) * 1000


BENCH = Bench(
    name="router",
    title=f"reading a job: {PAIRS} pairs one by one, then {CONNECTIONS} connections for {SECONDS} s",
    topology="the whole stack on one machine, load by Python (pairs) and wrk",
    once=once,
    bars=(
        Bar(figure="added_p50_ms", what="time the router adds (p50)", bar=1.5, unit="ms", better="lower"),
        Bar(figure="requests_per_cpu_second", what="requests per core of the router", bar=2000, unit="/s"),
        Bar(figure="refused", what="reads refused", bar=0, better="lower"),
    ),
)
