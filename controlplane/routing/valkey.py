"""A connection to Valkey that carries one call at a time, and costs little more than its bytes.

What is asked is on its way at once, and what is answered is told where it arrives: no pool, no task, no
stream between them. Whoever asks sees to it that the call before has been answered.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from hiredis import Reader as Replies
from hiredis import ReplyError, pack_command
from redis.asyncio.connection import parse_url

#: What Valkey answered, or why it did not.
Tell = Callable[[Any], None]


class Line(asyncio.Protocol):
    """One connection. `open_line` makes it."""

    def __init__(self) -> None:
        self._replies = Replies()
        self._tell: Tell | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can be asked."""
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, parts: tuple[bytes | str, ...], tell: Tell) -> None:
        """Send a command. `tell` gets its answer, a `ReplyError`, or an `OSError` where the line ends."""
        if self._transport is None or self._tell is not None:
            raise RuntimeError("the line is not open, or busy")
        self._tell = tell
        self._transport.write(pack_command(cast(Any, parts)))

    async def call(self, *parts: bytes | str) -> Any:
        """`ask` for those who have the time: raises what was no answer."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.ask(parts, lambda answer: None if done.done() else done.set_result(answer))
        answer = await done
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Whoever waits for an answer is told nothing more."""
        self._tell = None
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ---------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._replies.feed(data)
        answer = self._replies.gets()
        if answer is not False:
            self._told(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._told(exc if isinstance(exc, OSError) else ConnectionError("valkey closed the connection"))

    def _told(self, answer: Any) -> None:
        tell, self._tell = self._tell, None
        if tell is not None:
            tell(answer)


async def open_line(url: str) -> Line:
    """Connect as a URL says (`redis://`, `rediss://`, `unix://`). Raises `OSError` or `ReplyError`."""
    told: dict[str, Any] = dict(parse_url(url))
    loop = asyncio.get_running_loop()
    if "path" in told:
        _, line = await loop.create_unix_connection(Line, told["path"])
    else:
        secure = ssl.create_default_context() if url.startswith("rediss:") else None
        _, line = await loop.create_connection(
            Line, told.get("host", "localhost"), told.get("port", 6379), ssl=secure
        )
    try:
        if told.get("password") is not None:
            names = [told["username"]] if told.get("username") else []
            await line.call("AUTH", *names, told["password"])
        if told.get("db"):
            await line.call("SELECT", str(told["db"]))
        await line.call("PING")
    except BaseException:
        line.close()
        raise
    return line


__all__ = ["Line", "ReplyError", "open_line"]
