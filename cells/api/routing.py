"""Routes: FastAPI's signatures and OpenAPI document, with a lean way from request to function.

A route function takes the `Call`, its path parameters, and optionally a `query` and a `body`
model, as FastAPI describes them. But the work between request and function is done here: scope,
placement, reading with all faults at once, and the table from exceptions to problems. That is
a third of the time the general machinery takes, and the rules hold for each route alike.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import FastAPI
from fastapi.routing import APIRoute
from prometheus_client import Counter
from pydantic import BaseModel
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from cells.api import pagination, problems, reading, tracing
from cells.api.spread.asked import Asked
from cells.contract import Caller, ErrorCode, Scope, allows
from cells.domain import ids
from cells.domain.job import STRICT
from cells.ports import Fence, Retryable, TenantPlacement

if TYPE_CHECKING:
    import uuid

    from cells.api.services import Services

#: Where `auth.Gate` leaves what it found.
CALLER, BODY = "clockhouse.caller", "clockhouse.body"

#: States in which a tenant is answered here, and in which its runs may still end here.
_AT_HOME = ("ACTIVE", "SUSPENDED")
_AT_WORK = ("ACTIVE", "SUSPENDED", "BARRIER")

_encode = msgspec.json.Encoder().encode
Endpoint = Callable[..., Awaitable[Response]]


class _Name(Convertor[str]):
    """A path parameter that ends where a `:verb` begins."""

    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class _RunName(_Name):
    """A run id: it holds colons, each before a number (`…T00:00:00Z:2`)."""

    regex = "[^/:]+(?::-?[0-9][^/:]*)*"


class _Key(_Name):
    """The rest of the path, whatever it holds: a key that a client chose."""

    regex = r"[\s\S]+"


register_url_convertor("name", _Name())
register_url_convertor("key", _Key())
register_url_convertor("run", _RunName())


class Call(Request):
    """One authenticated request."""

    services: Services
    tenant: TenantPlacement  # only on routes that concern a tenant
    payload: bytes | None = None  # taken out of the body, where its model has one
    span: tracing.Span | None = None  # where spans are collected
    strict: bool = False  # what it writes is acknowledged once another region has it

    @property
    def caller(self) -> Caller:
        """Whom it speaks for."""
        caller: Caller = self.scope[CALLER]
        return caller

    @property
    def raw_body(self) -> bytes:
        """The body as it came."""
        body: bytes = self.scope[BODY]
        return body

    @property
    def tenant_id(self) -> uuid.UUID:
        """The tenant it concerns."""
        return self.tenant.tenant_id

    @property
    def fence(self) -> Fence:
        """The ownership its writes act under."""
        return Fence(tenant_id=self.tenant.tenant_id, epoch=self.tenant.ownership_epoch)

    @property
    def traceparent(self) -> str | None:
        """The span that what it starts belongs to, its own or else the caller's, with its tracestate."""
        return tracing.kept_of(self.scope, self.span.traceparent if self.span is not None else None)

    def fields(self, *, optional: bool = False) -> reading.Fields:
        """The members of its body, unread."""
        return reading.read_fields(self.raw_body, optional=optional)

    def may(self, scope: Scope) -> bool:
        """Whether its caller holds a scope."""
        return allows(self.caller.scopes, scope)

    def concerns(self, region_policy: str) -> None:
        """What it writes is a thing of that region policy. Said before the first answer that is a success,
        repeats and what is unchanged included: an earlier answer may have been that nobody confirmed it."""
        if region_policy == STRICT:
            self.strict = True

    def header(self, name: bytes) -> str | None:
        """The first header of that lower-case name."""
        for key, value in self.scope["headers"]:
            if key == name:
                return str(value, "latin-1")
        return None


def answer(
    document: Any, status: int = 200, headers: dict[str, str] | None = None, *, encoded: bool = False
) -> Response:
    """A JSON answer. `encoded`: the document is bytes already."""
    return Response(
        document if encoded else _encode(document), status, headers=headers, media_type="application/json"
    )


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What holds for a route before its function is called."""

    scope: Scope
    writes: bool = False
    #: It reports on what is under way: a fact, which a tenant that takes nothing new may still report.
    facts: bool = False
    body_optional: bool = False
    internal: bool = False  # about no tenant; for the control plane
    #: Finds faults that the body's model knows nothing of. It is asked only where something is wrong
    #: already, so that the answer is complete.
    also: Callable[[Call, reading.Fields], Awaitable[list[problems.Fault]]] | None = None


@dataclass
class Routes:
    """The routes of one resource, in the order they are tried."""

    tag: str
    _list: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        method: str,
        path: str,
        rule: Rule,
        *,
        answers: dict[int, tuple[str, type[BaseModel] | None]],
        problems: tuple[int, ...] = (),
        patch: type[BaseModel] | None = None,
        body: type[BaseModel] | None = None,
        idempotent: bool = False,
        etag: bool = False,
        text: bool = False,
        plain: bool = False,
    ) -> Callable[[Endpoint], Endpoint]:
        """Decorate a route function. `answers` are the good ones, with description and shape;
        `problems` the statuses beyond those every route may answer. `patch` documents a merge
        patch and `body` a body that the function reads itself; `idempotent` the Idempotency-Key
        header; `etag` If-Match; `text` a body that is a text, YAML or JSON; `plain` a good answer that
        is a text."""

        def decorate(function: Endpoint) -> Endpoint:
            self._list.append(
                {
                    "method": method,
                    "path": path,
                    "rule": rule,
                    "function": function,
                    "answers": answers,
                    "problems": problems,
                    "patch": patch,
                    "body": body,
                    "idempotent": idempotent,
                    "etag": etag,
                    "text": text,
                    "plain": plain,
                }
            )
            return function

        return decorate

    def install(self, app: FastAPI, services: Services) -> None:
        """Put the routes into an application."""
        from cells.api.openapi import operation

        for route in self._list:
            rule: Rule = route["rule"]
            kind = type("BoundRoute", (_Route,), {"services": services, "rule": rule})
            app.router.add_api_route(
                route["path"],
                route["function"],
                methods=[route["method"]],
                route_class_override=kind,
                include_in_schema=not rule.internal,
                tags=[self.tag],
                **operation(route),
            )


class _Route(APIRoute):
    """A route under a rule."""

    services: Services
    rule: Rule

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        from cells.api.spread.dispatch import spread

        services, rule = self.services, self.rule
        function: Endpoint = self.endpoint
        dependant = self.dependant
        query_model = _model(dependant.query_params)
        body_model = _model(dependant.body_params)
        has_payload = body_model is not None and "payload" in body_model.model_fields
        method = next(iter(self.methods or {"GET"}))
        duration = services.requests.labels(self.path_format, method)

        @functools.cache
        def answered(status: int) -> Counter:
            return services.answers.labels(self.path_format, method, str(status))

        async def handle(request: Request) -> Response:
            started = time.perf_counter()
            call = Call(request.scope, request.receive)
            call.services = services
            if services.traces is not None and not rule.internal:
                call.span = tracing.begin(call.scope, services)
            status = 500
            try:
                await admit(call, rule)
                given: dict[str, Any] = dict(call.scope["path_params"])
                if query_model is not None:
                    given["query"] = reading.read_query(call.scope["query_string"], query_model)
                elif call.scope["query_string"]:
                    reading.read_query(call.scope["query_string"], _NoQuery)
                if body_model is not None:
                    fields = call.fields(optional=rule.body_optional)
                    if has_payload:
                        call.payload = reading.take_payload(fields)
                    given["body"] = await _read_body(call, fields, body_model, rule)
                if services.elsewhere is None or rule.internal:
                    response = await function(call, **given)
                else:
                    asked = Asked(
                        call=call,
                        method=method,
                        path_format=self.path_format,
                        own=function,
                        given=given,
                        elsewhere=services.elsewhere,
                    )
                    response = await spread(asked)
                if call.strict and rule.writes and response.status_code < 300:
                    await _acknowledged(services)
                status = response.status_code
                return response
            except Exception as error:
                problem = problems.of_exception(error)
                if problem is None:
                    raise
                status = problem.status
                if status == 421:
                    problem.extra |= services.placements.known(call.caller.tenant_id)
                return problem.response(call.scope)
            finally:
                duration.observe(time.perf_counter() - started)
                answered(status).inc()
                if call.span is not None:
                    tracing.end(call.span, call.scope, services, self.path_format, status)

        return handle


async def _acknowledged(services: Services) -> None:
    """Returns once another region has all that was written here. The log has one order: so it does not
    matter who wrote it, or whether the request itself did."""
    try:
        await services.store.confirm()
    except Retryable as fault:  # whatever the reason: it is done here, and known nowhere else
        raise problems.unconfirmed(fault) from fault


async def _read_body(call: Call, fields: reading.Fields, model: type[BaseModel], rule: Rule) -> BaseModel:
    try:
        return reading.read_model(fields, model)
    except problems.Problem as problem:
        if rule.also is None:
            raise
        refused = problem
    raise refused.and_more(await rule.also(call, fields))


class _NoQuery(BaseModel):
    model_config = {"extra": "forbid"}


def _model(fields: list[Any]) -> Any:
    return fields[0].field_info.annotation if fields else None


async def admit(call: Call, rule: Rule) -> None:
    """Let a call through if its caller holds the scope and its tenant is at home here."""
    caller = call.caller
    if not allows(caller.scopes, rule.scope):
        needed = rule.scope.value
        raise problems.Problem(
            403, ErrorCode.FORBIDDEN, f"This needs the scope {needed}.", extra={"needed_scope": needed}
        )
    if rule.internal:
        return
    tenant_id = ids.decode(ids.TENANT, caller.tenant_id)
    if tenant_id is None:
        raise problems.malformed("The request names no tenant: an operator's key needs X-Tenant-Id.")
    tenant = await call.services.placements.get(tenant_id, at_least=caller.epoch)
    if tenant is None or tenant.state not in (_AT_WORK if rule.facts else _AT_HOME):
        if await call.services.store.is_erased(tenant_id):
            raise problems.erased()
        raise problems.Problem(421, ErrorCode.NOT_OWNER, "The tenant is not placed here.")
    if tenant.state == "SUSPENDED" and rule.writes and not rule.facts:
        raise problems.Problem(403, ErrorCode.FORBIDDEN, "The tenant is suspended: it can be read only.")
    call.tenant = tenant


def page(
    items: list[Any], *, path: str, filters: Mapping[str, Any], limit: int, cursor: str | None
) -> Response:
    """One page of a list, with the way to the next."""
    return answer(
        {"items": items, "next_cursor": cursor},
        headers=pagination.next_link(path, filters, limit, cursor),
    )
