"""The way to cells and Django: HTTP/1.1 over kept connections, no more than a router needs of it.

A general client costs more than everything else a router does with a request. This one sends a head that
is ready, never follows, decodes or retries, and hands the answer on as it comes. A connection is taken by
one request at a time; what is not read to its end is closed, so that whoever answers learns of it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import NoReturn
from urllib.parse import urlsplit

import httptools

#: How long the connecting may take (seconds).
CONNECT_S = 2.0
#: Below the five seconds after which common servers close an idle connection (seconds).
KEEP_ALIVE_S = 3.0
#: The head of an answer may have this size (bytes).
LARGEST_HEAD = 64 * 1024
#: Of a streamed answer, what may wait for a slow client before no more is read (bytes).
_AHEAD = 256 * 1024

_BODILESS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS", "TRACE"})


class NotConnected(Exception):
    """Nobody takes connections there. Nothing was sent."""


class Broken(Exception):
    """The connection broke, or what came was no HTTP. What was sent may have arrived."""


class TooSlow(Exception):
    """Nothing came for too long. What was sent may have arrived."""


class Answer:
    """An answer whose head is there."""

    __slots__ = ("_link", "content_length", "headers", "status")

    def __init__(self, link: _Link, status: int, headers: list[tuple[bytes, bytes]], length: int | None):
        self._link = link
        self.status = status
        self.headers = headers
        self.content_length = length

    def says(self, name: str) -> bool:
        """Whether there is a header of that name."""
        return any(known.lower() == name.lower().encode() for known, _ in self.headers)

    async def read(self) -> bytes:
        """The whole body. Raises `Broken` or `TooSlow`."""
        link = self._link
        while not link.ended:
            await link.more()
        return b"".join(link.take())

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises `Broken` or `TooSlow`."""
        link = self._link
        while True:
            if link.waiting:
                for part in link.take():
                    yield part
            elif link.ended:
                return
            else:
                await link.more()

    def close(self) -> None:
        """No more of it is wanted. What was read to its end keeps its connection."""
        self._link.leave()


class _Link(asyncio.Protocol):
    """One connection, and the answer that is under way on it."""

    def __init__(self, links: deque[_Link], silence_s: float):
        self._links = links  # where it goes when it is free
        self._silence_s = silence_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._fault: Exception | None = None
        self.idle_since = 0.0
        self._clear(False)

    def _clear(self, headless: bool) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._bodiless = headless
        self._size = 0
        self._paused = False
        self._reusable = False
        self._heard_at = 0.0
        self._until_closed = False
        self.headers: list[tuple[bytes, bytes]] = []
        self.length: int | None = None
        self.status = 0  # 0: the head is not there
        self.waiting: list[bytes] = []
        self.ended = False

    # --- a request -----------------------------------------------------------------------
    @property
    def usable(self) -> bool:
        """Whether a request may be sent on it."""
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, head: bytes, body: bytes, *, bodiless: bool) -> Answer:
        """Send a request; the answer's head. Raises `Broken` or `TooSlow`."""
        if not self.usable:
            raise Broken("closed while idle")
        self._clear(bodiless)
        self._fault = None
        self._heard_at = self._loop.time()
        self._timer = self._loop.call_later(self._silence_s, self._look)
        transport = self._transport
        if transport is None:
            raise Broken("closed")
        transport.writelines((head, body)) if body else transport.write(head)
        try:
            while not self.status:
                await self.more()
        except BaseException:
            self.leave()
            raise
        return Answer(self, self.status, self.headers, self.length)

    async def more(self) -> None:
        """Return when more of the answer came. Raises what happened instead."""
        if self._fault is not None:
            raise self._fault
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def take(self) -> list[bytes]:
        """What of the body waits."""
        taken, self.waiting = self.waiting, []
        self._size = 0
        return taken

    def leave(self) -> None:
        """The request is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        transport = self._transport
        # An answer that came before its request was sent whole leaves a rest that would precede the next one.
        spoken = transport is not None and transport.get_write_buffer_size() == 0
        if transport is not None and spoken and self.usable and self._over:
            if self._paused:
                # The last of a large answer came while much of it waited. Whoever is next would hear nothing.
                self._paused = False
                transport.resume_reading()
            self.idle_since = self._loop.time()
            self._links.append(self)
        else:
            self.abort()

    @property
    def _over(self) -> bool:
        """Whether its answer came to a clean end, after which another one may follow."""
        return self.ended and self._reusable and self._fault is None

    def abort(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.abort()

    def _look(self) -> None:
        left = self._heard_at + self._silence_s - self._loop.time()
        # A client that is slow to take what came is no silence of whoever answers.
        if left > 0 or self._paused:
            self._timer = self._loop.call_later(max(left, 1.0), self._look)
            return
        self._fail(TooSlow())

    def _fail(self, fault: Exception) -> None:
        if self._fault is None and not self.ended:
            self._fault = fault
        self.abort()
        self._tell()

    def _tell(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- the connection ------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._timer is None:
            self.abort()  # nobody asked
            return
        self._heard_at = self._loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(Broken("it wants to speak something else"))
            return
        except httptools.HttpParserError as fault:
            self._fail(Broken(f"no HTTP: {fault}"))
            return
        self._tell()

    def connection_lost(self, fault: Exception | None) -> None:
        self._transport = None
        if self._until_closed and fault is None:
            self.ended = True
            self._tell()
        else:
            self._fail(Broken(repr(fault) if fault else "closed"))

    # --- the parser ----------------------------------------------------------------------
    def on_header(self, name: bytes, value: bytes) -> None:
        if self.ended:
            self._reusable = False  # what comes now is an answer that nobody asked for
            return
        self._size += len(name) + len(value)
        if self._size > LARGEST_HEAD:
            raise ValueError("the head is too large")
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.ended:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self.headers = []
            return
        self._size = 0
        chunked = False
        for name, value in self.headers:
            lower = name.lower()
            if lower == b"content-length" and value.isdigit():
                self.length = int(value)
            elif lower == b"transfer-encoding":
                chunked = True
        self._reusable = bool(self._parser.should_keep_alive())
        empty = self._bodiless or status in (204, 304)
        self._until_closed = not empty and self.length is None and not chunked
        self.status = status
        if self._bodiless:
            # The parser would wait for the body that the head speaks of.
            self.ended = True

    def on_body(self, part: bytes) -> None:
        if self.ended:
            self._reusable = False
            return
        self.waiting.append(part)
        self._size += len(part)
        if self._size > _AHEAD and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self.status:
            self.ended = True


class Upstream:
    """The connections of one router. One per process."""

    def __init__(self, *, silence_s: float) -> None:
        self._silence_s = silence_s  # an answer may pause for so long (seconds)
        self._idle: dict[str, deque[_Link]] = {}
        self._places: dict[str, tuple[str, int, str, ssl.SSLContext | None]] = {}

    async def ask(
        self, base: str, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> Answer:
        """Send a request to an address; the answer's head. Give the answer back with `close`.

        Raises `NotConnected`, `Broken` or `TooSlow`.
        """
        place = self._places.get(base)
        if place is None:
            place = self._places[base] = _place(base)
        lines = [f"{method} {target} HTTP/1.1\r\nHost: {place[2]}\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in headers]
        if body or method not in _BODILESS:
            lines.append(f"Content-Length: {len(body)}\r\n")
        lines.append("\r\n")
        head = "".join(lines)
        if head.count("\n") != len(lines) + 1:
            raise ValueError("a header holds a line break")
        link = self._kept(base) or await self._connected(base, place)
        return await link.ask(head.encode(), body, bodiless=method == "HEAD")

    async def close(self) -> None:
        """Close what is idle."""
        for links in self._idle.values():
            while links:
                links.pop().abort()

    def _kept(self, base: str) -> _Link | None:
        """The connection that was used last, if it is young enough: the others are closed."""
        links = self._idle.get(base)
        if not links:
            return None
        since = asyncio.get_running_loop().time() - KEEP_ALIVE_S
        while links and links[0].idle_since < since:
            links.popleft().abort()
        while links:
            link = links.pop()
            if link.usable:
                return link
        return None

    async def _connected(self, base: str, place: tuple[str, int, str, ssl.SSLContext | None]) -> _Link:
        host, port, _, security = place
        links = self._idle.setdefault(base, deque())
        try:
            async with asyncio.timeout(CONNECT_S):
                _, link = await asyncio.get_running_loop().create_connection(
                    lambda: _Link(links, self._silence_s), host, port, ssl=security
                )
        except (OSError, TimeoutError) as fault:
            raise NotConnected(repr(fault)) from fault
        return link


def _place(base: str) -> tuple[str, int, str, ssl.SSLContext | None]:
    """Host, port, what the Host header says, and how it is secured."""
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        _refuse(base)
    security = ssl.create_default_context() if parts.scheme == "https" else None
    return parts.hostname, parts.port or (443 if security else 80), parts.netloc.rpartition("@")[2], security


def _refuse(base: str) -> NoReturn:
    raise NotConnected(f"no address: {base}")
