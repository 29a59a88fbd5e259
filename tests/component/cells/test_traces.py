"""Spans from the API's call to the target's, as a collector gets them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from cells.contract import Caller, Scope, body_hash, sign_request
from cells.domain import ids
from deploy.ports import Reservation
from tests.collector import attributes, collector
from tests.component.cells.execution.harness import Cell, cell
from tests.component.cells.execution.http_target import HttpTarget, answering, http_target, in_turn
from tests.component.cells.host_process import ROOT, HostProcess, host_process
from tests.waiting import eventually

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = CALLER[:-2] + "00"
JOB = (
    b'{"schedule": {"type": "NOW"}, "target": {"target_id": "tgt_test"}, "dispatch_window_seconds": 0,'
    b' "retry_policy": {"max_attempts": 2, "initial_backoff_seconds": 1, "max_backoff_seconds": 1}}'
)


@pytest.fixture
async def target() -> AsyncIterator[HttpTarget]:
    async with http_target() as running_target:
        yield running_target


async def create(host: HostProcess, admin: Cell, **headers: str) -> httpx.Response:
    """A job that is due now, asked for as the router asks."""
    caller = Caller(
        tenant_id=ids.encode(ids.TENANT, admin.tenant),
        actor="key:test",
        scopes=(Scope.ADMIN.value,),
        epoch=1,
    )
    signed = sign_request(
        kid="test",
        secret=bytes.fromhex("ab" * 32),
        now_ms=admin.clock.now_ms(),
        method="POST",
        target="/v1/jobs",
        caller=caller,
        body_sha256=body_hash(JOB),
    )
    async with httpx.AsyncClient() as http:
        answer = await http.post(host.url + "/v1/jobs", content=JOB, headers=dict(signed) | headers)
    assert answer.status_code == 201, answer.text
    return answer


async def test_from_the_call_of_the_api_to_each_attempt(
    empty_database_url: str, valkey_url: str, tmp_path: Path, target: HttpTarget
) -> None:
    target.answer = in_turn(answering(503), answering(200))
    stores: dict[str, Any] = {"database_url": empty_database_url, "valkey_url": valkey_url}
    with (
        collector() as spans,
        host_process(
            tmp_path, **stores, OTEL_EXPORTER_OTLP_ENDPOINT=spans.url, OTEL_BSP_SCHEDULE_DELAY="100"
        ) as host,
    ):
        async with cell(empty_database_url, valkey_url, parts=("host",)) as admin:
            await admin.target(target.url)
            job = (await create(host, admin, traceparent=CALLER, tracestate="a=1, b@sys=2")).json()
            await eventually(lambda: len(spans.of_kind(Span.SPAN_KIND_CLIENT)) == 2, 20)
            await create(host, admin, traceparent=UNSAMPLED, tracestate="Malformed")
            await eventually(lambda: len(target.received) == 3)
            assert await asyncio.to_thread(host.terminate) == 0
    (asked,) = spans.of_kind(Span.SPAN_KIND_SERVER)
    assert (asked.name, asked.trace_id.hex()) == ("POST /v1/jobs", CALLER[3:35])
    assert asked.parent_span_id.hex() == CALLER[36:52]
    assert attributes(asked)["http.response.status_code"] == 201
    attempts = spans.of_kind(Span.SPAN_KIND_CLIENT)
    for number, (attempt, received) in enumerate(zip(attempts, target.received[:2], strict=True), 1):
        sent = f"00-{attempt.trace_id.hex()}-{attempt.span_id.hex()}-01"
        assert received.headers["traceparent"] == sent
        assert received.headers["tracestate"] == "a=1,b@sys=2"
        assert attempt.trace_id == asked.trace_id
        assert attempt.parent_span_id == asked.span_id
        assert [(link.trace_id, link.span_id) for link in attempt.links] == [(asked.trace_id, asked.span_id)]
        assert attempt.end_time_unix_nano >= attempt.start_time_unix_nano >= asked.start_time_unix_nano
        said = attributes(attempt)
        assert (said["clockhouse.job"], said["clockhouse.attempt"]) == (job["job_id"], number)
    assert attempts[0].span_id != attempts[1].span_id
    assert [a.status.code for a in attempts] == [Status.STATUS_CODE_ERROR, Status.STATUS_CODE_UNSET]
    assert [attributes(a)["http.response.status_code"] for a in attempts] == [503, 200]
    assert spans.resources[0]["service.name"] == "clockhouse-cell"
    assert spans.resources[0]["clockhouse.cell"] == "test"
    # What its caller does not want kept is passed on as such, and kept by nobody.
    last = target.received[2].headers["traceparent"]
    assert (last[3:35], last[-2:]) == (UNSAMPLED[3:35], "00")
    assert "tracestate" not in target.received[2].headers


async def test_a_collector_that_is_away_harms_nothing(
    empty_database_url: str, valkey_url: str, tmp_path: Path, target: HttpTarget
) -> None:
    nobody = Reservation()
    with host_process(
        tmp_path,
        database_url=empty_database_url,
        valkey_url=valkey_url,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{nobody.port}",
        OTEL_BSP_SCHEDULE_DELAY="100",
        OTEL_BSP_MAX_QUEUE_SIZE="16",
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE="8",
    ) as host:
        async with cell(empty_database_url, valkey_url, parts=("host",)) as admin:
            await admin.target(target.url)
            for _ in range(40):
                await create(host, admin)
            await eventually(lambda: len(target.received) == 40, 20)
        began = time.monotonic()
        assert await asyncio.to_thread(host.terminate) == 0
        assert time.monotonic() - began < 15
    nobody.release()
    traces = {received.headers["traceparent"][3:35] for received in target.received}
    assert len(traces) == 40


def test_without_an_endpoint_the_sdk_is_not_even_imported() -> None:
    code = (
        "import sys, cells.host\n"
        "from cells.observability.traces import traces_from\n"
        "assert traces_from({}, service='x') is None\n"
        "off = {'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://127.0.0.1:1', 'OTEL_SDK_DISABLED': 'true'}\n"
        "assert traces_from(off, service='x') is None\n"
        "sdk = ('opentelemetry.sdk.trace', 'opentelemetry.exporter')\n"
        "print([name for name in sys.modules if name.startswith(sdk)])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
