"""One HTTP call to a target.

Connections are reused, redirects not followed, answers read up to a limit. Whatever happens
becomes an `Answer`: no exception of the network leaves this module.
"""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import ssl
import time
from collections.abc import Callable, Collection
from contextvars import ContextVar
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict, istr
from yarl import URL

from cells.domain.outcome import CallError
from cells.domain.run import BODY_LIMIT
from cells.execution.egress import EgressRefused, guarded_connector
from cells.execution.recording import Answer

#: An answer's rest beyond the limit is read and dropped up to here, to keep the connection.
_DRAIN_LIMIT = 64 * 1024
#: That a kept connection had been closed shows this soon after we wrote to it (seconds).
_IDLE_CLOSE_SECONDS = 1.0
#: Statuses whose Retry-After matters.
_RETRY_AFTER = istr("Retry-After")
_RATELIMIT, _RATELIMIT_POLICY = istr("RateLimit"), istr("RateLimit-Policy")


class _NotAnyMore(Exception):
    """While a connection was waited for, the right to use it ended."""


class _Way:
    """How one call is made."""

    __slots__ = ("may_call", "reused")

    def __init__(self, may_call: Callable[[], bool]) -> None:
        self.may_call = may_call
        self.reused = False  # its connection was kept from an earlier call


_NO_CONTENT = (b"HTTP/1.1 204", b"HTTP/1.0 204")
_HEAD_END = b"\r\n\r\n"
_ANNOUNCES_BODY = re.compile(rb"\r\n(content-length:\s*[1-9]|transfer-encoding:)", re.IGNORECASE)


class _Handler(ResponseHandler):
    """Takes a 204 at its word: it has no body. Targets that send one all the same have said that they
    succeeded; what follows the head is dropped, with the connection."""

    def data_received(self, data: bytes) -> None:
        if data.startswith(_NO_CONTENT):
            head, end, rest = data.partition(_HEAD_END)
            if rest or _ANNOUNCES_BODY.search(head):
                self.force_close()
                data = head + end
        super().data_received(data)


class _Connector(aiohttp.TCPConnector):
    """Hands out no connection to those who may not call any more: a name server or a target that
    takes its time can outlast a host's lease. Says whether it is one that was kept."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        handler: type[ResponseHandler] = _Handler
        self._factory = functools.partial(handler, loop=self._loop)

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[aiohttp.tracing.Trace], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        way = _way.get()
        way.reused = True
        connection = await super().connect(req, traces, timeout)
        if not way.may_call():
            connection.release()
            raise _NotAnyMore
        return connection

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[aiohttp.tracing.Trace], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        _way.get().reused = False
        return await super()._create_connection(req, traces, timeout)


_way: ContextVar[_Way] = ContextVar("way")


def _always() -> bool:
    return True


class Caller:
    """Makes calls over one session. `start` and `close` it inside the event loop."""

    def __init__(self, *, egress_allow: Collection[str] = (), resolver: AbstractResolver | None = None):
        self._allow = egress_allow
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}

    async def start(self) -> None:
        """Open the session; no connection is made yet."""
        self._session = aiohttp.ClientSession(
            connector=guarded_connector(self._allow, resolver=self._resolver, kind=_Connector),
            cookie_jar=aiohttp.DummyCookieJar(),
            # A compressed answer could unfold to any size; it is asked not to be.
            auto_decompress=False,
            trust_env=False,
            read_bufsize=16 * 1024,
        )

    async def close(self) -> None:
        """Drop all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(
        self,
        method: str,
        url: URL,
        headers: CIMultiDict[str],
        body: bytes | None,
        timeout: float,
        may_call: Callable[[], bool] = _always,
        *,
        once: bool = False,
        wanted: int = BODY_LIMIT,
    ) -> Answer | None:
        """Send `body` and read the answer within `timeout` seconds, both together.

        `wanted`: as many bytes of the answer's body are kept.
        `once`: no repeat, whatever happened to the connection.
        `may_call` is asked whenever a connection has been waited for. None: it said no, and
        nothing was sent from then on.
        """
        session = self._session
        if session is None:
            raise RuntimeError("not started")
        limits = self._timeouts.get(timeout)
        if limits is None:
            limits = self._timeouts[timeout] = aiohttp.ClientTimeout(total=timeout, ceil_threshold=60)
        way = _Way(may_call)
        _way.set(way)
        began = time.monotonic()
        second_try = False
        while True:
            try:
                response = await session.request(
                    method, url, data=body, headers=headers, timeout=limits, allow_redirects=False
                )
                try:
                    text, cut = await _read(response, wanted)
                finally:
                    response.release()
                told = response.headers
                ratelimit = told.get(_RATELIMIT)
                return Answer(
                    status=response.status,
                    body=text,
                    cut=cut,
                    retry_after=told.get(_RETRY_AFTER) if response.status >= 400 else None,
                    ratelimit=ratelimit,
                    ratelimit_policy=None if ratelimit is None else told.get(_RATELIMIT_POLICY),
                    sent_bytes=len(body or b""),
                )
            except _NotAnyMore:
                return None
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as fault:
                if (
                    not (second_try or once)
                    and way.reused
                    and _closed_while_idle(fault, time.monotonic() - began)
                ):
                    # The target closed a kept connection just as we used it. A repeat under the
                    # same idempotency key is what that key is for.
                    second_try = True
                    continue
                return _failed(fault, body)


async def _read(response: aiohttp.ClientResponse, wanted: int) -> tuple[str, bool]:
    """The body's beginning, and whether there is more. What exceeds the limits is not read: the connection
    is closed."""
    content = response.content
    kept = b""
    while len(kept) < wanted:
        chunk = await content.read(wanted - len(kept))
        if not chunk:
            return _text(kept), False
        kept += chunk
    dropped = 0
    while chunk := await content.read(16 * 1024):
        dropped += len(chunk)
        if dropped > _DRAIN_LIMIT:
            response.close()
            break
    return _text(kept), dropped > 0


def _text(raw: bytes) -> str:
    """What PostgreSQL can store as text: valid UTF-8 without NUL."""
    text = raw.decode("utf-8", "replace")
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


def _closed_while_idle(fault: BaseException, seconds: float) -> bool:
    """A target that worked before it hung up was called: a repeat is another attempt, and would
    not end inside the lease."""
    return seconds < _IDLE_CLOSE_SECONDS and (
        isinstance(fault, aiohttp.ServerDisconnectedError)
        or (isinstance(fault, aiohttp.ClientOSError) and not isinstance(fault, aiohttp.ClientConnectorError))
    )


def _failed(fault: BaseException, body: bytes | None) -> Answer:
    """The answer that stands for a failure. Only calls that reached a target count as sent."""
    sent = len(body or b"")
    if isinstance(fault, TimeoutError | asyncio.TimeoutError):
        return Answer(error=CallError.TIMEOUT, sent_bytes=sent)
    if isinstance(fault, aiohttp.ClientConnectorDNSError | socket.gaierror):
        return Answer(error=CallError.NAME, reached=False)
    if isinstance(fault, aiohttp.ClientSSLError | ssl.SSLError):
        return Answer(
            error=f"{CallError.TLS}: {_reason(fault)}",
            reached=not isinstance(fault, aiohttp.ClientConnectorError),
        )
    if isinstance(fault, aiohttp.ClientConnectorError):
        if isinstance(fault.os_error, EgressRefused):
            return Answer(error=f"{CallError.BLOCKED}: {fault.os_error}", reached=False)
        return Answer(error=f"{CallError.CONNECTION}: {_reason(fault.os_error)}", reached=False)
    if isinstance(fault, aiohttp.ClientConnectionError | OSError):
        return Answer(error=f"{CallError.CONNECTION}: {_reason(fault)}", sent_bytes=sent)
    if isinstance(fault, aiohttp.ClientPayloadError):
        return Answer(error=f"{CallError.CONNECTION}: the answer broke off", sent_bytes=sent)
    if isinstance(fault, aiohttp.ClientResponseError):
        return Answer(error=CallError.PROTOCOL, sent_bytes=sent)
    # A URL or header that cannot be sent at all: what the target or job says is wrong.
    return Answer(error=f"{CallError.TARGET}: {type(fault).__name__}")


def _reason(fault: BaseException) -> str:
    """Short and without addresses or ports, so that equal failures read alike."""
    if isinstance(fault, ConnectionRefusedError):
        return "refused"
    if isinstance(fault, ConnectionResetError | BrokenPipeError):
        return "reset"
    if isinstance(fault, aiohttp.ServerDisconnectedError):
        return "closed without an answer"
    if isinstance(fault, ssl.SSLCertVerificationError):
        return fault.verify_message
    if isinstance(fault, aiohttp.ClientConnectorCertificateError):
        inner = fault.certificate_error
        return inner.verify_message if isinstance(inner, ssl.SSLCertVerificationError) else "certificate"
    if isinstance(fault, OSError) and fault.strerror:
        return fault.strerror.split("[", 1)[0].strip().lower()[:120]
    return type(fault).__name__
