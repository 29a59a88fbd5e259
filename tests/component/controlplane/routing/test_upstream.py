"""The router's HTTP client, against servers that answer to the letter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from controlplane.routing.upstream import Broken, NotConnected, TooSlow, Upstream
from deploy.ports import Reservation
from tests.waiting import eventually

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(talk: Talk) -> AsyncIterator[tuple[str, list[int]]]:
    """A server that takes connections one by one; its address, and a number for each connection."""
    connections: list[int] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(len(connections))
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    listening = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", connections
    finally:
        listening.close()


def answering(*answers: bytes) -> Talk:
    """Each request's head is read, and the next answer given."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        await reader.read()

    return talk


async def whole(upstream: Upstream, url: str, method: str = "GET", body: bytes = b"") -> tuple[int, bytes]:
    answer = await upstream.ask(url, method, "/x?y=1", [("X-A", "ä")], body)
    try:
        return answer.status, await answer.read()
    finally:
        answer.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
async def test_a_connection_serves_one_request_after_another(answer: bytes) -> None:
    upstream = Upstream(silence_s=5)
    async with server(answering(answer, answer, answer)) as (url, connections):
        for _ in range(3):
            assert await whole(upstream, url) == (200, b"hello")
        assert connections == [0]
        await upstream.close()


async def test_what_has_no_body_waits_for_none() -> None:
    upstream = Upstream(silence_s=5)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    async with server(answering(head, b"HTTP/1.1 204 No Content\r\n\r\n", head + b"hello")) as (url, seen):
        assert await whole(upstream, url, "HEAD") == (200, b"")
        assert await whole(upstream, url, "DELETE") == (204, b"")
        assert await whole(upstream, url) == (200, b"hello")
        assert seen == [0]
        await upstream.close()


async def test_a_request_is_sent_to_the_letter() -> None:
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for length in (3, 0):
            heard.append(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(length))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    upstream = Upstream(silence_s=5)
    async with server(talk) as (url, _):
        await whole(upstream, url, "PATCH", b"abc")
        await whole(upstream, url, "POST")
        host = url.removeprefix("http://")
        head = f" /x?y=1 HTTP/1.1\r\nHost: {host}\r\nX-A: ä\r\n".encode()
        assert heard == [
            b"PATCH" + head + b"Content-Length: 3\r\n\r\nabc",
            b"POST" + head + b"Content-Length: 0\r\n\r\n",
        ]
        with pytest.raises(ValueError, match="line break"):
            await upstream.ask(url, "GET", "/", [("X-A", "1\r\nX-B: 2")], b"")
        await upstream.close()


async def test_a_body_may_end_with_its_connection_and_a_cut_one_is_no_body() -> None:
    async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhel")
        await writer.drain()
        writer.write(b"lo")

    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel")

    upstream = Upstream(silence_s=5)
    async with server(closes) as (url, seen):
        assert [await whole(upstream, url) for _ in range(2)] == [(200, b"hello")] * 2
        assert seen == [0, 1]
    async with server(breaks) as (url, _):
        answer = await upstream.ask(url, "GET", "/", [], b"")
        with pytest.raises(Broken):
            assert [part async for part in answer.parts()] == []
        answer.close()


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_connection_whose_answer_was_held_back_to_its_end_is_read_from_again(streamed: bool) -> None:
    length = 256 * 1024 + 1  # with its last byte too much waits
    large = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + b"x" * length
    small = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    upstream = Upstream(silence_s=5)
    async with server(answering(large, small)) as (url, seen):
        answer = await upstream.ask(url, "GET", "/", [], b"")
        await eventually(lambda: answer._link.ended)
        assert answer._link._paused
        if streamed:
            assert sum([len(part) async for part in answer.parts()]) == length
        else:
            assert len(await answer.read()) == length
        answer.close()
        assert await whole(upstream, url) == (200, b"hello")
        assert seen == [0]
        await upstream.close()


async def test_an_answer_before_its_request_was_sent_whole_costs_the_connection() -> None:
    over = asyncio.Event()

    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await over.wait()

    upstream = Upstream(silence_s=5)
    async with server(refuses) as (url, seen):
        assert await whole(upstream, url, "POST", b"x" * 64 * 1024 * 1024) == (413, b"no")
        assert await whole(upstream, url) == (413, b"no")
        assert seen == [0, 1]
        over.set()
        await upstream.close()


async def test_nobody_there_silence_and_nonsense_are_told_apart() -> None:
    upstream = Upstream(silence_s=0.05)
    reserved = Reservation()
    with pytest.raises(NotConnected):
        await whole(upstream, f"http://127.0.0.1:{reserved.port}")
    reserved.release()
    with pytest.raises(NotConnected):
        await whole(upstream, "ftp://127.0.0.1")
    async with server(answering(b"")) as (url, _):
        with pytest.raises(TooSlow):
            await whole(upstream, url)
    for nonsense in (b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n"):
        async with server(answering(nonsense)) as (url, _):
            with pytest.raises(Broken):
                await whole(upstream, url)


async def test_what_nobody_asked_for_costs_the_connection() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    upstream = Upstream(silence_s=5)
    async with server(answering(answer + answer)) as (url, seen):
        assert [await whole(upstream, url) for _ in range(2)] == [(200, b"hello")] * 2
        assert seen == [0, 1]
        await upstream.close()


async def test_an_answer_that_is_left_is_cut_off_and_a_slow_reader_holds_it_back() -> None:
    gone = asyncio.Event()
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
                await writer.drain()
                sent += 0x10000
        except ConnectionError:
            gone.set()

    upstream = Upstream(silence_s=5)
    async with server(endless) as (url, _):
        answer = await upstream.ask(url, "GET", "/", [], b"")
        async for part in answer.parts():
            assert set(part) == {ord("x")}
            break
        answer.close()
        await asyncio.wait_for(gone.wait(), 10)
