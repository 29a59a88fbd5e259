"""One POST to somebody else's machine: guarded like calls to targets, and over after a given time.

The address is checked where the socket connects, so a name that resolves to something else after it was
entered gains nothing. Redirects are not followed.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from cells.domain.egress import EgressRefused, refusal_of_address

#: A receiver has so long to take the message and answer (seconds).
PATIENCE = 15.0
_CONNECTING = 5.0
#: What is kept of an answer's body (bytes).
_KEPT = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of a try. Delivered where `error` is empty."""

    ms: int
    status: int | None = None
    error: str = ""
    response: str = ""
    retry_after: int | None = None  # seconds the receiver asked for
    for_good: bool = False  # no further try is of any use
    gone: bool = False  # the receiver wants nothing of this rule any more


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def post(
    url: str, headers: Mapping[str, str], body: bytes, *, allow: Collection[str], patience: float = PATIENCE
) -> Outcome:
    """Sends a message; never raises for what the other side does."""
    began = time.monotonic()
    parts = urlsplit(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(host, parts.port)
    late = threading.Event()

    def spent() -> int:
        return round(1000 * (time.monotonic() - began))

    try:
        connection.sock = _connected(host, connection.port, secure=secure, allow=frozenset(allow))
        # A receiver that trickles its answer is over in time, too.
        timer = threading.Timer(max(0.05, patience - (time.monotonic() - began)), _cut, (connection, late))
        timer.daemon = True
        timer.start()
        try:
            connection.sock.settimeout(patience)
            connection.request("POST", target, body=body, headers=dict(headers))
            answer = connection.getresponse()
            text = answer.read(_KEPT).decode("utf-8", "replace").replace("\0", "\ufffd")
        finally:
            timer.cancel()
    except EgressRefused as refused:
        return Outcome(ms=spent(), error=f"not called: {refused}", for_good=True)
    except (OSError, http.client.HTTPException, ValueError) as fault:
        slow = late.is_set() or isinstance(fault, TimeoutError)
        return Outcome(ms=spent(), error="no answer in time" if slow else _said(fault))
    finally:
        connection.close()
    return _judged(answer, text, spent())


def _cut(connection: http.client.HTTPConnection, late: threading.Event) -> None:
    late.set()
    if connection.sock is not None:
        with contextlib.suppress(OSError):  # closed already
            connection.sock.shutdown(socket.SHUT_RDWR)


def _said(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}"[:300].replace("\0", "")


def _connected(host: str, port: int, *, secure: bool, allow: frozenset[str]) -> socket.socket:
    why, fault = None, None
    for family, kind, proto, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        why = refusal_of_address(str(address[0]), allow)
        if why is not None:
            continue
        made = socket.socket(family, kind, proto)
        made.settimeout(_CONNECTING)
        try:
            made.connect(address)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _tls().wrap_socket(made, server_hostname=host) if secure else made
        except OSError as e:
            made.close()
            fault = e
    if fault is not None:
        raise fault
    raise EgressRefused(f"{host} is {why}" if why else f"{host} has no address")


def _judged(answer: http.client.HTTPResponse, text: str, ms: int) -> Outcome:
    status = answer.status
    if 200 <= status < 300:
        return Outcome(ms=ms, status=status, response=text)
    asked = answer.headers.get("Retry-After", "")
    said = f"answered {status}" + (": redirects are not followed" if 300 <= status < 400 else "")
    return Outcome(
        ms=ms,
        status=status,
        response=text,
        error=said,
        retry_after=int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else None,
        for_good=status == 410,
        gone=status == 410,
    )
