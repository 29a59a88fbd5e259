"""What is refused before its body was read leaves the connection in order, or says that it ends."""

from __future__ import annotations

import asyncio

from tests.component.controlplane.routing.surroundings import World, new_key

LARGE = 300_000


async def _answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """An answer's head, in lower case, and body."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)).lower()
    length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
    return head, await reader.readexactly(int(length))


def _unknown(framing: bytes) -> bytes:
    """The head of a request with a key that nobody has."""
    key = new_key()[1].encode()
    return b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n" % (key, framing)


async def test_a_refused_body_is_read_to_its_end(world: World) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    body = b"x" * LARGE
    whole = _unknown(b"Content-Length: %d" % LARGE) + body
    chunked = _unknown(b"Transfer-Encoding: chunked") + b"%x\r\n%s\r\n0\r\n\r\n" % (LARGE, body)
    for request in (whole, chunked, whole):
        writer.write(request)
        head, answer = await _answer(reader)
        assert head.startswith(b"http/1.1 401")
        assert b"connection: close" not in head
        assert b"UNAUTHENTICATED" in answer
    writer.write(f"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {world.key}\r\n\r\n".encode())
    head, _ = await _answer(reader)
    assert head.startswith(b"http/1.1 200"), "the connection is in order"
    writer.close()
    assert len(world.cell.calls) == 1


async def test_one_that_does_not_come_ends_the_connection(world: World) -> None:
    asks = b"Content-Length: 5\r\nExpect: 100-continue"
    for framing in (b"Content-Length: 20", b"Content-Length: 9000000", asks):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(_unknown(framing) + b"abc")
        head, answer = await _answer(reader)
        assert head.startswith(b"http/1.1 401")
        assert b"connection: close" in head
        assert b"UNAUTHENTICATED" in answer
        assert await asyncio.wait_for(reader.read(), 5) == b"", "it is closed behind the answer"
        writer.close()
    assert world.cell.calls == []
