"""The gate before every route: who speaks, and the body.

Pure ASGI, because every request passes. The signature is checked before a byte of the body is
read; the body is read here, once, up to its limit, and compared with its hash where the sender
signed one. An error nobody foresaw ends here as a 500 that says nothing of the inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cells.api.problems import Problem, internal_error, malformed, too_large
from cells.api.routing import BODY, CALLER
from cells.api.tracing import trace_of
from cells.contract import (
    ACTOR_HEADER,
    BODY_HASH_HEADER,
    EPOCH_HEADER,
    SCOPES_HEADER,
    SIGNATURE_HEADER,
    STANDBY_HEADER,
    TENANT_HEADER,
    UNSIGNED_BODY,
    BadSignature,
    Caller,
    ErrorCode,
    body_hash,
    verify_request,
)
from cells.observability.logs import logger
from cells.ports import Clock

log = logger(__name__)

#: A body longer than this is not read (bytes).
BODY_LIMIT = 1024 * 1024
#: Routes whose bodies may be longer, up to what a router passes on (bytes).
LONGER_BODIES = {"/v1/jobs:batch": 10 * 1024 * 1024}
#: What an owner tells a local store of one tenant may be as long (bytes).
SNAPSHOT_PREFIX, SNAPSHOT_LIMIT = "/internal/snapshots/", 256 * 1024 * 1024
#: Answered without a signature.
PUBLIC = frozenset({"/v1/openapi.json"})

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAMES = {
    name.lower().encode(): name
    for name in (
        TENANT_HEADER,
        ACTOR_HEADER,
        SCOPES_HEADER,
        EPOCH_HEADER,
        BODY_HASH_HEADER,
        SIGNATURE_HEADER,
    )
}


class Gate:
    """ASGI middleware: authenticates, reads the body, turns crashes into problems."""

    def __init__(
        self, app: ASGIApp, *, keys: Mapping[str, bytes], clock: Clock, owns: Callable[[], bool] | None = None
    ):
        self._app = app
        #: Whether this region owns the cell now; another one's API is to be asked if not. None: always.
        self._owns = owns
        self._keys = keys
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False
        head = scope["method"] == "HEAD"

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            if head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            if b"%" in scope["raw_path"]:
                _check_path(scope["raw_path"])
            if scope["path"] not in PUBLIC:
                headers = _signed_headers(scope)
                scope[CALLER] = self._caller(scope, headers)
                if self._owns is not None and not self._owns():
                    raise Problem(
                        421,
                        ErrorCode.NOT_OWNER,
                        "This region does not own the cell now.",
                        headers={STANDBY_HEADER: "1"},
                    )
                scope[BODY] = body = await _read_body(scope, receive)
                if body is None:
                    return  # the client has gone
                claimed = headers.get(BODY_HASH_HEADER, UNSIGNED_BODY)
                if claimed != UNSIGNED_BODY and body_hash(body) != claimed:
                    raise _unauthenticated("The body is not the one that was signed.")
            if head:
                # As GET, without the body. The server counts on what it was asked, so it gets a copy.
                scope = {**scope, "method": "GET"}
            await self._app(scope, receive, watched_send)
        except Problem as problem:
            await problem.response(scope)(scope, receive, send)
        except Exception:
            log.exception("request failed", method=scope["method"], path=scope["path"], trace=trace_of(scope))
            if started:
                raise
            await internal_error().response(scope)(scope, receive, send)

    def _caller(self, scope: Scope, headers: Mapping[str, str]) -> Caller:
        target = scope["raw_path"].decode("latin-1")
        if scope["query_string"]:
            target += "?" + scope["query_string"].decode("latin-1")
        try:
            return verify_request(
                keys=self._keys,
                now_ms=self._clock.now_ms(),
                method=scope["method"],
                target=target,
                headers=headers,
            )
        except BadSignature as fault:
            raise _unauthenticated(f"The request's signature was not accepted: {fault}.") from None


def _check_path(raw_path: bytes) -> None:
    """Octets that are no text would be read as replacement characters, and so as another key or id;
    nothing has a name with control characters, and the database cannot even be asked for some."""
    try:
        path = unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError:
        raise malformed("The path is not UTF-8.") from None
    if _CONTROL.search(path):
        raise Problem(404, ErrorCode.NOT_FOUND, "There is nothing at this path.")


def _unauthenticated(detail: str) -> Problem:
    return Problem(
        401, ErrorCode.UNAUTHENTICATED, detail, headers={"WWW-Authenticate": "Clockhouse-Signature"}
    )


def _signed_headers(scope: Scope) -> dict[str, str]:
    # Only the six that matter; a header that is there twice was not signed twice.
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        known = _NAMES.get(name)
        if known is not None:
            if known in found:
                raise _unauthenticated(f"The header {known} is there twice.")
            found[known] = value.decode("latin-1")
    return found


async def _read_body(scope: Scope, receive: Receive) -> bytes | None:
    """The whole body; None when the client went away before its end."""
    limit = LONGER_BODIES.get(scope["path"], BODY_LIMIT)
    if scope["path"].startswith(SNAPSHOT_PREFIX):
        limit = SNAPSHOT_LIMIT
    for name, value in scope["headers"]:
        if name == b"content-length":
            if not value.isdigit() or len(value) > 19:
                raise malformed("Content-Length is no number.")
            if int(value) > limit:
                raise _too_long(limit)
    message = await receive()
    if message["type"] == "http.disconnect":
        return None
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > limit:
            raise _too_long(limit)
        return body
    parts, size = [body], len(body)
    while message.get("more_body", False):
        if size > limit:
            raise _too_long(limit)
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
    if size > limit:
        raise _too_long(limit)
    return b"".join(parts)


def _too_long(limit: int) -> Problem:
    return too_large(f"A request body has at most {limit} bytes here.")
