"""The span of a request: from the caller's, to what the request starts."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.types import Scope

from cells.domain.trace import context_of, first_span, span_in, state_of, trace_id, well_formed
from cells.records import Claim
from cells.spans import attempt_span, attempt_state

if TYPE_CHECKING:
    from cells.api.services import Services

_random = random.Random()  # ids of spans need no secrecy


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A request under way."""

    traceparent: str
    parent: str | None  # the caller's, where it sent one
    began_ms: int


def of_caller(scope: Scope) -> str | None:
    """The caller's `traceparent`, if it is well formed."""
    for name, value in scope["headers"]:
        if name == b"traceparent":
            return well_formed(str(value, "latin-1"))
    return None


def kept_of(scope: Scope, span: str | None) -> str | None:
    """What is kept of a request for the runs it starts: `span`, else the caller's; with the caller's
    tracestate, which is nothing without a traceparent."""
    caller = of_caller(scope)
    if caller is None:
        return span
    state = state_of(str(value, "latin-1") for name, value in scope["headers"] if name == b"tracestate")
    return context_of(span or caller, state)


def trace_of(scope: Scope) -> str | None:
    """The id of the caller's trace, for logs."""
    caller = of_caller(scope)
    return None if caller is None else trace_id(caller)


def of_attempt(claim: Claim, run_id: str) -> tuple[str, str | None]:
    """`traceparent` and `tracestate` for the work of a worker that has polled a task."""
    return attempt_span(claim, run_id, _random.getrandbits(64)), attempt_state(claim)


def begin(scope: Scope, services: Services) -> Span:
    """A span of its own for a request, in the caller's trace if there is one."""
    caller, bits = of_caller(scope), _random.getrandbits(64)
    return Span(
        traceparent=first_span(_random.getrandbits(128), bits) if caller is None else span_in(caller, bits),
        parent=caller,
        began_ms=services.clock.now_ms(),
    )


def end(span: Span, scope: Scope, services: Services, route: str, status: int) -> None:
    """The request was answered."""
    if services.traces is None:
        return
    services.traces.record(
        f"{scope['method']} {route}",
        span=span.traceparent,
        parent=span.parent,
        kind="server",
        started_ms=span.began_ms,
        ended_ms=services.clock.now_ms(),
        attributes={
            "http.request.method": scope["method"],
            "http.route": route,
            "http.response.status_code": status,
        },
        failed=status >= 500,
    )
