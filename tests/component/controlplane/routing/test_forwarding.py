"""What goes to whom, with which headers, and what comes back."""

from __future__ import annotations

import asyncio
import json
import socket

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.collector import attributes, collector
from tests.component.controlplane.routing.surroundings import (
    OTHER_TENANT,
    TENANT,
    Call,
    Listener,
    World,
    new_key,
    now_ms,
)
from tests.waiting import eventually


async def test_a_request_reaches_the_tenants_cell_signed_for_the_key(world: World) -> None:
    answer = await world.call(
        "POST",
        "/v1/jobs?dry=1&x=%2F",
        data=b'{"a": 1}',
        headers={
            "Content-Type": "application/json",
            "Idempotency-Key": '"abc"',
            "If-Match": '"3"',
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "X-Clockhouse-Scopes": "operator",
            "X-Clockhouse-Anything": "forged",
            "X-Forwarded-For": "10.0.0.1",
            "X_Forwarded_For": "10.0.0.1",
            "Cookie": "session=1",
            "X-Tenant-Id": TENANT,
            "Connection": "X-Private",
            "X-Private": "for this hop",
        },
    )
    assert answer.status == 200, answer.body
    (call,) = world.cell.calls
    assert (call.method, call.target, call.body) == ("POST", "/v1/jobs?dry=1&x=%2F", b'{"a": 1}')
    assert call.caller.tenant_id == TENANT
    assert call.caller.actor == f"key:{world.key_id}"
    assert call.caller.scopes == ("jobs:read", "jobs:write")
    assert call.caller.epoch == 7
    assert call.headers["Idempotency-Key"] == '"abc"'
    assert call.headers["If-Match"] == '"3"'
    assert call.headers["traceparent"].startswith("00-0af7")
    assert call.headers["X-Request-Id"] == answer.headers["X-Request-Id"]
    for name in (
        "Authorization",
        "Cookie",
        "X_Forwarded_For",
        "X-Clockhouse-Anything",
        "X-Tenant-Id",
        "X-Private",
    ):
        assert name not in call.headers
    assert call.headers.getall("X-Clockhouse-Scopes") == ["jobs:read jobs:write"]
    assert call.headers.getall("X-Forwarded-For") == ["127.0.0.1"], "where it came from, for the audit"
    assert answer.headers["RateLimit-Policy"] == '"api";q=1000;w=1;qu="requests"'
    assert answer.headers["RateLimit"] == '"api";r=999;t=1'


@pytest.mark.parametrize(
    "path",
    ["/v1/tenant", "/v1/members/x", "/v1/api-keys", "/v1/audit-log?limit=1", "/v1/usage", "/v1/exports:run"],
)
async def test_the_management_api_goes_to_django(world: World, path: str) -> None:
    answer = await world.call("GET", path)
    assert answer.json["server"] == "router"
    assert world.django.calls[-1].target == path
    assert world.django.calls[-1].caller.tenant_id == TENANT
    assert world.cell.calls == []


async def test_other_paths_are_nobodys(world: World) -> None:
    for path in ("/", "/v2/jobs", "/v1", "/v1/", "/internal/tenants/x", "/v1x/jobs", "//v1/jobs"):
        answer = await world.call("GET", path)
        assert (path, answer.status, answer.json["code"]) == (path, 404, "NOT_FOUND")
        assert answer.headers["Content-Type"] == "application/problem+json"
    assert world.cell.calls == []


async def test_a_forwarded_request_has_a_span_between_the_callers_and_the_cells(world: World) -> None:
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await world.stop_router()
    with collector() as spans:
        world.settings |= {"OTEL_EXPORTER_OTLP_ENDPOINT": spans.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        await world.start_router()
        sent = {"traceparent": caller, "tracestate": "a=1,b=2"}
        answer = await world.call("GET", "/v1/jobs", headers=sent)
        await world.call("GET", "/v1/jobs", headers={"traceparent": "junk", "tracestate": "a=1"})
        assert await world.stop_router() == 0
    first, second = spans.of_kind(Span.SPAN_KIND_SERVER)
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (caller[3:35], caller[36:52])
    said = attributes(first)
    assert (said["http.response.status_code"], said["clockhouse.request"]) == (
        200, answer.headers["X-Request-Id"],
    )  # fmt: skip
    calls = world.cell.calls
    assert calls[0].headers["traceparent"] == f"00-{first.trace_id.hex()}-{first.span_id.hex()}-01"
    assert calls[0].headers["tracestate"] == "a=1,b=2"
    assert calls[1].headers["traceparent"] == f"00-{second.trace_id.hex()}-{second.span_id.hex()}-01"
    assert "tracestate" not in calls[1].headers
    assert spans.resources[0]["service.name"] == "clockhouse-router"


async def test_an_operator_acts_for_the_tenant_it_names(world: World) -> None:
    key_id, key = new_key("op")
    world.add_key(key_id, key, tenant=None, scopes=("operator",))
    await eventually_known(world, key)
    without = await world.call("GET", "/v1/jobs", key=key)
    assert (without.status, without.json["code"]) == (400, "MALFORMED")
    unknown = await world.call("GET", "/v1/jobs", key=key, headers={"X-Tenant-Id": "tnt_nobody"})
    assert unknown.status == 404
    there = await world.call("GET", "/v1/jobs", key=key, headers={"X-Tenant-Id": OTHER_TENANT})
    assert there.json["server"] == "cell-b"
    assert world.other_cell.calls[-1].caller.tenant_id == OTHER_TENANT
    assert world.other_cell.calls[-1].caller.scopes == ("operator",)
    admin = await world.call("GET", "/v1/admin/cells", key=key)
    assert admin.json["server"] == "router"
    assert world.django.calls[-1].caller.tenant_id == ""


async def eventually_known(world: World, key: str) -> None:
    async def known() -> bool:
        return (await world.call("GET", "/v1/tenant", key=key)).status == 200

    await eventually(known)


async def test_who_is_not_known_is_told_so(world: World) -> None:
    _, stranger = new_key()
    for key in (stranger, world.key + "x", "nonsense", "", "ch_live_\xff_x", f"ch_live_{world.key_id}_"):
        answer = await world.call("GET", "/v1/jobs", key=key)
        assert (answer.status, answer.json["code"]) == (401, "UNAUTHENTICATED")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert stranger not in answer.body.decode()
    async with world.http.get(world.url + "/v1/jobs") as bare:
        assert bare.status == 401
    elsewhere = await world.call("GET", "/v1/jobs", headers={"X-Tenant-Id": OTHER_TENANT})
    assert (elsewhere.status, elsewhere.json["code"]) == (403, "FORBIDDEN")
    assert world.cell.calls == []
    assert world.other_cell.calls == []


async def test_an_expired_key_no_longer_works(world: World) -> None:
    key_id, key = new_key()
    world.add_key(key_id, key, tenant=TENANT, expires_at_ms=now_ms() + 2500)
    await eventually_known(world, key)

    async def expired() -> bool:
        return (await world.call("GET", "/v1/tenant", key=key)).status == 401

    await eventually(expired)


async def test_answers_stream_while_they_are_made(world: World) -> None:
    go_on = asyncio.Event()

    async def slowly(request: web.Request, call: Call) -> web.StreamResponse:
        response = web.StreamResponse(headers={"X-Of-The-Cell": "1", "X-Clockhouse-Inner": "1"})
        await response.prepare(request)
        await response.write(b"first")
        await go_on.wait()
        await response.write(b"second")
        return response

    world.cell.answer = slowly
    async with world.http.get(
        world.url + "/v1/runs", headers={"Authorization": f"Bearer {world.key}"}
    ) as answer:
        assert await asyncio.wait_for(answer.content.readany(), 5) == b"first"
        go_on.set()
        assert await answer.content.read() == b"second"
        assert answer.headers["X-Of-The-Cell"] == "1"
        assert "X-Clockhouse-Inner" not in answer.headers


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PATCH", "DELETE", "PUT"])
async def test_every_method_passes(world: World, method: str) -> None:
    answer = await world.call(method, "/v1/jobs/job_1")
    assert answer.status == 200
    assert world.cell.calls[-1].method == method


async def test_statuses_without_a_body_and_compressed_bodies_pass_unchanged(world: World) -> None:
    async def empty(request: web.Request, call: Call) -> web.StreamResponse:
        return web.Response(status=204, headers={"ETag": '"4"'})

    world.cell.answer = empty
    answer = await world.call("DELETE", "/v1/jobs/job_1")
    assert (answer.status, answer.body, answer.headers["ETag"]) == (204, b"", '"4"')

    async def packed(request: web.Request, call: Call) -> web.StreamResponse:
        return web.Response(body=b"not really gzip", headers={"Content-Encoding": "gzip"})

    world.cell.answer = packed
    answer = await world.call("GET", "/v1/jobs", headers={"Accept-Encoding": "gzip"})
    assert answer.body == b"not really gzip"
    assert world.cell.calls[-1].headers["Accept-Encoding"] == "gzip"


async def test_problems_of_the_cell_pass_unchanged(world: World) -> None:
    async def refuse(request: web.Request, call: Call) -> web.StreamResponse:
        return web.Response(status=422, text='{"code":"INVALID"}', content_type="application/problem+json")

    world.cell.answer = refuse
    answer = await world.call("POST", "/v1/jobs", data=b"{}")
    assert (answer.status, answer.body) == (422, b'{"code":"INVALID"}')


async def test_large_bodies_are_refused_and_chunked_ones_counted(world: World) -> None:
    fits = await world.call("POST", "/v1/jobs:batch", data=b"x" * (10 * 1024 * 1024))
    assert fits.json["length"] == 10 * 1024 * 1024

    async def chunks(count: int):  # type: ignore[no-untyped-def]
        for _ in range(count):
            yield b"x" * 1024 * 1024

    chunked = await world.call("POST", "/v1/jobs:batch", data=chunks(3))
    assert chunked.json["length"] == 3 * 1024 * 1024
    calls = len(world.cell.calls)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(
        f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {world.key}\r\n"
        f"Content-Length: 10485761\r\n\r\n".encode()
    )
    head = await asyncio.wait_for(reader.read(4096), 5)
    assert head.startswith(b"HTTP/1.1 413"), head
    writer.close()
    writer2 = (await asyncio.open_connection("127.0.0.1", world.port))[1]
    writer2.write(
        f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {world.key}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhel".encode()
    )
    await writer2.drain()
    writer2.close()  # leaves in the middle of its body
    too_long = await world.call("POST", "/v1/jobs:batch", data=chunks(11))
    assert (too_long.status, too_long.json["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert len(world.cell.calls) == calls


async def test_bad_requests_get_clean_answers(world: World) -> None:
    auth = f"Authorization: Bearer {world.key}\r\n".encode()
    cases: list[tuple[bytes, set[bytes]]] = [
        (b"GET /v1/jobs/../admin HTTP/1.1\r\nHost: x\r\n" + auth + b"\r\n", {b"400"}),
        (b"GET /v1/jobs/%2e%2E/admin HTTP/1.1\r\nHost: x\r\n" + auth + b"\r\n", {b"400"}),
        (b"GET /v1/jobs?x=\xff HTTP/1.1\r\nHost: x\r\n" + auth + b"\r\n", {b"400"}),
        (b"GET /v1/\x00 HTTP/1.1\r\nHost: x\r\n" + auth + b"\r\n", {b"400"}),
        (b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-Odd: \xff\xfe\r\n" + auth + b"\r\n", {b"400"}),
        (b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n" + auth + auth + b"\r\n", {b"401"}),
        (b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-Big: " + b"a" * 70_000 + b"\r\n\r\n", {b"431"}),
        (b"NONSENSE\r\n\r\n", {b"400"}),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", {b"404"}),
        (b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", {b"405"}),
        (
            b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-Tenant-Id: a\r\nX-Tenant-Id: b\r\n" + auth + b"\r\n",
            {b"400"},
        ),
    ]
    for request, statuses in cases:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(request)
        head = await asyncio.wait_for(reader.read(65536), 5)
        assert head.split(b" ")[1] in statuses, (request[:60], head[:200])
        writer.close()
    assert world.cell.calls == []
    assert await world.ready()


async def test_a_cell_that_is_away_hangs_up_or_lies_is_a_clean_problem(world: World) -> None:
    async def hang_up(request: web.Request, call: Call) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    world.cell.answer = hang_up
    answer = await world.call("POST", "/v1/jobs", data=b"{}")
    assert (answer.status, answer.json["code"]) == (502, "UNAVAILABLE")
    assert len(world.cell.calls) == 1  # it is not known whether it took effect: not repeated
    answer = await world.call("POST", "/v1/jobs", data=b"{}", headers={"Idempotency-Key": "k"})
    assert answer.status == 502
    assert len(world.cell.calls) == 3  # repeated once, safely

    async def half(request: web.Request, call: Call) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = 200_000
        await response.prepare(request)
        await response.write(b"x" * 100_000)
        assert request.transport is not None
        request.transport.abort()
        return response

    world.cell.answer = half
    with pytest.raises(aiohttp.ClientError):
        await world.call("GET", "/v1/jobs")

    await world.cell.stop()
    answer = await world.call("GET", "/v1/jobs")
    assert (answer.status, answer.json["code"]) == (503, "UNAVAILABLE")
    assert int(answer.headers["Retry-After"]) >= 1
    await world.cell.start()
    world.cell.answer = world.cell.echo
    assert (await world.call("GET", "/v1/jobs")).status == 200


async def test_a_cells_processes_take_turns_and_stand_in_for_each_other(world: World) -> None:
    second = Listener("cell-a")
    second.secret = world.cell.secret
    await second.start()
    try:
        both = {"url": f"{world.cell.url},{second.url}", "secret_hex": second.secret.hex(), "state": "OPEN"}
        world.django.feed.set("cell", "cell-a", both)

        async def heard_of_both() -> bool:
            assert (await world.call("GET", "/v1/jobs")).status == 200
            return bool(second.calls and world.cell.calls)

        await eventually(heard_of_both)
        await world.cell.stop()
        before = len(second.calls)
        for _ in range(4):
            assert (await world.call("POST", "/v1/jobs", data=b"{}")).status == 200
        assert len(second.calls) == before + 4
    finally:
        await second.stop()
    answer = await world.call("GET", "/v1/jobs")
    assert (answer.status, answer.json["code"]) == (503, "UNAVAILABLE")


async def test_the_cell_learns_that_the_client_left(world: World) -> None:
    arrived, left = asyncio.Event(), asyncio.Event()

    async def wait(request: web.Request, call: Call) -> web.StreamResponse:
        arrived.set()
        transport = request.transport
        await eventually(lambda: transport is None or transport.is_closing())
        left.set()
        return web.Response()

    world.cell.answer = wait
    client = socket.create_connection(("127.0.0.1", world.port))
    client.sendall(f"GET /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {world.key}\r\n\r\n".encode())
    await asyncio.wait_for(arrived.wait(), 5)
    client.close()
    await asyncio.wait_for(left.wait(), 5)


async def test_sigterm_finishes_what_is_under_way(world: World) -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request, call: Call) -> web.StreamResponse:
        arrived.set()
        await go_on.wait()
        return web.json_response({"done": True})

    world.cell.answer = slow
    pending = asyncio.create_task(world.call("POST", "/v1/jobs", data=b"{}"))
    await arrived.wait()
    stopping = asyncio.create_task(world.stop_router())

    async def refused() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", world.port)
        except ConnectionRefusedError:
            return True
        writer.close()
        return False

    await eventually(refused)
    go_on.set()
    answer = await pending
    assert (answer.status, json.loads(answer.body)) == (200, {"done": True})
    assert await stopping == 0
