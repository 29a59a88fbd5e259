"""The connection to Valkey: commands and scripts, with the engine's troubles as `Retryable`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import hiredis
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from cells.ports import Retryable

#: A command that takes longer than this is given up (seconds).
COMMAND_TIMEOUT = 5.0
CONNECT_TIMEOUT = 2.0

_LUA = Path(__file__).parent / "lua"
#: Every script begins with the files it builds on.
_PARTS = {
    "add": ("keys",),
    "exchange": ("keys", "fair", "room", "capacity"),
    "park": ("keys",),
    "places": ("keys", "room"),
    "pop": ("keys", "fair"),
    "refund": ("keys", "fair", "gate"),
    "release": ("keys", "fair", "gate"),
    "remove": ("keys", "fair"),
    "renew": ("keys",),
}


def script_text(name: str) -> str:
    """The whole text of a script."""
    return "\n".join((_LUA / f"{part}.lua").read_text() for part in (*_PARTS[name], name))


class _FastPacking(AbstractConnection):
    """Encodes long commands in C. The client's own Python loop would cost more than all the rest of
    an add."""

    def pack_command(self, *args: Any) -> list[bytes]:
        if len(args) > 4:
            return [hiredis.pack_command(args)]
        return super().pack_command(*args)


def connect(url: str, **options: Any) -> Redis:
    """A client with this project's timeouts; one immediate retry covers a stale connection."""
    if url.startswith("valkey://"):
        url = "redis" + url.removeprefix("valkey")
    settings: dict[str, Any] = {
        "socket_timeout": COMMAND_TIMEOUT,
        "socket_connect_timeout": CONNECT_TIMEOUT,
        "retry": Retry(NoBackoff(), 1),
    }
    pool = ConnectionPool.from_url(url, **(settings | options))
    kind = pool.connection_class
    pool.connection_class = type(f"FastPacking{kind.__name__}", (_FastPacking, kind), {})
    return Redis.from_pool(pool)


class Valkey:
    """Runs commands and scripts on behalf of one cell."""

    def __init__(self, url: str, prefix: str):
        self.client = connect(url)
        self._prefix = prefix
        self._texts = {name: script_text(name) for name in _PARTS}
        self._hashes = {
            name: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            for name, text in self._texts.items()
        }

    async def command(self, *args: Any) -> Any:
        """One command."""
        try:
            return await self.client.execute_command(*args)  # type: ignore[no-untyped-call]
        except (RedisError, OSError) as fault:
            raise Retryable(f"valkey: {fault}") from fault

    async def commands(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Several commands in one round trip (not atomic)."""
        try:
            async with self.client.pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                answers: list[Any] = await pipe.execute()
                return answers
        except (RedisError, OSError) as fault:
            raise Retryable(f"valkey: {fault}") from fault

    async def script(self, name: str, *args: Any) -> Any:
        """Run a script by its hash; sends its text where the engine does not know it (any more)."""
        try:
            try:
                return await self.client.execute_command(  # type: ignore[no-untyped-call]
                    "EVALSHA", self._hashes[name], 1, self._prefix, *args
                )
            except NoScriptError:
                return await self.client.execute_command(  # type: ignore[no-untyped-call]
                    "EVAL", self._texts[name], 1, self._prefix, *args
                )
        except (RedisError, OSError) as fault:
            raise Retryable(f"valkey: {name}: {fault}") from fault

    async def close(self) -> None:
        """Close all connections."""
        await self.client.aclose()
