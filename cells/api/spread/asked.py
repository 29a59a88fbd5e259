"""A request on its way to the stores it concerns."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.responses import Response

from cells.api.problems import Problem
from cells.contract import ErrorCode
from cells.domain import ids
from cells.observability.logs import logger
from cells.stores.elsewhere import Elsewhere
from cells.stores.link import Reply, Unreachable
from cells.stores.registry import LocalStore

if TYPE_CHECKING:
    from cells.api.routing import Call

log = logger(__name__)

#: Where `auth.Gate` leaves the body.
BODY = "clockhouse.body"

#: What of a request goes along; the rest is the router's and ours.
_ALONG = (
    b"content-type",
    b"idempotency-key",
    b"if-match",
    b"if-none-match",
    b"traceparent",
    b"tracestate",
    b"x-request-id",
)
#: What of an answer comes back.
_BACK = (
    "Content-Type",
    "ETag",
    "Location",
    "Link",
    "Retry-After",
    "Idempotency-Replayed",
    "WWW-Authenticate",
)
_AGAIN_SECONDS = "5"
#: What a store says that has nothing of what a request chooses.
_NOTHING_HERE = (ErrorCode.NOT_FOUND, ErrorCode.CONFLICT)


def home_region_down(fault: Unreachable) -> Problem:
    """503: what is kept in one region alone cannot be had while that region is away."""
    region = fault.store.region
    log.info("a local store does not answer", region=region, store=fault.store.number, fault=str(fault))
    return Problem(
        503,
        ErrorCode.HOME_REGION_DOWN,
        f"This is kept in the region {region} alone, which does not answer. It goes on there by itself once"
        " the region is back; repeat the request then, a creating one with the same Idempotency-Key.",
        extra={"region": region},
        headers={"Retry-After": _AGAIN_SECONDS},
    )


@dataclass(kw_only=True)
class Asked:
    """One request, what its route makes of it here, and the way to other stores."""

    call: Call
    method: str
    path_format: str
    own: Callable[..., Awaitable[Response]]
    given: dict[str, Any]
    elsewhere: Elsewhere
    #: Regions that did not answer, where the answer is worth something without them.
    silent: list[str] = field(default_factory=list)

    async def here(self, **changed: Any) -> Response:
        """What this store answers."""
        return await self.own(self.call, **(self.given | changed))

    async def with_body(self, body: bytes) -> Response:
        """What this store answers to another body; the route reads it by itself, before it waits."""
        scope, whole = self.call.scope, self.call.raw_body
        scope[BODY] = body
        try:
            return await self.here()
        finally:
            scope[BODY] = whole

    async def here_or_nothing(self) -> Response | None:
        """What this store answers; None where it has no such thing."""
        try:
            return await self.here()
        except Problem as problem:
            if problem.status == 404:
                return None
            raise

    async def here_or_refusal(self) -> Response | Problem:
        """What this store answers; the refusal where there is nothing here that it concerns."""
        try:
            return await self.here()
        except Problem as problem:
            if problem.code in _NOTHING_HERE:
                return problem
            raise

    @staticmethod
    def has_nothing(reply: Reply) -> bool:
        """Whether another store answers that there is nothing there that it concerns."""
        return reply.status in (404, 409) and msgspec.json.decode(reply.body).get("code") in _NOTHING_HERE

    async def used(self, *, now_known: bool = False) -> Sequence[LocalStore]:
        """The other stores that may hold rows of the tenant, as known a moment ago, or just now."""
        return await self.elsewhere.used_by(self.call.tenant_id, now_known=now_known)

    async def ask(
        self, store: LocalStore, *, query: Mapping[str, str | None] | None = None, body: bytes | None = None
    ) -> Reply:
        """What another store answers to the same request, perhaps with other parts; `Unreachable`."""
        scope = self.call.scope
        target = scope["raw_path"].decode("latin-1")
        text = scope["query_string"].decode("latin-1")
        if query is not None:
            asked = [pair for pair in parse_qsl(text, keep_blank_values=True) if pair[0] not in query]
            asked += [(name, value) for name, value in query.items() if value is not None]
            text = urlencode(asked)
        if text:
            target += "?" + text
        along = {
            str(name, "ascii"): str(value, "latin-1") for name, value in scope["headers"] if name in _ALONG
        }
        return await self.elsewhere.send(
            store,
            self.method,
            target,
            self.call.caller,
            headers=along,
            body=self.call.raw_body if body is None else body,
        )

    async def there(self, store: LocalStore) -> Response:
        """The answer of another store, as it is."""
        try:
            return response_of(await self.ask(store))
        except Unreachable as fault:
            raise home_region_down(fault) from fault


def response_of(reply: Reply) -> Response:
    """A store's answer, on its way to whoever asked."""
    kept = {name: reply.headers[name] for name in _BACK if name in reply.headers}
    return Response(reply.body, reply.status, headers=kept)


def document_of(response: Response) -> Any:
    """The JSON that an answer holds."""
    return msgspec.json.decode(bytes(response.body))


def store_named(text: str) -> int | None:
    """The number of the store that an id of ours names; None for what is no such id."""
    key = ids.parse_run_id(text)
    if key is not None:
        return ids.store_of(key.parent_id)
    value = typeid(text)
    return None if value is None else ids.store_of(value)


def typeid(text: str) -> uuid.UUID | None:
    """The uuid of any id of ours, version 8 or that of an execution."""
    value = ids.decode(text.rpartition("_")[0], text)
    return value if value is not None and value.int >> 76 & 0xF in (7, 8) else None
