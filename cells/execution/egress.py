"""Guarded connections to targets: `cells.domain.egress` says which addresses they may have.

The check is made on the address a socket is about to connect to, so a name that resolves to
something else after it was registered (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp import TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult

from cells.domain.egress import EgressRefused, refusal_of_address, refusal_of_url

__all__ = ["EgressRefused", "ThreadResolver", "guarded_connector", "refusal_of_address", "refusal_of_url"]


class ThreadResolver(AbstractResolver):
    """Resolves names in threads of its own, so that slow name servers of some targets delay
    neither the files and locks of the process nor, with this many threads, many other targets."""

    def __init__(self, threads: int = 32):
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="resolve")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads,
            lambda: socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG),
        )
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=kind,
                proto=proto,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, proto, _, address in found
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def guarded_connector(
    allow: Collection[str],
    *,
    resolver: AbstractResolver | None = None,
    keepalive_seconds: float = 15.0,
    kind: type[TCPConnector] = TCPConnector,
) -> TCPConnector:
    """A connector that makes no socket for a refused address, literal or resolved.

    How many connections there are is up to the callers' own limits.
    """
    allowed = frozenset(allow)

    def make_socket(info: tuple[Any, Any, int, str, tuple[Any, ...]]) -> socket.socket:
        family, kind, proto, _, address = info
        why = refusal_of_address(str(address[0]), allowed)
        if why is not None:
            # The same text for each address of a name: the connector then passes it on as it is.
            raise EgressRefused(why)
        made = socket.socket(family, kind, proto)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    return kind(
        limit=0,
        limit_per_host=0,
        ttl_dns_cache=10,
        resolver=resolver or ThreadResolver(),
        keepalive_timeout=keepalive_seconds,
        socket_factory=make_socket,
    )
