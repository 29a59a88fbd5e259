"""Runs from due to recorded, over the real store, queue and HTTP."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import socket
from datetime import datetime

import psycopg
import pytest
from aiohttp import web
from standardwebhooks import Webhook

from cells.domain.ids import run_id
from cells.domain.job import Priority, RetryPolicy
from cells.domain.run import AttemptOutcome, RunState
from cells.execution.signing import Signer, show_secret
from cells.ports import RunRow
from cells.secrets import SealedBox
from tests.component.cells.execution.harness import SIGNING, Cell, cell
from tests.component.cells.execution.http_target import Handler, HttpTarget, answering, in_turn
from tests.waiting import eventually


def gate() -> tuple[asyncio.Event, Handler]:
    """An answer that waits for the test."""
    opened = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        await opened.wait()
        return web.Response(text="at last")

    return opened, answer


def outcomes(run: RunRow) -> list[tuple[AttemptOutcome, int | None]]:
    return [(attempt.outcome, attempt.status) for attempt in run.attempts]


async def test_a_run_succeeds_and_the_target_can_verify_it(running_cell: Cell, target: HttpTarget) -> None:
    await running_cell.target(target.url + "/hooks")
    key = await running_cell.run_now(
        payload=b'{"n": 1}', path="/nightly", headers={"X-Team": "billing", "Idempotency-Key": "forged"}
    )
    run = await running_cell.ended(key)
    assert run.state is RunState.SUCCEEDED
    assert (run.http_status, run.attempt, run.series, run.epoch) == (200, 1, 1, 1 << 20)
    assert outcomes(run) == [(AttemptOutcome.SUCCEEDED, 200)]
    assert run.attempts[0].body == "ok"
    assert run.attempts[0].host == running_cell.host.name
    assert run.due_at <= run.released_at <= run.claimed_at <= run.finished_at  # type: ignore[operator]
    assert run.started_at is not None
    assert run.started_at >= run.due_at

    (received,) = target.received
    assert (received.method, received.path, received.body) == ("POST", "/hooks/nightly", b'{"n": 1}')
    headers = received.headers
    assert headers["Idempotency-Key"] == headers["webhook-id"] == run_id(key)
    assert headers["X-Fencing-Token"] == str(1 << 20)
    assert headers["X-Clockhouse-Attempt"] == "1"
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Team"] == "billing"
    assert headers.getall("Idempotency-Key") == [run_id(key)]
    Webhook(show_secret(SIGNING)).verify(received.body, dict(headers))
    # Counted once the store has answered, which the row is visible before.
    await eventually(lambda: running_cell.count("executor_attempts_total", outcome="SUCCEEDED") == 1)
    assert running_cell.count("scheduler_dispatch_lateness_seconds_count", priority="default") == 1


async def test_without_a_payload_an_empty_object_is_sent(running_cell: Cell, target: HttpTarget) -> None:
    await running_cell.target(target.url)
    await running_cell.ended(await running_cell.run_now())
    await running_cell.ended(await running_cell.run_now(method="GET"))
    assert [(r.method, r.body) for r in target.received] == [("POST", b"{}"), ("GET", b"")]
    for received in target.received:
        headers = received.headers
        assert headers["webhook-signature"] == Signer([SIGNING]).sign(
            headers["webhook-id"], headers["webhook-timestamp"], received.body
        )


async def test_retries_keep_the_key_and_raise_the_token(running_cell: Cell, target: HttpTarget) -> None:
    target.answer = in_turn(answering(503, "no"), answering(429, "slow down"), answering(200))
    await running_cell.target(target.url)
    key = await running_cell.run_now()
    run = await running_cell.ended(key)
    assert run.state is RunState.SUCCEEDED
    assert outcomes(run) == [
        (AttemptOutcome.RETRYABLE, 503),
        (AttemptOutcome.RETRYABLE, 429),
        (AttemptOutcome.SUCCEEDED, 200),
    ]
    assert {r.headers["Idempotency-Key"] for r in target.received} == {run_id(key)}
    assert [r.headers["X-Clockhouse-Attempt"] for r in target.received] == ["1", "2", "3"]
    tokens = [int(r.headers["X-Fencing-Token"]) for r in target.received]
    assert tokens == [1 << 20, (1 << 20) + 1, (1 << 20) + 2]
    traces = [r.headers["traceparent"] for r in target.received]
    assert len({trace[3:35] for trace in traces}) == 1
    assert len({trace[36:52] for trace in traces}) == 3
    assert running_cell.count("executor_retries_total") == 2


async def test_retry_after_is_a_lower_bound(running_cell: Cell, target: HttpTarget) -> None:
    target.answer = in_turn(answering(503, "", Retry_After="1"), answering(200))
    await running_cell.target(target.url)
    run = await running_cell.ended(await running_cell.run_now())
    first, second = run.attempts
    assert first.retry_in_ms is not None
    assert 1000 <= first.retry_in_ms <= 1010
    assert second.started_at is not None
    assert second.started_at >= first.finished_at
    assert run.started_at is not None
    waited = run.started_at.timestamp() - _seconds(first.finished_at)
    assert waited >= 1.0


async def test_the_last_attempt_ends_in_the_dead_letter_queue(running_cell: Cell, target: HttpTarget) -> None:
    target.answer = answering(500, "boom")
    await running_cell.target(target.url)
    run = await running_cell.ended(await running_cell.run_now())
    assert run.state is RunState.FAILED
    assert run.reason == "attempts exhausted, the last one: HTTP 500"
    assert len(target.received) == 3
    (dead,) = await running_cell.store.list_dlq(
        running_cell.tenant, target_id=None, fingerprint=None, after=None, limit=10
    )
    assert dead["target_id"] == "tgt_test"
    await eventually(lambda: running_cell.count("executor_dlq_entries_total") == 1)


@pytest.mark.parametrize("status", [301, 404, 422])
async def test_other_answers_fail_at_once(running_cell: Cell, target: HttpTarget, status: int) -> None:
    target.answer = answering(status, "no", Location=target.url + "/elsewhere")
    await running_cell.target(target.url)
    run = await running_cell.ended(await running_cell.run_now())
    assert (run.state, run.reason) == (RunState.FAILED, f"HTTP {status}")
    assert len(target.received) == 1


async def test_410_marks_the_target_as_gone(running_cell: Cell, target: HttpTarget) -> None:
    target.answer = answering(410)
    await running_cell.target(target.url)
    await running_cell.ended(await running_cell.run_now())
    row = await running_cell.store.get_target(running_cell.tenant, "tgt_test")
    assert row is not None
    assert row.state == "GONE"

    async def next_run() -> bool:
        run = await running_cell.ended(await running_cell.run_now())
        return run.reason == "target not usable: GONE"

    # The definition in use may be a second old.
    await eventually(next_run)


async def test_timeouts_and_refused_connections_are_retried(running_cell: Cell, target: HttpTarget) -> None:
    opened, slow = gate()
    target.answer = in_turn(slow, answering(200))
    await running_cell.target(target.url)
    run = await running_cell.ended(await running_cell.run_now(timeout_seconds=1))
    opened.set()
    assert [a.error for a in run.attempts] == ["timeout", None]
    assert run.state is RunState.SUCCEEDED

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        await running_cell.target(f"http://127.0.0.1:{unused.getsockname()[1]}", "tgt_closed")
        run = await running_cell.ended(await running_cell.run_now("tgt_closed"))
    assert [a.error for a in run.attempts] == ["connection failed: refused"] * 3
    assert run.state is RunState.FAILED


async def test_a_big_body_is_kept_in_part(running_cell: Cell, target: HttpTarget) -> None:
    target.answer = answering(200, "é" * 100_000)
    await running_cell.target(target.url)
    run = await running_cell.ended(await running_cell.run_now())
    assert run.state is RunState.SUCCEEDED
    assert run.attempts[0].body == "é" * 2048


async def test_a_target_that_is_not_approved_any_more(running_cell: Cell, target: HttpTarget) -> None:
    row = await running_cell.target(target.url)
    disabled = dataclasses.replace(row, state="DISABLED")
    await running_cell.store.update_target(
        running_cell.fence, disabled, base_version=row.version, host_id=running_cell.host.host_id
    )
    run = await running_cell.ended(await running_cell.run_now())
    assert (run.state, run.reason) == (RunState.FAILED, "target not usable: DISABLED")
    assert run.started_at is None
    assert target.received == []


async def test_secrets_that_do_not_open_are_our_fault_and_tried_again(
    running_cell: Cell, target: HttpTarget
) -> None:
    right, running_cell.box = running_cell.box, SealedBox([b"x" * 32])
    await running_cell.target(target.url)
    patient = RetryPolicy(max_attempts=2, initial_backoff_seconds=3600, max_backoff_seconds=3600)
    key = await running_cell.run_now(retry_policy=patient)

    async def waits() -> RunRow | None:
        run = await running_cell.run(key)
        return run if run is not None and run.state is RunState.RETRY_WAIT else None

    run = await eventually(waits)
    assert run is not None
    assert [a.error for a in run.attempts] == ["secrets of the target do not open"]
    assert target.received == []
    running_cell.box = right


async def test_egress_is_refused_at_connect_time(
    cell_database_url: str, valkey_url: str, target: HttpTarget
) -> None:
    async with cell(cell_database_url, valkey_url, egress_allow=frozenset()) as closed:
        await closed.target(target.url)
        run = await closed.ended(await closed.run_now())
    assert (run.state, run.reason) == (RunState.FAILED, "address not allowed: a loopback address")
    assert len(run.attempts) == 1
    assert target.received == []


async def test_credentials(running_cell: Cell, target: HttpTarget) -> None:
    await running_cell.target(target.url, "tgt_bearer", auth={"type": "BEARER"}, credential=b"t0ken")
    await running_cell.target(
        target.url, "tgt_basic", auth={"type": "BASIC", "username": "ann"}, credential=b"pa:ss"
    )
    await running_cell.ended(await running_cell.run_now("tgt_bearer", headers={"Authorization": "theirs"}))
    await running_cell.ended(await running_cell.run_now("tgt_basic"))
    assert [r.headers["Authorization"] for r in target.received] == [
        "Bearer t0ken",
        "Basic " + base64.b64encode(b"ann:pa:ss").decode(),
    ]


async def test_a_rotated_secret_signs_beside_the_old_one_until_that_expires(
    running_cell: Cell, target: HttpTarget
) -> None:
    await running_cell.target(target.url)
    await running_cell.ended(await running_cell.run_now())
    newer = b"second signing secret, 32 bytes."

    async def signatures() -> int:
        await running_cell.ended(await running_cell.run_now())
        return target.received[-1].headers["webhook-signature"].count("v1,")

    async def rotate(generation: int, secret: bytes, overlap: int) -> None:
        await running_cell.store.rotate_secret(
            running_cell.fence,
            "tgt_test",
            running_cell.sealed("tgt_test", secret, generation),
            overlap_seconds=overlap,
            host_id=running_cell.host.host_id,
        )

    await rotate(2, newer, 3600)

    async def both() -> bool:
        return await signatures() == 2

    await eventually(both, interval=0.1)
    last = target.received[-1]
    for secret in (newer, SIGNING):
        Webhook(show_secret(secret)).verify(last.body, dict(last.headers))

    await rotate(3, b"third signing secret, 32 bytes..", 0)

    async def only_the_third() -> bool:
        return await signatures() == 1

    await eventually(only_the_third, interval=0.1)
    last = target.received[-1]
    Webhook(show_secret(b"third signing secret, 32 bytes..")).verify(last.body, dict(last.headers))


async def test_max_concurrency_and_bulkheads(
    cell_database_url: str, valkey_url: str, target: HttpTarget
) -> None:
    opened, slow = gate()
    running = highest = 0

    async def counted(request: web.Request) -> web.StreamResponse:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        try:
            return await slow(request)
        finally:
            running -= 1

    async with cell(cell_database_url, valkey_url, slots=16) as made:
        await made.target(target.url, "tgt_slow", max_concurrency=3, latency_slo_ms=900_000)
        await made.target(target.url + "/fast", "tgt_fast")
        fast = answering(200)

        async def by_path(request: web.Request) -> web.StreamResponse:
            return await (fast if request.path.startswith("/fast") else counted)(request)

        target.answer = by_path
        # More than its class has slots: all but three are put aside, and hold neither slot nor claim.
        waiting = [await made.run_now("tgt_slow") for _ in range(20)]
        await eventually(lambda: made.count("target_parked_members") == 17)
        assert made.count("executor_parked", priority="default") == 0
        assert made.count("executor_in_flight", priority="default") == 3
        for priority in Priority:
            run = await made.ended(await made.run_now("tgt_fast", priority=priority))
            assert run.state is RunState.SUCCEEDED
        assert running == 3
        opened.set()
        for key in waiting:
            assert (await made.ended(key)).state is RunState.SUCCEEDED
        assert highest == 3
        assert made.count("executor_parked", priority="default") == 0
        assert len(target.received) == 24


async def test_a_completion_under_an_old_epoch_changes_nothing(
    running_cell: Cell, target: HttpTarget, cell_database_url: str
) -> None:
    opened, slow = gate()
    target.answer = in_turn(slow, answering(500, "later"))
    await running_cell.target(target.url)
    key = await running_cell.run_now()
    await eventually(lambda: len(target.received) == 1)
    # Somebody else takes the run over while the first call is still going on.
    before = await running_cell.run(key)
    assert before is not None
    async with await psycopg.AsyncConnection.connect(cell_database_url, autocommit=True) as connection:
        await connection.execute("UPDATE runs SET epoch = epoch + 1 WHERE state = 'RUNNING'")
    opened.set()
    await eventually(lambda: running_cell.count("executor_epoch_rejections_total") == 1)
    after = await running_cell.run(key)
    assert after is not None
    assert (after.state, after.epoch) == (RunState.RUNNING, before.epoch + 1)
    assert after.attempts == []


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
