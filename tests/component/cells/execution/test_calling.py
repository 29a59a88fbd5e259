"""Calls over real sockets: what every kind of answer, and of no answer, becomes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict
from yarl import URL

from cells.execution import calling
from cells.execution.calling import Caller
from cells.execution.recording import Answer
from tests.component.cells.execution.http_target import HttpTarget, answering, http_target

Call = Callable[..., Awaitable[Answer]]


@pytest.fixture
async def target() -> AsyncIterator[HttpTarget]:
    async with http_target() as running:
        yield running


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    made = Caller(egress_allow={"loopback"})
    await made.start()
    yield made
    await made.close()


@pytest.fixture
def call(caller: Caller) -> Call:
    async def made(url: str, *, body: bytes | None = b"{}", timeout: float = 5.0, **headers: str) -> Answer:
        answer = await caller.call("POST", URL(url), CIMultiDict(headers), body, timeout)
        assert answer is not None
        return answer

    return made


async def test_an_answer(call: Call, target: HttpTarget) -> None:
    assert await call(target.url + "/hook?a=1", body=b'{"n":1}') == Answer(
        status=200, body="ok", sent_bytes=7
    )
    (received,) = target.received
    assert (received.method, received.path, received.body) == ("POST", "/hook?a=1", b'{"n":1}')


async def test_connections_are_reused(call: Call, target: HttpTarget) -> None:
    for _ in range(5):
        await call(target.url)
    assert len(target.connections) == 1


async def test_retry_after_is_passed_on_with_a_failure(call: Call, target: HttpTarget) -> None:
    target.answer = answering(503, "busy", Retry_After="17")
    assert await call(target.url) == Answer(status=503, body="busy", retry_after="17", sent_bytes=2)


async def test_redirects_are_not_followed(call: Call, target: HttpTarget) -> None:
    target.answer = answering(302, "", Location=target.url + "/elsewhere")
    assert (await call(target.url)).status == 302
    assert len(target.received) == 1


async def test_cookies_are_not_kept(call: Call, target: HttpTarget) -> None:
    target.answer = answering(200, "", Set_Cookie="session=1")
    await call(target.url)
    await call(target.url)
    assert "Cookie" not in target.received[1].headers


async def test_a_big_body_is_cut_and_its_connection_not_reused(call: Call, target: HttpTarget) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"\0" + b"x" * 65535)
        except ConnectionError:
            return response

    target.answer = endless
    answer = await call(target.url)
    assert answer.status == 200
    assert answer.body == "\N{REPLACEMENT CHARACTER}" + "x" * 4095
    target.answer = answering(200, "y" * 10_000)
    assert (await call(target.url)).body == "y" * 4096
    assert len(target.connections) == 2
    await call(target.url)
    assert len(target.connections) == 2


async def test_as_much_is_kept_as_is_wanted(caller: Caller, target: HttpTarget) -> None:
    for size, cut in ((9_999, False), (10_000, False), (10_001, True)):
        target.answer = answering(200, "y" * size)
        answer = await caller.call("POST", URL(target.url), CIMultiDict(), b"{}", 5.0, wanted=10_000)
        assert answer is not None
        assert (answer.status, len(answer.body or ""), answer.cut) == (200, min(size, 10_000), cut)


async def test_a_body_that_is_no_text(call: Call, target: HttpTarget) -> None:
    async def binary(_: web.Request) -> web.Response:
        return web.Response(body=b"a\0\xff\xfeb")

    target.answer = binary
    assert (
        await call(target.url)
    ).body == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b"


async def test_timeout(call: Call, target: HttpTarget) -> None:
    async def never(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    target.answer = never
    assert await call(target.url, timeout=0.1) == Answer(error="timeout", sent_bytes=2)


async def test_a_body_that_never_ends_is_a_timeout_too(call: Call, target: HttpTarget) -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"so far")
        await asyncio.Event().wait()
        raise AssertionError

    target.answer = half
    assert await call(target.url, timeout=0.1) == Answer(error="timeout", sent_bytes=2)


async def test_connection_refused(call: Call) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        answer = await call(f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert answer == Answer(error="connection failed: refused", reached=False)


async def raw_server(handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]):  # type: ignore[no-untyped-def]
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_connection_closed_while_it_was_idle_is_tried_once_more(call: Call) -> None:
    requests = 0

    async def once_per_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await reader.readuntil(b"{}")
        requests += 1
        # It says keep-alive and closes at the next request, as servers with a short patience do.
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await reader.read(1)
        writer.close()

    server, url = await raw_server(once_per_connection)
    async with server:
        assert (await call(url)).status == 200
        assert (await call(url)).status == 200
    assert requests == 2


async def test_a_204_is_a_success_whatever_follows_it(call: Call) -> None:
    requests = 0

    async def talkative(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await reader.readuntil(b"{}")
        requests += 1
        writer.write(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello")

    server, url = await raw_server(talkative)
    async with server:
        for _ in range(2):
            assert await call(url) == Answer(status=204, body="", sent_bytes=2)
    assert requests == 2


async def test_a_target_that_always_hangs_up(call: Call) -> None:
    connections = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"{}")
        writer.close()

    server, url = await raw_server(hang_up)
    async with server:
        assert await call(url) == Answer(error="connection failed: closed without an answer", sent_bytes=2)
    # The connection was new: the target had not closed it because it was idle, it was called.
    assert connections == 1


async def test_who_lost_the_right_to_call_does_not_try_again(caller: Caller) -> None:
    live, requests = True, 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal live, requests
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await reader.readuntil(b"{}")
        live, requests = False, requests + 1
        writer.close()

    server, url = await raw_server(hang_up)
    async with server:
        first = await caller.call("POST", URL(url), CIMultiDict(), b"{}", 5.0, lambda: live)
        assert first is not None
        assert first.status == 200
        assert await caller.call("POST", URL(url), CIMultiDict(), b"{}", 5.0, lambda: live) is None
    assert requests == 1


async def test_who_lost_the_right_while_connecting_sends_nothing(target: HttpTarget) -> None:
    live = True

    class Slow(Rebinding):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            nonlocal live
            live = False
            return await super().resolve(host, port, family)

    caller = Caller(egress_allow={"loopback"}, resolver=Slow("127.0.0.1"))
    await caller.start()
    url = URL(f"http://slow.example:{URL(target.url).port}")
    assert await caller.call("POST", url, CIMultiDict(), b"{}", 5.0, lambda: live) is None
    await caller.close()
    assert target.received == []


async def test_a_target_that_worked_and_then_hung_up_is_not_called_twice(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its whole timeout once more would end behind the run's lease, beside whoever reclaimed it."""
    monkeypatch.setattr(calling, "_IDLE_CLOSE_SECONDS", 0.05)
    connections = 0

    async def work_and_die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"{}")
        asyncio.get_running_loop().call_later(0.1, writer.close)

    server, url = await raw_server(work_and_die)
    async with server:
        assert await call(url) == Answer(error="connection failed: closed without an answer", sent_bytes=2)
    assert connections == 1


async def test_an_answer_that_breaks_off(call: Call) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        writer.close()

    server, url = await raw_server(half)
    async with server:
        assert await call(url) == Answer(error="connection failed: the answer broke off", sent_bytes=2)


async def test_what_is_not_http(call: Call) -> None:
    async def smtp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        await reader.read()
        writer.close()

    server, url = await raw_server(smtp)
    async with server:
        answer = await call(url)
    assert answer == Answer(error="not HTTP", sent_bytes=2)


async def test_no_tls_where_it_was_asked_for(call: Call, target: HttpTarget) -> None:
    answer = await call(target.url.replace("http:", "https:"))
    assert answer.error is not None
    assert answer.error.startswith("TLS failed")
    assert answer.sent_bytes == 0


async def test_a_header_that_cannot_be_sent_fails_without_a_request(call: Call, target: HttpTarget) -> None:
    answer = await call(target.url, **{"X-Split": "a\r\nX-Injected: b"})
    assert answer == Answer(error="target not usable: ValueError", sent_bytes=0)
    assert target.received == []


class Rebinding(AbstractResolver):
    """Resolves a name to what it is told at that moment."""

    def __init__(self, *addresses: str):
        self.addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)
            for address in self.addresses
        ]

    async def close(self) -> None:
        return None


@pytest.mark.parametrize(
    ("addresses", "why"),
    [
        (("127.0.0.1",), "a loopback address"),
        (("10.0.0.1", "10.0.0.2"), "a private address"),
        (("169.254.169.254",), "a metadata address"),
    ],
)
async def test_a_name_that_resolves_to_a_forbidden_address(
    addresses: tuple[str, ...], why: str, target: HttpTarget
) -> None:
    caller = Caller(resolver=Rebinding(*addresses))
    await caller.start()
    port = URL(target.url).port
    answer = await caller.call("POST", URL(f"http://rebind.example:{port}"), CIMultiDict(), b"{}", 5.0)
    await caller.close()
    assert answer == Answer(error=f"address not allowed: {why}", reached=False)
    assert target.received == []


async def test_a_forbidden_address_among_others_is_passed_over(target: HttpTarget) -> None:
    caller = Caller(egress_allow={"loopback"}, resolver=Rebinding("10.0.0.1", "127.0.0.1"))
    await caller.start()
    port = URL(target.url).port
    answer = await caller.call("POST", URL(f"http://two.example:{port}"), CIMultiDict(), b"{}", 5.0)
    await caller.close()
    assert answer is not None
    assert answer.status == 200


async def test_literal_addresses_are_checked_too(target: HttpTarget) -> None:
    caller = Caller()
    await caller.start()
    answer = await caller.call("POST", URL(target.url), CIMultiDict(), b"{}", 5.0)
    await caller.close()
    assert answer == Answer(error="address not allowed: a loopback address", reached=False)
    assert target.received == []


async def test_a_name_that_does_not_exist() -> None:
    class Nowhere(Rebinding):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            raise OSError("no such name")

    caller = Caller(resolver=Nowhere())
    await caller.start()
    answer = await caller.call("POST", URL("http://nowhere.example"), CIMultiDict(), b"{}", 5.0)
    await caller.close()
    assert answer == Answer(error="name does not resolve", reached=False)
