"""One POST to somebody else's machine: guarded like calls to targets, and over after a given time, whatever
of it takes long: the name, the connection, TLS or the answer.

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
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from cells.domain.egress import EgressRefused, refusal_of_address

#: A receiver has so long to take the message and answer (seconds).
PATIENCE = 15.0
#: Of all addresses a name has, so many are tried.
_ADDRESSES = 3
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
    """Sends a message; never raises for what the other side does. It is over after `patience` seconds."""
    began = time.monotonic()
    until = began + patience
    late = threading.Event()
    connection: http.client.HTTPConnection | None = None

    def spent() -> int:
        return round(1000 * (time.monotonic() - began))

    try:
        parts = urlsplit(url)
        host, secure = parts.hostname or "", parts.scheme == "https"
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        port = parts.port or (443 if secure else 80)
        # The port is always said: in an IPv6 address without one, `http.client` takes its end for it.
        connection = (http.client.HTTPSConnection if secure else http.client.HTTPConnection)(host, port)
        connection.sock = connected(
            host, _resolved(host, port, until), until=until, secure=secure, allow=frozenset(allow)
        )
        # A receiver that trickles its answer is over in time, too.
        timer = threading.Timer(_left(until), _cut, (connection, late))
        timer.daemon = True
        timer.start()
        try:
            connection.sock.settimeout(_left(until))
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
        if connection is not None:
            connection.close()
    return _judged(answer, text, spent())


def _cut(connection: http.client.HTTPConnection, late: threading.Event) -> None:
    late.set()
    if connection.sock is not None:
        with contextlib.suppress(OSError):  # closed already
            connection.sock.shutdown(socket.SHUT_RDWR)


def _said(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}"[:300].replace("\0", "")


def _left(until: float) -> float:
    """Seconds that are left; raises `TimeoutError` where none is."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


#: An address as `socket.getaddrinfo` gives it.
Address = tuple[Any, Any, int, str, Any]


def _resolved(host: str, port: int, until: float) -> list[Address]:
    """The addresses of a name. The system's resolver knows no limit, so it is asked in a thread of its own,
    which is left behind where it takes too long."""
    found: Future[list[Address]] = Future()

    def ask() -> None:
        try:
            found.set_result(list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
        except (OSError, ValueError) as fault:  # ValueError: no name at all, as IDNA has it
            found.set_exception(fault)

    threading.Thread(target=ask, name="notify-resolve", daemon=True).start()
    return found.result(_left(until))


def connected(
    host: str, addresses: Sequence[Address], *, until: float, secure: bool, allow: frozenset[str]
) -> socket.socket:
    """A connection to one of a name's first addresses that may be called, with TLS where it is `secure`.
    Raises `EgressRefused` where none may be called, `OSError` where none answers."""
    why, allowed = None, []
    for address in addresses:
        refused = refusal_of_address(str(address[4][0]), allow)
        if refused is None:
            allowed.append(address)
        else:
            why = refused
    if not allowed:
        raise EgressRefused(f"{host} is {why}" if why else f"{host} has no address")
    tried = allowed[:_ADDRESSES]
    fault = OSError("no address was tried")
    for n, (family, kind, proto, _, address) in enumerate(tried):
        made = socket.socket(family, kind, proto)
        try:
            # An address that does not answer leaves the others their share of the time.
            made.settimeout(_left(until) / (len(tried) - n))
            made.connect(address)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _tls().wrap_socket(made, server_hostname=host) if secure else made
        except OSError as e:
            made.close()
            fault = e
    raise fault


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
