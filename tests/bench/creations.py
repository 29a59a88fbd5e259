"""Job creations/s through the router and a cell: one a request, and a thousand a request."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import msgspec

from tests.bench.api_stack import TARGET, ApiStack, api_stack
from tests.bench.frame import Bar, Bench

SECONDS = 10
CONNECTIONS = 32
_SCRIPT = Path(__file__).with_name("creations.lua")
#: In batches: jobs a request, requests, and how many at a time.
BATCH = 1000
BATCHES = 60
AT_A_TIME = 4


def once_single() -> Mapping[str, float]:
    with api_stack() as loaded:
        found = loaded.wrk(
            connections=CONNECTIONS,
            seconds=SECONDS,
            script=_SCRIPT,
            arguments=[str(secrets.randbelow(10**9))],
        )
    return {
        "creations_per_second": found["per_second"],
        **{name: found[name] for name in ("refused", "p50_ms", "p99_ms") if name in found},
    }


def once_batch() -> Mapping[str, float]:
    with api_stack() as loaded:
        return batches(loaded, requests=BATCHES)


def batches(loaded: ApiStack, *, requests: int) -> Mapping[str, float]:
    """Create that many batches; figures of jobs, not of requests."""
    bodies = [_batch(number) for number in range(requests)]
    headers = {"Authorization": f"Bearer {loaded.info['api_key']}", "Content-Type": "application/json"}
    limits = httpx.Limits(max_connections=AT_A_TIME, max_keepalive_connections=AT_A_TIME)
    with (
        httpx.Client(base_url=loaded.info["api_url"], headers=headers, limits=limits, timeout=60) as client,
        ThreadPoolExecutor(AT_A_TIME) as pool,
    ):
        began = time.monotonic()
        answers = list(pool.map(lambda body: client.post("/v1/jobs:batch", content=body), bodies))
        seconds = time.monotonic() - began
    created = sum(_created(answer) for answer in answers)
    return {"creations_per_second": created / seconds, "refused": float(requests * BATCH - created)}


def _created(answer: httpx.Response) -> int:
    return int(answer.json()["created"]) if answer.status_code < 300 else 0


def _batch(number: int) -> bytes:
    """Jobs of the far future, spread over a year."""
    first = datetime(2080 + number % 19, 1, 1, tzinfo=UTC)
    jobs = [
        {
            "schedule": {
                "type": "ONCE",
                "run_at": (first + timedelta(hours=8 * item, seconds=item)).isoformat(),
            },
            "target": {"target_id": TARGET},
            "payload": {"user_id": number * BATCH + item, "kind": "reminder"},
        }
        for item in range(BATCH)
    ]
    return msgspec.json.encode({"jobs": jobs})


_TOPOLOGY = "the whole stack, fsync on, all on one machine; load by "
BENCHES = (
    Bench(
        name="creations",
        title=f"job creations through router and cell, {CONNECTIONS} connections for {SECONDS} s",
        topology=_TOPOLOGY + "wrk",
        once=once_single,
        bars=(
            Bar(figure="creations_per_second", what="jobs created, one a request", bar=800, unit="/s"),
            Bar(figure="refused", what="creations refused", bar=0, better="lower"),
        ),
    ),
    Bench(
        name="batches",
        title=f"{BATCHES} batches of {BATCH} jobs through router and cell, {AT_A_TIME} at a time",
        topology=_TOPOLOGY + "Python, bodies made before",
        once=once_batch,
        bars=(
            Bar(figure="creations_per_second", what="jobs created in batches", bar=15_000, unit="/s"),
            Bar(figure="refused", what="jobs refused in batches", bar=0, better="lower"),
        ),
    ),
)
