"""Sends a request on to the cell or to Django and streams the answer back.

A cell that answers 421 does not own the tenant: the feed is asked again and the request is
sent once more; so bodies are read whole (up to 10 MiB) before they are sent. A 421 never
leaves the router. While a tenant is being handed over its requests wait a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from cells.contract import STANDBY_HEADER, Caller, ErrorCode, sign_request
from controlplane.addresses import Turns
from controlplane.routing.auth import Principal
from controlplane.routing.control import KID, ControlPlane
from controlplane.routing.feed import Feed
from controlplane.routing.metrics import Metrics
from controlplane.routing.pulse import Pulse, Silent
from controlplane.routing.refusal import Refusal, unavailable, unknown
from controlplane.routing.table import HANDOFF_STATES, Cell, Plane, Table, Tenant
from controlplane.routing.upstream import Answer, Broken, NotConnected, TooSlow, Upstream

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

#: Bodies are kept up to this size (bytes) so that they can be sent a second time.
LARGEST_BODY = 10 * 1024 * 1024
#: Bodies kept at the same time, all requests together (bytes).
LARGEST_TOTAL = 512 * 1024 * 1024
#: How long a request waits for the end of a handoff (seconds).
_HOLD_S = 2.0
_LOOK_AGAIN_S = 0.1
#: How long the feed may take where a request waits for it (seconds).
_REFRESH_S = 2.0
#: Longer than the longest poll (30 s): `pulse` notices hosts that hang, this is for one that answers
#: questions and forgot the request (seconds).
ANSWER_S = 75.0
#: When to try again where nothing answers (seconds).
_SILENT_AGAIN_S = 2.0
#: Answers up to this size are read whole and sent in one piece (bytes).
_SMALL = 64 * 1024

_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
#: Not passed on: what the router answers for itself, or replaces by signed headers.
_OURS = frozenset(
    {
        b"authorization",
        b"cookie",
        b"content-length",
        b"expect",
        b"forwarded",
        b"host",
        b"x-request-id",
        b"x-tenant-id",
    }
)
_PREFIX = b"x-clockhouse-"
#: What may stand unescaped in a path (RFC 3986).
_PATH_SAFE = "/-._~!$&'()*+,;=:@"


class ClientGone(Exception):
    """The client left before its request was complete. Nobody is there to answer."""


class BrokenAnswer(Exception):
    """What is behind the router broke off after the head had been sent: the connection is cut."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What is to be sent on."""

    method: str
    target: str  # path and query, exactly as the client sent them
    headers: list[tuple[str, str]]
    body: bytes
    idempotent: bool  # may be repeated when it is unknown whether it arrived
    request_id: str
    client: str  # address of whoever sent it; empty if unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """Where a request goes, and what vouches for it there."""

    url: str  # one address, or several to try
    target: str
    kid: str
    secret: bytes
    caller: Caller


def canonical(target: str) -> str:
    """A target with its path escaped in the one way Django can find again: WSGI hands it the path
    decoded, and it checks the signature over the path encoded anew."""
    path, mark, query = target.partition("?")
    try:
        decoded = unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise Refusal(400, ErrorCode.MALFORMED, "The path is not valid UTF-8.") from None
    return quote(decoded, safe=_PATH_SAFE) + mark + query


def pass_on(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """The client's headers as they go on, or a `Refusal` where one is not text.

    Names with underscores stay here: to WSGI `X_Forwarded_For` and `X-Forwarded-For` are one.
    """
    named = {
        token.strip().lower()
        for name, value in headers
        if name == b"connection"
        for token in value.split(b",")
    }
    kept: list[tuple[str, str]] = []
    for name, value in headers:
        if name in _HOP_BY_HOP or name in _OURS or name in named:
            continue
        if name.startswith((_PREFIX, b"x-forwarded-")) or b"_" in name:
            continue
        try:
            kept.append((name.decode("ascii"), value.decode()))
        except UnicodeDecodeError:
            raise Refusal(400, ErrorCode.MALFORMED, "A header is not valid UTF-8.") from None
    return kept


def answer_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """An upstream's headers as they go back to the client."""
    kept: Headers = []
    for name, value in raw:
        lower = name.lower()
        if lower in _HOP_BY_HOP or lower in (b"server", b"date", b"x-request-id"):
            continue
        if lower.startswith(_PREFIX):
            continue
        kept.append((lower, value))
    return kept


class Bodies:
    """Reads request bodies, within a limit for each and one for all."""

    def __init__(self) -> None:
        self.kept = 0

    async def read(self, receive: Receive, declared: int | None) -> bytes:
        """The whole body. The caller gives its size back (`release`) when it is done with it."""
        if declared is not None and declared > LARGEST_BODY:
            raise _too_large()
        chunks: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunk: bytes = message.get("body", b"")
                if chunk:
                    size += len(chunk)
                    self.kept += len(chunk)
                    chunks.append(chunk)
                if size > LARGEST_BODY:
                    raise _too_large()
                if self.kept > LARGEST_TOTAL:
                    raise unavailable("Too many large requests at once. Retry in a moment.")
                if not message.get("more_body"):
                    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        except BaseException:
            self.kept -= size
            raise

    def release(self, body: bytes) -> None:
        self.kept -= len(body)


def _too_large() -> Refusal:
    return Refusal(413, ErrorCode.PAYLOAD_TOO_LARGE, f"A request body may have {LARGEST_BODY} bytes at most.")


class Forwarder:
    """Finds the way, signs, sends, streams back."""

    def __init__(
        self,
        upstream: Upstream,
        feed: Feed,
        control: ControlPlane,
        metrics: Metrics,
        pulse: Pulse,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._upstream = upstream
        self._pulse = pulse
        self._feed = feed
        self._control = control
        self._metrics = metrics
        self._now_ms = now_ms
        self._turns = Turns()

    async def forward(
        self, request: Request, principal: Principal, plane: Plane, send: Send, extra: Headers
    ) -> int:
        """Send it on and answer the client; the status that was sent."""
        repeated = False
        untried: list[str] = []
        of: tuple[str, str] | None = None  # whose addresses they are: another cell knows not this one's key
        while True:
            way = await self._way(principal, plane, request.target)
            if not untried or of != (way.kid, way.url):
                untried, of = self._answering(way.url), (way.kid, way.url)
            address = untried.pop(0)
            try:
                async with self._pulse.awaited(address):
                    answer = await self._send(request, way, address)
                try:
                    if answer.status != 421:
                        await _stream(answer, request.method, send, extra)
                        return answer.status
                    await answer.read()
                    elsewhere = answer.says(STANDBY_HEADER)
                finally:
                    answer.close()
                if elsewhere and untried:
                    self._turns.refused(address)
                    continue
                if repeated and elsewhere:
                    raise unavailable(
                        "No region owns this tenant's cell just now. Retry soon.", retry_after_s=2
                    )
                if repeated:
                    raise unavailable("This tenant is being moved. Retry in a moment.", retry_after_s=2)
                untried = []
                await self._refresh()
            except NotConnected:
                # Nothing was sent: another process of the cell may take it.
                self._turns.refused(address)
                if untried:
                    continue
                raise unavailable("The part of Clockhouse that answers this is away. Retry soon.") from None
            except Silent:
                if untried and request.idempotent:
                    continue
                silent = "The part of Clockhouse that answers this does not respond."
                if not request.idempotent:
                    raise unknown(silent, status=504) from None
                raise unavailable(f"{silent} Asking again is safe.", retry_after_s=_SILENT_AGAIN_S) from None
            except TooSlow:
                raise unknown("No answer in time.", status=504) from None
            except Broken:
                # A kept connection may have been closed just as we wrote to it.
                if repeated or not request.idempotent:
                    raise unknown("The connection broke.", status=502) from None
            repeated = True
            self._metrics.replays.inc()

    def _answering(self, url: str) -> list[str]:
        """The addresses to try, in order, without those that are silent. Nothing is sent if all are."""
        order = self._turns.order(url)
        found = [address for address in order if address not in self._pulse.silent]
        if order and not found:
            raise unavailable(
                "The part of Clockhouse that answers this does not respond. Nothing was sent. Retry soon.",
                retry_after_s=_SILENT_AGAIN_S,
            )
        return found

    async def _send(self, request: Request, way: Way, address: str) -> Answer:
        signed = sign_request(
            kid=way.kid,
            secret=way.secret,
            now_ms=self._now_ms(),
            method=request.method,
            target=way.target,
            caller=way.caller,
        )
        headers = [*request.headers, *signed.items(), ("X-Request-Id", request.request_id)]
        if request.client:
            headers.append(("X-Forwarded-For", request.client))
        return await self._upstream.ask(address, request.method, way.target, headers, request.body)

    async def _way(self, principal: Principal, plane: Plane, target: str) -> Way:
        table = self._feed.table
        if table is None:
            raise unavailable("The router has no routing table yet.")
        if plane is Plane.MANAGEMENT:
            known = table.tenants.get(principal.tenant_id)
            return Way(
                url=self._control.base_url,
                target=canonical(target),
                kid=KID,
                secret=self._control.key,
                caller=_caller(principal, known.epoch if known else 0),
            )
        tenant, name, cell = await self._placement(principal, table)
        secret = (self._feed.table or table).cell_secret(name)
        return Way(
            url=cell.url, target=target, kid=name, secret=secret, caller=_caller(principal, tenant.epoch)
        )

    async def _placement(self, principal: Principal, table: Table) -> tuple[Tenant, str, Cell]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _HOLD_S
        while True:
            table = self._feed.table or table
            tenant = table.tenants.get(principal.tenant_id)
            if tenant is None:
                if principal.operator:
                    raise Refusal(404, ErrorCode.NOT_FOUND, "There is no such tenant.")
                raise unavailable("This tenant is not set up yet. Retry soon.", retry_after_s=5)
            cell = table.cells.get(tenant.cell) if tenant.cell else None
            if tenant.state not in HANDOFF_STATES:
                if tenant.cell is None or cell is None:
                    raise unavailable("This tenant is not placed yet. Retry soon.", retry_after_s=5)
                return tenant, tenant.cell, cell
            if loop.time() >= deadline:
                raise unavailable("This tenant is being moved. Retry in a moment.", retry_after_s=2)
            await self._refresh()
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(_REFRESH_S):
                await self._feed.refresh()
        except TimeoutError:
            return  # what the table says now has to do


def _caller(principal: Principal, epoch: int) -> Caller:
    return Caller(tenant_id=principal.tenant_id, actor=principal.actor, scopes=principal.scopes, epoch=epoch)


async def _stream(answer: Answer, method: str, send: Send, extra: Headers) -> None:
    headers = answer_headers(answer.headers)
    headers += extra
    small = answer.content_length is not None and answer.content_length <= _SMALL
    whole = await answer.read() if small or method == "HEAD" else None
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if whole is not None:
        await send({"type": "http.response.body", "body": whole})
        return
    try:
        async for chunk in answer.parts():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except (Broken, TooSlow) as fault:
        raise BrokenAnswer(repr(fault)) from fault
    await send({"type": "http.response.body", "body": b""})


def is_repeatable(method: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request may be sent twice: by its method, or because it has an idempotency key."""
    return method in _REPEATABLE or any(name == b"idempotency-key" for name, _ in headers)
