"""Workflows through router and cell, with pull workers: starting, steps in batches and one by one, and how
long a start and a signal take until a worker has the step that follows.

Steps are counted from when the workers begin, with all workflows started and their first tasks READY,
until every workflow is closed. Workers are one Python process with aiohttp beside the product.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import psutil

from tests.api import Api
from tests.bench.api_stack import ApiStack, api_stack
from tests.bench.frame import Bar, Bench

BATCHED, SINGLE = 1_500, 300
#: Workflows that wait, more than a cell keeps in memory: what those beyond the first number take is told.
FULL, WAITING = 20_000, 25_000
STEPS = 5
STARTERS, WORKERS, BATCHERS, BATCH = 32, 48, 3, 500
LATENCIES = 150
CELLS = ("cell-local-shared-1", "cell-local-shared-2")

Post = Callable[[str, Any], Awaitable[Any]]
Get = Callable[[str], Awaitable[Any]]


def _steps(queue: str, count: int = STEPS) -> dict[str, Any]:
    return {"steps": [{"id": f"s{n}", "activity": {"task_queue": queue, "type": "T"}} for n in range(count)]}


def _signalled(queue: str) -> dict[str, Any]:
    wait = {"id": "wait", "wait_for_signal": {"name": "go", "timeout": "30d"}}
    return {"steps": [wait, {"id": "work", "activity": {"task_queue": queue, "type": "T"}}]}


class _Load:
    """One tenant's client and workers."""

    def __init__(self, post: Post, get: Get, mark: str):
        self.post, self.get, self.mark = post, get, mark

    async def start(self, definition: str, count: int, *, first: int = 0) -> tuple[float, list[float]]:
        """So many workflows, numbered from one on; starts per second, and what each took (milliseconds)."""
        took: list[float] = []
        numbers = iter(range(first, first + count))

        async def starter() -> None:
            for n in numbers:
                began = time.perf_counter()
                name = f"{definition}-{n}"
                await self.post(
                    "/v1/workflows", {"workflow_id": name, "definition": definition, "input": {"n": n}}
                )
                took.append((time.perf_counter() - began) * 1000)

        began = time.perf_counter()
        await asyncio.gather(*(starter() for _ in range(STARTERS)))
        return count / (time.perf_counter() - began), took

    async def drain(self, queue: str, steps: int, workers: int, size: int) -> float:
        """Poll and complete until so many steps have been done; steps per second. The polls that find
        nothing more are not waited for."""
        done, ended = 0, 0.0

        async def work(name: str) -> None:
            nonlocal done, ended
            while done < steps:
                asked = {"worker_id": name, "wait_seconds": 1, "max_tasks": size}
                tasks = (await self.post(f"/v1/task-queues/{queue}/tasks:poll", asked))["tasks"]
                ends = [{"epoch": t["epoch"], "outcome": "SUCCEEDED", "result": {"ok": 1}} for t in tasks]
                if size == 1:
                    for task, end in zip(tasks, ends, strict=True):
                        await self.post(f"/v1/runs/{task['run_id']}:complete", end)
                elif tasks:
                    items = [end | {"run_id": t["run_id"]} for t, end in zip(tasks, ends, strict=True)]
                    await self.post("/v1/runs:complete", {"items": items})
                if tasks:
                    done, ended = done + len(tasks), time.perf_counter()

        began = time.perf_counter()
        await asyncio.gather(*(work(f"w-{n}") for n in range(workers)))
        return done / (ended - began)

    async def closed(self, definition: str, count: int) -> None:
        """Wait until all are closed."""
        while True:
            page = await self.get(f"/v1/workflows?definition={definition}&status=RUNNING&limit=1")
            if not page["items"]:
                break
            await asyncio.sleep(0.05)
        page = await self.get(f"/v1/workflows?definition={definition}&status=COMPLETED&limit=200")
        if len(page["items"]) < min(count, 200):
            raise RuntimeError(f"only {len(page['items'])} of {count} workflows were completed")

    async def until_task(self, queue: str, act: Callable[[int], Awaitable[Any]]) -> list[float]:
        """From an act until a worker that waits has the task that follows from it (milliseconds)."""
        took = []
        for n in range(LATENCIES):
            asked = {"worker_id": "w", "wait_seconds": 20, "max_tasks": 1}
            poll = asyncio.ensure_future(self.post(f"/v1/task-queues/{queue}/tasks:poll", asked))
            await asyncio.sleep(0.02)  # the poll is there before what it waits for
            began = time.perf_counter()
            await act(n)
            (task,) = (await poll)["tasks"]
            took.append((time.perf_counter() - began) * 1000)
            end = {"epoch": task["epoch"], "outcome": "SUCCEEDED"}
            await self.post(f"/v1/runs/{task['run_id']}:complete", end)
        return took


def _quantiles(name: str, took: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(took, n=100)
    return {f"{name}_p50_ms": cuts[49], f"{name}_p99_ms": cuts[98]}


def _cell_rss(stack: ApiStack) -> int:
    return sum(psutil.Process(stack.stack.pid(cell)).memory_info().rss for cell in CELLS)


def _cell_cpu(stack: ApiStack) -> float:
    """CPU seconds that the cells' hosts have used; without their engines."""
    times = [psutil.Process(stack.stack.pid(cell)).cpu_times() for cell in CELLS]
    return sum(float(t.user + t.system) for t in times)


async def _measure(stack: ApiStack) -> Mapping[str, float]:
    mark = uuid.uuid4().hex[:6]
    headers = {"Authorization": f"Bearer {stack.info['api_key']}"}
    async with aiohttp.ClientSession(stack.info["api_url"], headers=headers) as session:

        async def ask(method: str, path: str, body: Any = None) -> Any:
            async with session.request(method, path, json=body) as answer:
                if answer.status >= 400:
                    raise RuntimeError(f"{method} {path}: {answer.status} {await answer.text()}")
                return await answer.json()

        load = _Load(lambda path, body: ask("POST", path, body), lambda path: ask("GET", path), mark)
        for name, text in (
            (f"batched-{mark}", _steps(f"batched-{mark}")),
            (f"single-{mark}", _steps(f"single-{mark}")),
            (f"started-{mark}", _steps(f"started-{mark}", 1)),
            (f"signalled-{mark}", _signalled(f"signalled-{mark}")),
            (f"waiting-{mark}", _signalled(f"waiting-{mark}")),
        ):
            await ask("PUT", f"/v1/workflow-definitions/{name}/versions/1", text)
        figures: dict[str, float] = {}
        figures["starts_per_s"], took = await load.start(f"batched-{mark}", BATCHED)
        figures |= _quantiles("start", took)
        began, cpu = time.perf_counter(), _cell_cpu(stack)
        figures["steps_per_s"] = await load.drain(f"batched-{mark}", BATCHED * STEPS, BATCHERS, BATCH)
        await load.closed(f"batched-{mark}", BATCHED)
        figures["workflows_per_s"] = BATCHED / (time.perf_counter() - began)
        figures["steps_per_cpu_second_of_cell"] = BATCHED * STEPS / (_cell_cpu(stack) - cpu)
        await load.start(f"single-{mark}", SINGLE)
        figures["single_steps_per_s"] = await load.drain(f"single-{mark}", SINGLE * STEPS, WORKERS, 1)
        started = await load.until_task(
            f"started-{mark}",
            lambda n: load.post(
                "/v1/workflows", {"workflow_id": f"s-{mark}-{n}", "definition": f"started-{mark}"}
            ),
        )
        figures |= _quantiles("start_to_task", started)
        await load.start(f"signalled-{mark}", LATENCIES)
        signalled = await load.until_task(
            f"signalled-{mark}",
            lambda n: load.post(
                f"/v1/workflows/signalled-{mark}-{n}/signals/go", {"signal_id": "s", "payload": n}
            ),
        )
        figures |= _quantiles("signal_to_task", signalled)
        before = _cell_rss(stack)
        await load.start(f"waiting-{mark}", FULL)
        full = _cell_rss(stack)
        await load.start(f"waiting-{mark}", WAITING - FULL, first=FULL)
        after = _cell_rss(stack)
        figures["mb_waiting"] = (after - before) / 1e6
        figures["kb_each_beyond"] = (after - full) / (WAITING - FULL) / 1e3
        return figures


def once() -> Mapping[str, float]:
    """A fresh product, one tenant."""
    with api_stack() as stack:
        Api(stack.info["api_url"], stack.info["operator_api_key"]).call(
            "PATCH",
            f"/v1/admin/tenants/{stack.info['tenant_id']}/quotas",
            {"quotas": {"workflow_steps_per_second": 1_000_000}},
        )
        return asyncio.run(_measure(stack))


BENCH = Bench(
    name="workflows-api",
    title="workflows through router and cell: starts, steps by pull workers in batches and one by one",
    topology=f"whole product, fsync on; {BATCHERS} workers with batches of {BATCH}, {WORKERS} one by one: one"
    " Python process with aiohttp beside it",
    once=once,
    bars=(
        Bar(figure="steps_per_s", what="workflow steps, batching workers", bar=2_400, floor=1_650, unit="/s"),
        Bar(figure="single_steps_per_s", what="workflow steps, one by one", bar=700, unit="/s"),
        Bar(figure="start_to_task_p50_ms", what="start until a worker has it, p50", bar=30, unit="ms",
            better="lower"),
        Bar(figure="signal_to_task_p50_ms", what="signal until a worker has it, p50", bar=30, unit="ms",
            better="lower"),
        Bar(figure="mb_waiting", what=f"memory of a cell, {WAITING:,} waiting: more than it keeps", bar=50,
            unit="MB", better="lower"),
    ),
)  # fmt: skip
