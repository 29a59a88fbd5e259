"""Pull workers through router and cell: polls and endings, heartbeats; one by one and in bulk."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp

from tests.api import Api
from tests.bench.api_stack import ApiStack, api_stack
from tests.bench.frame import Bar, Bench
from tests.waiting import eventually_sync

SINGLE, BATCHED = 4_000, 20_000
WORKERS, BATCHERS, BATCH = 48, 4, 500
HELD = 1_000
BEAT_SECONDS = 4.0

Post = Callable[[str, Any], Awaitable[Any]]


def _fill(stack: ApiStack, queue: str, count: int) -> None:
    """`count` READY tasks."""
    target = {"type": "TASK_QUEUE", "task_queue": queue, "lease_seconds": 600}
    job = {"schedule": {"type": "NOW"}, "target": target, "payload": {"n": 1}}
    for start in range(0, count, 1000):
        stack.api.call("POST", "/v1/jobs:batch", {"jobs": [job] * min(1000, count - start)})

    def ready() -> bool:
        queues = {q["task_queue"]: q["backlog"] for q in stack.api.get("/v1/task-queues")["items"]}
        return queues.get(queue, 0) >= min(count, 10_000)

    eventually_sync(ready, timeout=300)


async def _drain(post: Post, queue: str, count: int, workers: int, size: int) -> float:
    """Poll and complete until `count` are done; tasks per second. The polls that find nothing more are not
    waited for."""
    done, ended = 0, 0.0

    async def work(name: str) -> None:
        nonlocal done, ended
        while done < count:
            asked = {"worker_id": name, "wait_seconds": 1, "max_tasks": size}
            tasks = (await post(f"/v1/task-queues/{queue}/tasks:poll", asked))["tasks"]
            ends = [{"epoch": t["epoch"], "outcome": "SUCCEEDED"} for t in tasks]
            if size == 1:
                for task, end in zip(tasks, ends, strict=True):
                    await post(f"/v1/runs/{task['run_id']}:complete", end)
            elif tasks:
                items = [end | {"run_id": t["run_id"]} for t, end in zip(tasks, ends, strict=True)]
                await post("/v1/runs:complete", {"items": items})
            if tasks:
                done, ended = done + len(tasks), time.perf_counter()

    began = time.perf_counter()
    await asyncio.gather(*(work(f"w-{n}") for n in range(workers)))
    return done / (ended - began)


async def _beats(post: Post, held: list[Any], workers: int, size: int) -> float:
    """Heartbeats per second."""
    count = 0
    end = time.perf_counter() + BEAT_SECONDS

    async def beat(n: int) -> None:
        nonlocal count
        mine = held[n::workers] if size == 1 else held
        while time.perf_counter() < end:
            if size == 1:
                for task in mine[:50]:
                    await post(f"/v1/runs/{task['run_id']}:heartbeat", {"epoch": task["epoch"]})
                    count += 1
            else:
                items = [{"run_id": t["run_id"], "epoch": t["epoch"]} for t in mine]
                await post("/v1/runs:heartbeat", {"items": items})
                count += len(items)

    began = time.perf_counter()
    await asyncio.gather(*(beat(n) for n in range(workers)))
    return count / (time.perf_counter() - began)


async def _measure(stack: ApiStack, queues: Mapping[str, str]) -> Mapping[str, float]:
    headers = {"Authorization": f"Bearer {stack.info['api_key']}"}
    async with aiohttp.ClientSession(stack.info["api_url"], headers=headers) as session:

        async def post(path: str, body: Any) -> Any:
            async with session.post(path, json=body) as answer:
                answer.raise_for_status()
                return await answer.json()

        began, cpu = time.perf_counter(), time.process_time()
        single = await _drain(post, queues["single"], SINGLE, WORKERS, 1)
        load = (time.process_time() - cpu) / (time.perf_counter() - began)
        batched = await _drain(post, queues["batched"], BATCHED, BATCHERS, BATCH)
        asked = {"worker_id": "beats", "wait_seconds": 5, "max_tasks": HELD}
        held = (await post(f"/v1/task-queues/{queues['held']}/tasks:poll", asked))["tasks"]
        return {
            "tasks_per_s": single,
            "batched_tasks_per_s": batched,
            "beats_per_s": await _beats(post, held, WORKERS, 1),
            "bulk_beats_per_s": await _beats(post, held, 2, HELD),
            "load_cpu": load,
        }


def once() -> Mapping[str, float]:
    """A fresh product, one tenant without limits: what passes its gate counts as running for a while."""
    with api_stack() as stack:
        Api(stack.info["api_url"], stack.info["operator_api_key"]).call(
            "PATCH",
            f"/v1/admin/tenants/{stack.info['tenant_id']}/quotas",
            {"quotas": {"job_runs_per_second": 10_000, "running_runs": 1_000_000}, "override": True},
        )
        mark = uuid.uuid4().hex[:6]
        queues = {name: f"{name}-{mark}" for name in ("single", "batched", "held")}
        for name, count in (("single", SINGLE), ("batched", BATCHED), ("held", HELD)):
            _fill(stack, queues[name], count)
        return asyncio.run(_measure(stack, queues))


BENCH = Bench(
    name="workers",
    title="pull workers through router and cell: poll and complete, heartbeats; single and in bulk",
    topology=f"whole product, fsync on; {WORKERS} workers one by one, {BATCHERS} with batches of {BATCH};"
    f" beats of {WORKERS} one by one, and {HELD} in one request; workers are one Python process with aiohttp"
    " beside it (`load_cpu`: its share of a core)",
    once=once,
    bars=(
        Bar(figure="tasks_per_s", what="poll + complete, one by one", bar=700, unit="/s"),
        Bar(figure="batched_tasks_per_s", what="poll + complete in batches", bar=5_000, unit="/s"),
        Bar(figure="beats_per_s", what="heartbeats, one by one", bar=800, unit="/s"),
        Bar(figure="bulk_beats_per_s", what="heartbeats in bulk", bar=10_000, unit="/s"),
    ),
)
