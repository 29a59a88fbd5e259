"""slow-target: beside healthy targets one turns slow (200 ms to 8 s) and one is dead. Two executor
processes share the limits: the healthy ones' throughput stays within 10 %, the slow one's load is
halved within a second, and what waits for the dead one costs no attempt."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from aiohttp import web

from cells.clock import SystemClock
from cells.limits import TargetBoard
from cells.ports import Fence, NewJob, SealedSecret
from cells.secrets import SealedBox, target_context
from cells.store.postgres import PostgresStore
from cells.timers.queue import ValkeyQueue
from deploy.ports import Reservation
from tests.bench.cell import CELL, BenchCell, bench_cell
from tests.waiting import eventually_sync

EXECUTORS = {"executor-1": "executor", "executor-2": "executor", "rest": "api,loader,dispatcher,reaper,meter"}
HEALTHY, SLOW, DEAD = ("tgt_a", "tgt_b", "tgt_c", "tgt_d"), "tgt_slow", "tgt_dead"
HEALTHY_PER_SECOND = 30  # each
SLOW_PER_SECOND, DEAD_PER_SECOND = 40, 40
#: Calls at once of the slow target, and what it promises.
SLOW_LIMIT, SLOW_SLO_MS = 16, 500
QUICK, SLUGGISH = 0.2, 8.0
START_SECONDS, PHASE_SECONDS, MARGIN_SECONDS = 25, 12, 1


class Server:
    """Healthy paths answer at once; `/slow` after what `delay` says, and is counted."""

    def __init__(self) -> None:
        self.delay = QUICK
        self.arrivals: list[float] = []
        self.running = 0
        self.highest = 0
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        if not request.path.startswith("/slow"):
            return web.Response(text="ok")
        self.arrivals.append(time.time())
        self.running += 1
        self.highest = max(self.highest, self.running)
        try:
            await asyncio.sleep(self.delay)
        finally:
            self.running -= 1
        return web.Response(text="at last")

    async def serve(self, ready: threading.Event, done: asyncio.Event) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        await done.wait()
        await runner.cleanup()


@contextmanager
def server() -> Iterator[Server]:
    """In a thread and a loop of its own."""
    made, ready, loop, done = Server(), threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(made.serve(ready, done)), daemon=True)
    thread.start()
    ready.wait(10)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(10)


def main() -> dict[str, Any]:
    nobody = Reservation()  # bound, and listening to nobody
    try:
        with server() as target, bench_cell() as cell:
            return run(cell, target, f"http://127.0.0.1:{nobody.port}")
    finally:
        nobody.release()


def run(cell: BenchCell, target: Server, dead_url: str) -> dict[str, Any]:
    alone_at = (datetime.now(UTC) + timedelta(seconds=START_SECONDS)).replace(microsecond=0)
    beside_at = alone_at + timedelta(seconds=PHASE_SECONDS)
    asyncio.run(_register(cell, target.url, dead_url))
    jobs = [
        *_jobs(cell, SLOW, alone_at, SLOW_PER_SECOND, 2 * PHASE_SECONDS),
        *_jobs(cell, DEAD, beside_at, DEAD_PER_SECOND, PHASE_SECONDS),
    ]
    for name in HEALTHY:
        jobs += _jobs(cell, name, alone_at, HEALTHY_PER_SECOND, 2 * PHASE_SECONDS)
    cell.write(jobs)
    with cell.running(EXECUTORS):
        _sleep_until(beside_at)
        before = asyncio.run(_board(cell, SLOW))
        rate_before = _rate(target, beside_at.timestamp() - 3, 3)
        switched = time.time()
        target.delay = SLUGGISH
        highest_before, target.highest = target.highest, target.running
        halved_after, limit_after = asyncio.run(_halved(cell, before.limit, switched))
        _sleep_until(beside_at + timedelta(seconds=PHASE_SECONDS))
        slow, dead = (asyncio.run(_board(cell, name)) for name in (SLOW, DEAD))
        rate_after = _rate(target, switched + 1, PHASE_SECONDS - 2)
        target.delay = QUICK
    margin = timedelta(seconds=MARGIN_SECONDS)
    span = timedelta(seconds=PHASE_SECONDS - 2 * MARGIN_SECONDS)
    alone = _healthy(cell, alone_at + margin, alone_at + margin + span)
    beside = _healthy(cell, beside_at + margin, beside_at + margin + span)
    claimed, attempts = cell.query(
        "SELECT count(*), coalesce(sum(attempt), 0) FROM runs WHERE target_id = 'tgt_dead'"
    )[0]
    due_dead = DEAD_PER_SECOND * PHASE_SECONDS
    ratio = beside["per_second"] / alone["per_second"]
    return {
        "holds": ratio >= 0.9
        and halved_after <= 1.0
        and rate_after <= rate_before / 2
        and max(highest_before, target.highest) <= SLOW_LIMIT
        and dead.breaker != "CLOSED"
        and sum(dead.parked) + int(str(claimed)) >= due_dead - DEAD_PER_SECOND
        and int(str(attempts)) <= due_dead // 4,
        "load": round(os.getloadavg()[0], 1),
        "healthy_per_second_alone": alone["per_second"],
        "healthy_per_second_beside": beside["per_second"],
        "healthy_p99_ms_alone": alone["p99_ms"],
        "healthy_p99_ms_beside": beside["p99_ms"],
        "slow_limit_before": int(before.limit),
        "slow_limit_halved_after_seconds": halved_after,
        "slow_limit_then": limit_after,
        "slow_limit_at_the_end": int(slow.limit),
        "slow_calls_per_second_before": rate_before,
        "slow_calls_per_second_after": rate_after,
        "slow_calls_at_once": max(highest_before, target.highest),
        "executors_sharing": before.executors,
        "slow_parked": sum(slow.parked),
        "dead_due": due_dead,
        "dead_attempts": int(str(attempts)),
        "dead_parked": sum(dead.parked),
    }


async def _register(cell: BenchCell, url: str, dead_url: str) -> None:
    """The targets, before the hosts start."""
    vault = SealedBox([bytes.fromhex(cell.installation_key)])
    async with PostgresStore(cell.database_url, cell_name=CELL) as store:
        host = await store.register_host(name=f"proof-{os.getpid()}", roles=["proof"], lease_ms=600_000)
        fence = Fence(tenant_id=cell.tenant_id, epoch=1)
        like = await store.get_target(cell.tenant_id, "tgt_bench")
        if like is None:
            raise RuntimeError("the bench cell has no target")
        places = {name: f"{url}/{name}" for name in HEALTHY} | {SLOW: f"{url}/slow", DEAD: dead_url}
        for name, place in places.items():
            calls, slo_ms = (SLOW_LIMIT, SLOW_SLO_MS) if name == SLOW else (50, 30_000)
            sealed = SealedSecret(
                generation=1,
                purpose="SIGNING",
                sealed=vault.seal(os.urandom(32), context=target_context(cell.tenant_id, name, "SIGNING")),
                created_at=like.created_at,
                expires_at=None,
            )
            row = dataclasses.replace(
                like,
                target_id=name,
                base_url=place,
                max_concurrency=calls,
                initial_concurrency=calls,
                latency_slo_ms=slo_ms,
            )
            await store.create_target(fence, row, [sealed], host_id=host.host_id)
        await store.retire_host(host_id=host.host_id)


def _jobs(cell: BenchCell, target_id: str, first: datetime, per_second: int, seconds: int) -> list[NewJob]:
    """Evenly spaced ONCE jobs."""
    out = []
    for n in range(per_second * seconds):
        job = cell.job(first + timedelta(milliseconds=round(1000 * n / per_second)))
        aim = msgspec.structs.replace(job.definition.target, target_id=target_id)
        definition = msgspec.structs.replace(job.definition, target=aim)
        out.append(dataclasses.replace(job, definition=definition))
    return out


async def _board(cell: BenchCell, target_id: str) -> TargetBoard:
    queue = ValkeyQueue(cell.valkey_url, cell=CELL, clock=SystemClock())
    try:
        board = await queue.target_board((cell.tenant_id, target_id))
    finally:
        await queue.close()
    if board is None:
        raise RuntimeError(f"nobody has called {target_id}")
    return board


async def _halved(cell: BenchCell, before: float, since: float) -> tuple[float, int]:
    """How long after `since` the limit was half of what it was."""
    queue = ValkeyQueue(cell.valkey_url, cell=CELL, clock=SystemClock())
    try:
        while time.time() - since < 10:
            board = await queue.target_board((cell.tenant_id, SLOW))
            if board is not None and board.limit <= before / 2:
                return round(time.time() - since, 2), int(board.limit)
            await asyncio.sleep(0.01)
    finally:
        await queue.close()
    return 10.0, int(before)


def _rate(target: Server, since: float, seconds: float) -> float:
    """Calls of the slow target per second that began in that time."""
    return round(sum(since <= at < since + seconds for at in list(target.arrivals)) / seconds, 1)


def _healthy(cell: BenchCell, since: datetime, until: datetime) -> dict[str, float]:
    """Runs of healthy targets that ended well in that time, and how late they began."""
    rows = cell.query(
        """SELECT target_id, finished_at, extract(epoch FROM started_at - due_at) FROM runs
           WHERE state = 'SUCCEEDED'"""
    )
    lags = sorted(
        float(str(lag))
        for name, at, lag in rows
        if name in HEALTHY and isinstance(at, datetime) and since <= at < until
    )
    seconds = (until - since).total_seconds()
    return {
        "per_second": round(len(lags) / seconds, 1),
        "p99_ms": round(1000 * lags[int(0.99 * len(lags))], 1) if lags else 0.0,
    }


def _sleep_until(at: datetime) -> None:
    eventually_sync(lambda: datetime.now(UTC) >= at, timeout=120, interval=0.01)
