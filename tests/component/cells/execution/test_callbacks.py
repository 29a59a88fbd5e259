"""Others are told how runs ended: at least once, signed, under a key of its own."""

from __future__ import annotations

import asyncio
import base64
import json

from aiohttp import web
from standardwebhooks import Webhook

from cells.domain.ids import run_id
from cells.domain.job import RetryPolicy, TargetRef
from cells.domain.run import RunState
from tests.component.cells.execution.harness import SIGNING, Cell
from tests.component.cells.execution.http_target import Handler, HttpTarget, Received, answering
from tests.component.cells.execution.test_executor import gate
from tests.waiting import eventually

ONCE = RetryPolicy(max_attempts=1)
TOLD = TargetRef(target_id="tgt_test", path="/told")


def by_path(**handlers: Handler) -> Handler:
    """An answer for each path; 200 elsewhere."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return await handlers.get(request.path.strip("/"), answering(200))(request)

    return answer


async def told(target: HttpTarget, count: int = 1) -> list[Received]:
    """The requests that told of a run."""

    async def look() -> list[Received] | None:
        found = [request for request in target.received if request.path == "/told"]
        return found if len(found) >= count else None

    return await eventually(look) or []


async def test_a_success_is_told_in_a_run_of_its_own(running_cell: Cell, target: HttpTarget) -> None:
    await running_cell.target(target.url)
    secret = {"x-secret": "1"}
    key = await running_cell.run_now(path="/work", on_success=TOLD, on_failure=TOLD, headers=secret)
    run = await running_cell.ended(key)
    (request,) = await told(target)
    (callback,) = await running_cell.store.callbacks_of(running_cell.tenant, key)
    callback = await running_cell.ended(callback.key)
    assert (callback.state, callback.kind, callback.key.parent_id) == (RunState.SUCCEEDED, 2, key.parent_id)
    assert request.headers["Idempotency-Key"] == run_id(callback.key)
    assert run_id(callback.key) != run_id(key)
    assert "x-secret" not in request.headers
    Webhook(base64.b64encode(SIGNING).decode()).verify(request.body, dict(request.headers))
    body = json.loads(request.body)
    assert (body["event"], body["run_id"], body["state"]) == ("run.succeeded", run_id(key), "SUCCEEDED")
    assert (body["attempts"], body["series"], body["reason"]) == (1, 1, None)
    assert run.finished_at is not None
    assert body["finished_at"][:22] == run.finished_at.isoformat()[:22]
    # It tells nobody of itself.
    assert await running_cell.store.callbacks_of(running_cell.tenant, callback.key) == []
    assert [request.path for request in target.received] == ["/work", "/told"]


async def test_a_failure_is_told_and_tried_again(running_cell: Cell, target: HttpTarget) -> None:
    await running_cell.target(target.url)
    target.answer = by_path(work=answering(418), told=answering(503))
    key = await running_cell.run_now(path="/work", on_failure=TOLD, retry_policy=ONCE)
    run = await running_cell.ended(key)
    await told(target)

    async def again() -> bool:
        (callback,) = await running_cell.store.callbacks_of(running_cell.tenant, key)
        return callback.state is RunState.RETRY_WAIT and callback.attempt == 1

    await eventually(again)
    (first,) = await told(target)
    body = json.loads(first.body)
    assert (body["event"], body["http_status"], body["reason"]) == ("run.failed", 418, run.reason)


async def test_nobody_is_told_who_did_not_ask(running_cell: Cell, target: HttpTarget) -> None:
    await running_cell.target(target.url)
    target.answer = by_path(work=answering(418))
    failed = await running_cell.run_now(path="/work", on_success=TOLD, retry_policy=ONCE)
    succeeded = await running_cell.run_now(path="/fine", on_failure=TOLD)
    for key in (failed, succeeded):
        await running_cell.ended(key)
        assert await running_cell.store.callbacks_of(running_cell.tenant, key) == []


async def test_a_call_under_way_is_not_recalled_and_says_so(running_cell: Cell, target: HttpTarget) -> None:
    """What the target did is a fact: the call is never broken off, and its success is not hidden."""
    await running_cell.target(target.url)
    opened, target.answer = gate()
    key = await running_cell.run_now(path="/work")
    await eventually(lambda: bool(target.received))
    asked = await running_cell.store.cancel_run(
        running_cell.fence, key=key, actor="user:test", host_id=running_cell.host.host_id
    )
    assert (asked.state, asked.cancel_requested) == (RunState.RUNNING, True)
    opened.set()
    assert (await running_cell.ended(key)).state is RunState.SUCCEEDED_AFTER_CANCEL


async def test_a_cancelled_call_that_fails_is_not_tried_again(running_cell: Cell, target: HttpTarget) -> None:
    await running_cell.target(target.url)
    opened = asyncio.Event()

    async def fails(_: web.Request) -> web.Response:
        await opened.wait()
        return web.Response(status=503)

    target.answer = fails
    key = await running_cell.run_now(path="/work")
    await eventually(lambda: bool(target.received))
    await running_cell.store.cancel_run(
        running_cell.fence, key=key, actor="user:test", host_id=running_cell.host.host_id
    )
    opened.set()
    run = await running_cell.ended(key)
    assert (run.state, len(target.received)) == (RunState.CANCELLED, 1)


async def test_only_so_many_of_a_key_are_called_at_once(running_cell: Cell, target: HttpTarget) -> None:
    await running_cell.target(target.url)
    under_way = most = 0

    async def counted(_: web.Request) -> web.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.05)
        under_way -= 1
        return web.Response(status=200)

    target.answer = counted
    keys = [
        await running_cell.run_now(path="/work", concurrency_key="k", max_concurrent=3) for _ in range(40)
    ]
    for key in keys:
        run = await running_cell.ended(key, timeout=30)
        assert (run.state, run.attempt, run.reason) == (RunState.SUCCEEDED, 1, None)
    assert 2 <= most <= 3
