"""Runs that may be called but once: only what was never sent is tried again."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from cells.domain.job import Delivery
from cells.domain.run import AttemptOutcome, RunState
from tests.component.cells.execution.harness import cell
from tests.component.cells.execution.http_target import HttpTarget, answering, in_turn
from tests.waiting import eventually

ONCE: dict[str, Any] = {"delivery": Delivery.AT_MOST_ONCE, "region_policy": "SINGLE_REGION"}


async def _hang_up(request: web.Request) -> web.StreamResponse:
    """Take the request, and answer nothing."""
    assert request.transport is not None
    request.transport.abort()
    raise ConnectionResetError


async def test_what_was_sent_and_not_answered_is_unknown_and_not_called_again(
    cell_database_url: str, valkey_url: str, target: HttpTarget
) -> None:
    target.answer = in_turn(_hang_up, answering(200))
    async with cell(cell_database_url, valkey_url) as made:
        await made.target(target.url)
        run = await made.ended(await made.run_now(**ONCE))
    assert run.state is RunState.UNKNOWN
    assert [attempt.outcome for attempt in run.attempts] == [AttemptOutcome.RETRYABLE]
    assert len(target.received) == 1


async def test_what_was_never_sent_is_tried_again(
    cell_database_url: str, valkey_url: str, unused_tcp_port: int
) -> None:
    async with cell(cell_database_url, valkey_url) as made:
        await made.target(f"http://127.0.0.1:{unused_tcp_port}")
        run = await made.ended(await made.run_now(**ONCE))
    assert run.state is RunState.FAILED
    assert len(run.attempts) > 1


async def test_what_no_other_region_confirms_is_not_called_keeps_nobody_waiting_and_is_given_back(
    cell_database_url: str, valkey_url: str, target: HttpTarget
) -> None:
    strict: dict[str, Any] = {"delivery": Delivery.AT_MOST_ONCE, "region_policy": "STRICT"}
    async with cell(cell_database_url, valkey_url, slots=8) as made:
        made.store._leased = True  # and no standby is named that could confirm
        await made.target(target.url)
        alone = [await made.run_now(**strict) for _ in range(10)]  # more than the class has slots
        await eventually(lambda: made.count("executor_parked", priority="default") == 10)
        assert (await made.ended(await made.run_now())).state is RunState.SUCCEEDED
        assert len(target.received) == 1

        await made.end("executor")
        for key in alone:
            run = await made.run(key)
            assert run is not None
            assert (run.state, list(run.attempts)) == (RunState.RETRY_WAIT, [])
        made.store._leased = False
        made.begin("executor")
        for key in alone:
            run = await made.ended(key)
            assert (run.state, len(run.attempts)) == (RunState.SUCCEEDED, 1)
    assert len(target.received) == 11
