"""How many meter records a second the control plane takes into its ledger."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psycopg

from cells.contract import Caller, MeterRecord, Metric, Scope, body_hash, sign_request
from tests.api import Api
from tests.bench.frame import Bar, Bench
from tests.stack import Stack

TENANTS, BATCH, CALLS = 20, 5_000, 60
SENDERS = 4
METRICS = [metric for metric in Metric if metric is not Metric.API_REQUESTS]


def batches(tenants: Sequence[str], cell: str, *, calls: int = CALLS) -> list[bytes]:
    """Bodies of distinct records: every tenant's metrics, minute by minute into the past."""
    last = datetime.now(UTC).replace(second=0, microsecond=0)
    keys = (
        (minute, tenant, metric)
        for minute in range(10**6)
        for tenant in tenants
        for metric in METRICS
    )  # fmt: skip
    bodies = []
    for _ in range(calls):
        records = []
        for _, (minute, tenant, metric) in zip(range(BATCH), keys, strict=False):
            at = last - timedelta(minutes=minute)
            records.append(
                MeterRecord(
                    tenant_id=tenant, cell=cell, store=0, epoch=1, host="bench-1-4f2a", metric=metric,
                    minute=f"{at:%Y-%m-%dT%H:%M:00Z}", region_policy="HOME_ASYNC", quantity=minute + 1,
                )
            )  # fmt: skip
        bodies.append(msgspec.json.encode({"records": records, "watermarks": []}))
    return bodies


class Sender:
    """A cell that ships."""

    def __init__(self, cell: str, environment: Mapping[str, str]) -> None:
        self.kid, _, key = environment["CELL_KEYS"].split(",")[0].partition(":")
        self.key = bytes.fromhex(key)
        self.url = httpx.URL(environment["CELL_CONTROL_URL"].rstrip("/") + "/internal/meters")
        self.caller = Caller(actor=f"cell:{cell}", scopes=(Scope.INTERNAL,))
        self.http = httpx.Client(timeout=60)

    def send(self, body: bytes) -> int:
        """One call; how many of its records were new."""
        headers = sign_request(
            kid=self.kid, secret=self.key, now_ms=time.time_ns() // 1_000_000, method="POST",
            target=self.url.raw_path.decode(), caller=self.caller, body_sha256=body_hash(body),
        )  # fmt: skip
        answer = self.http.post(self.url, content=body, headers=headers)
        answer.raise_for_status()
        results: list[str] = answer.json()["results"]
        return results.count("accepted")


def ingest(*, calls: int = CALLS) -> dict[str, float]:
    """Ships distinct records, and all of them again."""
    with Stack(environment={"CLOCKHOUSE_DEMO_JOBS": "0"}) as stack:
        cell = next(iter(stack.info["cells"]))
        raw = Path(f"/proc/{stack.pid(f'cell-{cell}')}/environ").read_bytes().decode()
        sender = Sender(cell, dict(entry.split("=", 1) for entry in raw.split("\0") if "=" in entry))
        bodies = batches(_tenants(stack, cell), cell, calls=calls)
        with ThreadPoolExecutor(SENDERS) as pool:
            new = _timed(pool, sender, bodies, expect=BATCH)
            again = _timed(pool, sender, bodies, expect=0)
    return {"records_per_second": new, "known_records_per_second": again}


def _timed(pool: ThreadPoolExecutor, sender: Sender, bodies: Sequence[bytes], *, expect: int) -> float:
    began = time.perf_counter()
    taken = list(pool.map(sender.send, bodies))
    seconds = time.perf_counter() - began
    if set(taken) != {expect}:
        raise RuntimeError(f"of {BATCH} records a call, so many were new: {sorted(set(taken))}")
    return BATCH * len(bodies) / seconds


def _tenants(stack: Stack, cell: str) -> list[str]:
    operator = Api(stack.info["api_url"], stack.info["operator_api_key"])
    made: list[dict[str, Any]] = [
        operator.call(
            "POST",
            "/v1/admin/tenants",
            {"slug": f"bench-{secrets.token_hex(4)}", "name": "Bench", "cell": cell},
        )
        for _ in range(TENANTS)
    ]
    with psycopg.connect(stack.info["control_database_url"], autocommit=True) as connection:
        # They have lived there for long: their minutes lie in the past.
        connection.execute("UPDATE topology_tenure SET since = now() - interval '34 days'")
    return [str(tenant["tenant_id"]) for tenant in made]


BENCH = Bench(
    name="ingestion",
    title=f"meter records taken into the ledger, {BATCH:,} a call, {SENDERS} calls at a time",
    topology="the whole product on the machine; signed calls over HTTP, placement checked, fsync on",
    once=ingest,
    bars=(
        Bar(figure="records_per_second", what="meter records ingested", bar=20_000, unit="/s"),
    ),
    default=False,
)  # fmt: skip
