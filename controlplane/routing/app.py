"""The ASGI application: authenticate, limit, forward. It parses no body and knows no resource."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable, MutableMapping
from typing import Any, cast

from cells.contract import ErrorCode
from controlplane.routing.acts import OperatorActs
from controlplane.routing.auth import Principal, authenticate
from controlplane.routing.document import DOCUMENT_PATH, Document
from controlplane.routing.feed import Feed
from controlplane.routing.forward import (
    Bodies,
    BrokenAnswer,
    ClientGone,
    Forwarder,
    Headers,
    Receive,
    Request,
    Send,
    is_repeatable,
    pass_on,
)
from controlplane.routing.limits import Limiter
from controlplane.routing.meter import Meter
from controlplane.routing.metrics import Metrics
from controlplane.routing.refusal import Refusal, unavailable
from controlplane.routing.spans import Span, Spans
from controlplane.routing.table import Plane, Table, plane_of
from controlplane.routing.used import LastUsed

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_DOTS = re.compile(r"/(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
#: Names of requests must differ; nobody gains anything by guessing one.
_RANDOM = random.Random()
#: Of a body that nobody wants so much is read (bytes), for so long (seconds).
_DRAINED, _DRAIN_S = 1024 * 1024, 1.0
#: A client that waits longer than this is watched, so that its leaving is passed on (seconds).
_WATCH_AFTER_S = 0.25


class Router:
    """One instance per process."""

    def __init__(
        self,
        *,
        feed: Feed,
        limiter: Limiter,
        forwarder: Forwarder,
        meter: Meter,
        used: LastUsed,
        acts: OperatorActs,
        metrics: Metrics,
        spans: Spans | None,
        max_stale_s: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._feed = feed
        self._limiter = limiter
        self._forwarder = forwarder
        self._meter = meter
        self._used = used
        self._acts = acts
        self._metrics = metrics
        self._spans = spans
        self._max_stale_ms = max_stale_s * 1000
        self._now_ms = now_ms
        self._bodies = Bodies()
        self._document = Document.load()
        self.in_flight = 0
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        self.in_flight += 1
        plane, status, head_sent = "router", 0, False
        span: Span | None = None

        async def tracked(message: MutableMapping[str, Any]) -> None:
            nonlocal head_sent
            head_sent = True
            await send(message)

        request_id = _request_id(scope["headers"])
        body = _Unread(receive, scope["headers"])
        extra: Headers = [(b"x-request-id", request_id.encode())]
        try:
            raw = _raw_path(scope)
            wanted = None if raw == DOCUMENT_PATH else plane_of(raw)
            if wanted is None:
                status = await self._own(scope, raw, tracked, extra)
            else:
                plane = wanted.value
                if self._spans is not None:
                    span = self._spans.begin(scope["headers"])
                status = await self._serve(scope, raw, wanted, request_id, body, tracked, extra, span)
        except Refusal as refusal:
            status = refusal.status
            if not head_sent:
                await _refuse(refusal, request_id, tracked, extra + await body.left())
        except ClientGone:
            status = 499
        except BrokenAnswer as broken:
            status = 502
            log.warning("an answer broke off: %s", broken)
            raise
        except Exception:
            status = 500
            log.exception("a request failed", extra={"request_id": request_id})
            if head_sent:
                raise
            fault = Refusal(500, ErrorCode.INTERNAL_ERROR, "Something went wrong on our side.")
            await _refuse(fault, request_id, tracked, extra)
        finally:
            self.in_flight -= 1
            self._metrics.answered(plane, status, time.perf_counter() - began)
            if self._spans is not None and span is not None:
                self._spans.end(
                    span, method=scope["method"], plane=plane, status=status, request_id=request_id
                )

    async def _serve(
        self,
        scope: Scope,
        raw: str,
        plane: Plane,
        request_id: str,
        unread: _Unread,
        send: Send,
        extra: Headers,
        span: Span | None,
    ) -> int:
        table = self._feed.table
        if table is None:
            raise unavailable("The router has no routing table yet. Retry soon.")
        headers: Headers = scope["headers"]
        method: str = scope["method"]
        principal = authenticate(
            table,
            authorization=[value for name, value in headers if name == b"authorization"],
            tenant_header=[value for name, value in headers if name == b"x-tenant-id"],
            method=method,
            now_ms=self._now_ms(),
            stale=self._feed.age_ms > self._max_stale_ms,
        )
        self._used.note(principal.key_id, self._now_ms())
        if principal.tenant_id:
            await self._limit(table, principal, extra)
        elif plane is Plane.DATA:
            raise Refusal(400, ErrorCode.MALFORMED, "An operator's key needs X-Tenant-Id here.")
        if _DOTS.search(raw):
            raise Refusal(400, ErrorCode.MALFORMED, "A path must not contain `.` or `..` segments.")
        client = (scope.get("client") or ("",))[0]
        if principal.operator and plane is Plane.DATA:
            await self._note(principal, method, raw, request_id, client)
        query: bytes = scope["query_string"]
        target = f"{raw}?{_ascii(query)}" if query else raw
        kept = pass_on(headers) if span is None else span.instead_in(pass_on(headers))
        body = await unread.read(self._bodies)
        try:
            request = Request(
                method=method,
                target=target,
                headers=kept,
                body=body,
                idempotent=is_repeatable(method, headers),
                request_id=request_id,
                client=client,
            )
            return await self._forward(request, principal, plane, unread.receive, send, extra)
        finally:
            self._bodies.release(body)

    async def _note(self, principal: Principal, method: str, path: str, request_id: str, client: str) -> None:
        """Django audits what passes through it; what goes to a cell is kept here, before it goes."""
        log.info(
            "an operator acts: %s %s", method, path,
            extra={"key": principal.key_id, "tenant": principal.tenant_id, "request_id": request_id},
        )  # fmt: skip
        try:
            await self._acts.note(
                actor=principal.actor, tenant_id=principal.tenant_id, method=method, path=path,
                request_id=request_id, client=client,
            )  # fmt: skip
        except OSError as fault:
            log.error("an operator's act could not be kept: %r", fault)
            raise unavailable("What operators do is audited, and cannot be written down now.") from fault

    async def _limit(self, table: Table, principal: Principal, extra: Headers) -> None:
        tenant = table.tenants.get(principal.tenant_id)
        if tenant is None:
            return
        rate = tenant.api_requests_per_second
        verdict = await self._limiter.check(principal.tenant_id, rate)
        extra += verdict.headers(rate)
        if not verdict.allowed:
            raise verdict.refusal(rate)
        self._meter.count(principal.tenant_id, tenant.epoch)

    async def _forward(
        self,
        request: Request,
        principal: Principal,
        plane: Plane,
        receive: Receive,
        send: Send,
        extra: Headers,
    ) -> int:
        """Forward; if the client leaves meanwhile, what is behind us is told by a closed connection."""
        task = cast(asyncio.Task[Any], asyncio.current_task())
        watcher: asyncio.Task[None] | None = None
        left = False

        async def watch() -> None:
            nonlocal left
            while (await receive())["type"] != "http.disconnect":
                continue
            left = True
            task.cancel()

        def begin() -> None:
            nonlocal watcher
            watcher = asyncio.create_task(watch(), name="client-watch")

        timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_S, begin)
        try:
            return await self._forwarder.forward(request, principal, plane, send, extra)
        except asyncio.CancelledError:
            if not left:
                raise
            task.uncancel()
            raise ClientGone from None
        finally:
            timer.cancel()
            if watcher is not None:
                watcher.cancel()

    async def _own(self, scope: Scope, raw: str, send: Send, extra: Headers) -> int:
        """The router's own few pages."""
        kind = b"application/json"
        status = 200
        if raw == DOCUMENT_PATH:
            status, body, more = self._document.answer(scope["headers"])
            extra = extra + more
        elif raw == "/healthz":
            body = b'{"status":"ok"}'
        elif raw == "/readyz":
            ready = self._feed.table is not None and not self.draining
            status = 200 if ready else 503
            reason = "ok" if ready else "draining" if self.draining else "no routing table"
            body = b'{"status":"%s","feed_age_ms":%d}' % (reason.encode(), self._feed_age_ms())
        elif raw == "/metrics":
            self._metrics.in_flight.set(self.in_flight)
            self._metrics.feed_age.set(self._feed_age_ms() / 1000)
            self._metrics.limit_fallbacks.set(self._limiter.fallbacks)
            self._metrics.unshipped.set(self._meter.unshipped)
            kind, body = b"text/plain; version=0.0.4; charset=utf-8", self._metrics.page()
        else:
            raise Refusal(404, ErrorCode.NOT_FOUND, "There is nothing at this path.")
        if scope["method"] not in ("GET", "HEAD"):
            raise Refusal(
                405,
                ErrorCode.METHOD_NOT_ALLOWED,
                "This page can only be read.",
                headers=((b"allow", b"GET"),),
            )
        head = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *extra]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
        return status

    def _feed_age_ms(self) -> int:
        return -1 if self._feed.table is None else self._feed.age_ms


class _Unread:
    """The body of a request, as long as nobody has read it. A connection that is closed with a part of a body
    unread may take the answer along: so the rest is read, or the client told that the connection ends."""

    __slots__ = ("_headers", "_read", "receive")

    def __init__(self, receive: Receive, headers: Headers) -> None:
        self.receive = receive
        self._headers = headers
        self._read = False

    async def read(self, bodies: Bodies) -> bytes:
        """The whole body, kept in `bodies`."""
        found = await bodies.read(self.receive, _declared_length(self._headers))
        self._read = True
        return found

    async def left(self) -> Headers:
        """What a refusal says beside itself: nothing where the body is at its end, or was within a moment."""
        names = {name for name, _ in self._headers}
        if self._read or not (_declared_length(self._headers) or b"transfer-encoding" in names):
            return []
        if b"expect" not in names and (_declared_length(self._headers) or 0) <= _DRAINED:
            size = 0
            try:
                async with asyncio.timeout(_DRAIN_S):
                    while size <= _DRAINED:
                        message = await self.receive()
                        if message["type"] == "http.disconnect":
                            break
                        size += len(message.get("body", b""))
                        if not message.get("more_body"):
                            return []
            except TimeoutError:
                pass  # it comes too slowly to be waited for
        return [(b"connection", b"close")]


def _raw_path(scope: Scope) -> str:
    raw: bytes = scope.get("raw_path") or b""
    path = _ascii(raw)
    if not path.startswith("/"):
        raise Refusal(404, ErrorCode.NOT_FOUND, "There is nothing at this path.")
    return path


def _ascii(raw: bytes) -> str:
    try:
        text = raw.decode("ascii")
    except UnicodeDecodeError:
        raise Refusal(400, ErrorCode.MALFORMED, "Path and query must be percent-encoded.") from None
    if any(c <= " " or c == "\x7f" for c in text):
        raise Refusal(400, ErrorCode.MALFORMED, "Path and query must be percent-encoded.")
    return text


def _declared_length(headers: Headers) -> int | None:
    for name, value in headers:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return None


def _request_id(headers: Headers) -> str:
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value.decode()
    return f"req_{_RANDOM.getrandbits(96):024x}"


async def _refuse(refusal: Refusal, request_id: str, send: Send, extra: Headers) -> None:
    status, headers, body = refusal.answer(request_id)
    await send({"type": "http.response.start", "status": status, "headers": headers + extra})
    await send({"type": "http.response.body", "body": body})
