"""Limits, breakers and parking, over the real store, queue and HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import cast

import psycopg
import pytest
import redis.asyncio as redis
from aiohttp import web

from cells.domain.breaker import BreakerState
from cells.domain.job import RetryPolicy
from cells.domain.run import RunState
from cells.execution.executor import Executor
from cells.limits import TargetBoard
from cells.observability.metrics import Metrics
from cells.ports import Retryable, Store
from cells.timers.queue import ValkeyQueue
from tests.component.cells.execution.harness import Cell, cell
from tests.component.cells.execution.http_target import Handler, HttpTarget, answering
from tests.waiting import eventually

ONCE = RetryPolicy(max_attempts=1)


async def board_of(made: Cell, target_id: str = "tgt_test") -> TargetBoard:
    board = await made.queue.target_board((made.tenant, target_id))
    assert board is not None
    return board


async def parked(made: Cell, target_id: str = "tgt_test") -> int:
    return sum((await board_of(made, target_id)).parked)


async def event_types(made: Cell) -> list[str]:
    found = await made.store.events(made.tenant, after=None, type_=None, limit=50)
    return [event.type for event in found.events]


@asynccontextmanager
async def second_executor(made: Cell) -> AsyncIterator[Metrics]:
    """One more, with slots of its own."""
    metrics, stop = Metrics(), asyncio.Event()
    executor = Executor(
        cast(Store, made.network),
        made.queue,
        made.box,
        made.host,
        made.clock,
        metrics,
        slots=made.slots,
        egress_allow=made.egress_allow,
        drain_seconds=2.0,
    )
    task = asyncio.create_task(executor.run(stop))
    try:
        yield metrics
    finally:
        stop.set()
        await task


def counting(handler: Handler) -> tuple[list[int], Handler]:
    """Calls under way now, and at most."""
    seen = [0, 0]

    async def answer(request: web.Request) -> web.StreamResponse:
        seen[0] += 1
        seen[1] = max(seen)
        try:
            return await handler(request)
        finally:
            seen[0] -= 1

    return seen, answer


def after(seconds: float) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(seconds)
        return web.Response(text="ok")

    return answer


async def test_work_of_a_broken_target_waits_without_a_claim(
    running_cell: Cell, target: HttpTarget, cell_database_url: str
) -> None:
    made = running_cell
    target.answer = answering(500, "broken")
    await made.target(target.url, max_concurrency=10)
    healthy = await made.target(target.url + "/healthy", "tgt_healthy")
    first = [await made.run_now(retry_policy=ONCE) for _ in range(20)]
    await eventually(lambda: len(target.received) >= 20)

    async def is_open() -> bool:
        return (await board_of(made)).breaker is BreakerState.OPEN

    await eventually(is_open)
    called = len(target.received)
    later = [await made.run_now() for _ in range(30)]

    async def all_parked() -> bool:
        return await parked(made) == 30

    await eventually(all_parked)
    assert len(target.received) == called
    async with await psycopg.AsyncConnection.connect(cell_database_url) as connection:
        row = await (await connection.execute("SELECT count(*), sum(attempt) FROM runs")).fetchone()
    assert row == (len(first), len(first))  # nobody claimed what is parked

    target.answer = answering(200)
    run = await made.ended(await made.run_now(healthy.target_id))
    assert run.state is RunState.SUCCEEDED
    assert await parked(made) == 30
    assert await eventually(lambda: made.count("target_breaker_moves_total", to="open")) == 1
    await eventually(lambda: _told(made, "target.broken"))
    # It is probed when it has waited, and works.
    for key in later:
        run = await made.ended(key, timeout=20)
        assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)
    await eventually(lambda: _told(made, "target.recovered"))
    assert (await board_of(made)).breaker is BreakerState.CLOSED


async def _told(made: Cell, type_: str) -> bool:
    return type_ in await event_types(made)


async def test_a_retry_after_stops_the_whole_target(running_cell: Cell, target: HttpTarget) -> None:
    made = running_cell
    target.answer = answering(429, "slow down", Retry_After="2")
    await made.target(target.url)
    await made.run_now(retry_policy=ONCE)
    await eventually(lambda: made.count("target_pauses_total") == 1)
    target.answer = answering(200)
    later = [await made.run_now() for _ in range(5)]
    runs = [await made.ended(key) for key in later]
    assert len(target.received) == 6
    refused_at = min(run.due_at for run in runs)
    assert all((run.started_at - refused_at).total_seconds() > 1.5 for run in runs if run.started_at)
    assert {run.attempt for run in runs} == {1}


async def test_a_target_that_says_nothing_remains_is_not_called_until_it_renews(
    running_cell: Cell, target: HttpTarget
) -> None:
    made = running_cell
    left = iter([2, 1, 0])

    async def answer(_: web.Request) -> web.Response:
        remains = next(left, 9)
        return web.Response(
            headers={"RateLimit": f'"burst";r={remains};t=2', "RateLimit-Policy": '"burst";q=3;w=2'}
        )

    target.answer = answer
    await made.target(target.url, max_concurrency=1)
    keys = [await made.run_now() for _ in range(6)]
    await eventually(lambda: len(target.received) == 3)
    board = await eventually(lambda: _told_nothing_left(made))
    assert board.usable == 0
    runs = sorted([await made.ended(key) for key in keys], key=lambda run: str(run.started_at))
    assert {run.attempt for run in runs} == {1}
    assert runs[3].started_at is not None
    assert runs[2].finished_at is not None
    assert (runs[3].started_at - runs[2].finished_at).total_seconds() > 1.5


async def _told_nothing_left(made: Cell) -> TargetBoard | None:
    board = await board_of(made)
    return board if board.remaining == 0 else None


async def test_executors_share_one_limit(cell_database_url: str, valkey_url: str, target: HttpTarget) -> None:
    seen, target.answer = counting(after(0.1))
    async with cell(cell_database_url, valkey_url) as made, second_executor(made) as others:
        await made.target(target.url, max_concurrency=4, initial_concurrency=4, latency_slo_ms=900_000)
        keys = [await made.run_now() for _ in range(40)]
        for key in keys:
            assert (await made.ended(key, timeout=20)).state is RunState.SUCCEEDED

        def counted() -> list[float]:
            outcome = {"outcome": "SUCCEEDED"}
            found = [
                m.registry.get_sample_value("executor_attempts_total", outcome)
                for m in (made.metrics, others)
            ]
            return [value or 0.0 for value in found]

        # Counted once the store has answered, which the rows are visible before.
        await eventually(lambda: sum(counted()) == 40)
    # An executor that meets a target may call it before it has heard of the others.
    assert seen[1] <= 5


async def test_the_limit_of_a_slow_target_is_halved_before_its_calls_end(
    cell_database_url: str, valkey_url: str, target: HttpTarget
) -> None:
    async with cell(cell_database_url, valkey_url, slots=128) as made:
        await made.target(target.url, max_concurrency=16, initial_concurrency=16, latency_slo_ms=1000)
        target.answer = after(0.02)
        for key in [await made.run_now() for _ in range(20)]:
            await made.ended(key)
        before = (await board_of(made)).usable
        seen, target.answer = counting(after(8.0))
        keys = [await made.run_now() for _ in range(40)]

        async def halved() -> bool:
            return (await board_of(made)).usable <= max(1, before // 2)

        await eventually(halved)
        assert seen[0] == seen[1]  # none has ended
        target.answer = after(0.02)
        for key in keys:
            assert (await made.ended(key, timeout=60)).state is RunState.SUCCEEDED


async def test_what_was_parked_is_found_again_when_valkey_is_emptied(
    cell_database_url: str, valkey_url: str, target: HttpTarget
) -> None:
    opened = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        await opened.wait()
        return web.Response()

    target.answer = answer
    async with cell(cell_database_url, valkey_url) as made:
        await made.target(target.url, max_concurrency=2, initial_concurrency=2, latency_slo_ms=900_000)
        keys = [await made.run_now() for _ in range(12)]
        await eventually(lambda: made.count("target_parked_members") == 10)
        client: redis.Redis = redis.Redis.from_url(valkey_url)
        await client.flushdb()
        await client.aclose()
        # Its share is what the executor knew; the sweep (the loader's) puts back what was lost.
        board = await eventually(lambda: made.queue.target_board((made.tenant, "tgt_test")))
        assert board is not None
        assert board.usable == 2
        async for page in made.store.due_members(shards=range(256), since=None, until=datetime.now(UTC)):
            await made.queue.restore(page)
        opened.set()
        for key in keys:
            assert (await made.ended(key, timeout=20)).state is RunState.SUCCEEDED
        assert len(target.received) == 12


async def test_executors_go_on_while_limits_cannot_be_shared(
    cell_database_url: str, valkey_url: str, target: HttpTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise Retryable("cut")

    monkeypatch.setattr(ValkeyQueue, "exchange", away)
    seen, target.answer = counting(after(0.05))
    async with cell(cell_database_url, valkey_url) as made:
        await made.target(target.url, max_concurrency=3, initial_concurrency=3, latency_slo_ms=900_000)
        for key in [await made.run_now() for _ in range(12)]:
            assert (await made.ended(key)).state is RunState.SUCCEEDED
    assert seen[1] == 3


async def test_a_drill_delivers_twice_and_says_who_copes(
    running_cell: Cell, target: HttpTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cells.execution.executor.AUDIT_SECONDS", 0.2)  # then it tells
    made = running_cell
    await made.target(target.url, settings={"drill": {"duplicate_percent": 100}})
    key = await made.run_now(payload=b'{"n":1}')
    assert (await made.ended(key)).attempt == 1
    first, second = await eventually(lambda: target.received if len(target.received) == 2 else None)
    for name in ("Idempotency-Key", "X-Fencing-Token", "X-Clockhouse-Attempt", "webhook-id"):
        assert first.headers[name] == second.headers[name]
    assert first.body == second.body == b'{"n":1}'

    async def told() -> tuple[int, int] | None:
        row = await made.store.drill(made.tenant, "tgt_test")
        return None if row is None else (row.sent, row.coped)

    assert await eventually(told) == (1, 1)
    answers = iter([200, 500])

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=next(answers))

    target.answer = answer
    run = await made.ended(await made.run_now())
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)

    async def failed() -> bool:
        row = await made.store.drill(made.tenant, "tgt_test")
        return row is not None and (row.sent, row.coped, row.failed_status) == (2, 1, 500)

    await eventually(failed)
