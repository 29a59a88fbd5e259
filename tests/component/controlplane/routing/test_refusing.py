"""What is refused before its body was read leaves the connection in order, or says that it ends."""

from __future__ import annotations

import asyncio

from tests.component.controlplane.routing.surroundings import World, new_key

LARGE = 300_000


async def _head(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """An answer's head and body."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    length = next(
        int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
    )
    return head.lower(), await reader.readexactly(length)


async def test_a_refused_body_is_read_to_its_end(world: World) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    for chunked in (False, True, False):
        length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % LARGE
        writer.write(_refused(length))
        body = b"x" * LARGE
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (LARGE, body) if chunked else body)
        head, body = await _head(reader)
        assert head.startswith(b"http/1.1 401")
        assert b"connection: close" not in head
        assert b"UNAUTHENTICATED" in body
    writer.write(f"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {world.key}\r\n\r\n".encode())
    head, _ = await _head(reader)
    assert head.startswith(b"http/1.1 200"), "the connection is in order"
    writer.close()
    assert len(world.cell.calls) == 1


async def test_one_that_does_not_come_ends_the_connection(world: World) -> None:
    _, unknown = new_key()
    for more in (
        b"Content-Length: 20\r\n",
        b"Content-Length: 9000000\r\n",
        b"Content-Length: 5\r\nExpect: 100-continue\r\n",
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(
            b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\nabc"
            % (unknown.encode(), more)
        )
        head, body = await _head(reader)
        assert head.startswith(b"http/1.1 401")
        assert b"connection: close" in head
        assert b"UNAUTHENTICATED" in body
        assert await asyncio.wait_for(reader.read(), 5) == b"", "it is closed behind the answer"
        writer.close()
    assert world.cell.calls == []
