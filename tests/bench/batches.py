"""Jobs created in batches: the API's application in this process, a real PostgreSQL, no sockets.

What HTTP servers and the router add is a constant per batch of a thousand.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
import uuid
from collections.abc import Mapping

import httpx
import msgspec
import uvloop

from cells.api.app import create_app
from cells.clock import SystemClock
from cells.config import Settings
from cells.contract import Caller, sign_request
from cells.domain import ids
from cells.host import GC_THRESHOLDS
from cells.observability.metrics import Metrics
from cells.ports import Member, TenantConfig, TenantPlacement
from cells.secrets import SealedBox
from cells.store.migrate import migrate
from cells.store.postgres import PostgresStore
from deploy.engines import temporary_postgres
from tests.bench.frame import Bar, Bench

JOBS = 40_000
BATCH = 1_000
SENDERS = 2
_KEY = b"k" * 32
_PATH = "/v1/jobs:batch"


class _NoQueue:
    """Members are told behind the answers; here nobody listens."""

    async def add(self, members: list[Member]) -> None:
        return None


class _Host:
    def __init__(self, host_id: int):
        self.host_id = host_id


def _body(first: int) -> bytes:
    jobs = [
        {
            "schedule": {"type": "CRON", "cron": f"{i % 60} 8 * * *", "time_zone": "America/New_York"},
            "target": {"target_id": "tgt_bench", "path": "/digests"},
            "payload": {"user_id": i, "kind": "daily_digest"},
            "name": f"digest {i}",
            "tags": ["digest"],
        }
        for i in range(first, first + BATCH)
    ]
    return msgspec.json.encode({"jobs": jobs})


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _measure(store: PostgresStore) -> Mapping[str, float]:
    tenant = uuid.uuid4()
    await store.put_tenant(
        TenantPlacement(
            tenant_id=tenant, state="ACTIVE", ownership_epoch=1, config_version=1, config=TenantConfig()
        )
    )
    host = await store.register_host(name="bench-1", roles=["api"], lease_ms=600_000)
    clock = SystemClock()
    settings = Settings(
        cell_name="bench", region="local", database_url="", valkey_url="", bind_host="", bind_port=0,
        keys={"bench": _KEY}, installation_keys=(b"i" * 32,),
    )  # fmt: skip
    app = create_app(
        store=store,
        queue=_NoQueue(),  # type: ignore[arg-type]
        secrets=SealedBox([b"i" * 32]),
        settings=settings,
        clock=clock,
        metrics=Metrics(),
        host=_Host(host.host_id),
        trial=None,  # type: ignore[arg-type]
    )
    caller = Caller(tenant_id=ids.encode(ids.TENANT, tenant), actor="key:bench", scopes=("admin",), epoch=1)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://cell") as http:

        async def post(path: str, body: bytes) -> httpx.Response:
            headers = sign_request(
                kid="bench", secret=_KEY, now_ms=clock.now_ms(), method="POST", target=path, caller=caller
            )
            answer = await http.post(path, content=body, headers=headers)
            answer.raise_for_status()
            return answer

        target = {"base_url": "https://bench.example", "target_id": "tgt_bench"}
        await post("/v1/targets", msgspec.json.encode(target))
        await post("/v1/targets/tgt_bench:approve", b"")
        bodies = [_body(first) for first in range(0, JOBS, BATCH)]
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)

        async def sender() -> None:
            while bodies:
                answer = await post(_PATH, bodies.pop())
                if answer.json()["created"] != BATCH:
                    raise RuntimeError(answer.text[:500])

        began, cpu = time.perf_counter(), _cpu()
        await asyncio.gather(*(sender() for _ in range(SENDERS)))
        return {
            "created_per_s": JOBS / (time.perf_counter() - began),
            "create_cpu_us": 1e6 * (_cpu() - cpu) / JOBS,
        }


def once() -> Mapping[str, float]:
    """A fresh PostgreSQL with fsync, one application."""

    async def measured(url: str) -> Mapping[str, float]:
        async with PostgresStore(url, cell_name="bench", pool_size=SENDERS + 2) as store:
            return await _measure(store)

    with temporary_postgres(durable=True) as postgres:
        migrate(postgres.url)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(measured(postgres.url))


BENCH = Bench(
    name="batches-cell",
    title=f"job creations in batches of {BATCH} through the API's application, {SENDERS} at a time",
    topology="application and client in one process, PostgreSQL with fsync beside it",
    once=once,
    bars=(
        Bar(figure="created_per_s", what="jobs created in batches", bar=15_000, unit="/s"),
        Bar(figure="create_cpu_us", what="CPU of the process per job", bar=60, unit="µs", better="lower"),
    ),
)
