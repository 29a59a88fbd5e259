"""The span of a forwarded request: between the caller's and that of whoever answers it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cells.domain.trace import first_span, span_in, well_formed
from cells.observability.traces import Traces

_TRACEPARENT = "traceparent"


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A request under way."""

    traceparent: str
    parent: str | None  # the caller's, where it sent one
    began_ms: int

    def instead_in(self, headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """The headers that go on: this span in the place of the caller's, whose tracestate goes with it."""
        gone = {_TRACEPARENT} if self.parent is not None else {_TRACEPARENT, "tracestate"}
        kept = [(name, value) for name, value in headers if name.lower() not in gone]
        return [*kept, (_TRACEPARENT, self.traceparent)]


class Spans:
    """Begins and records them, where the environment names a collector. Without one nothing is made."""

    def __init__(self, traces: Traces, *, now_ms: Callable[[], int]) -> None:
        self._traces = traces
        self._now_ms = now_ms
        self._random = random.Random()  # ids of spans need no secrecy

    def begin(self, headers: Iterable[tuple[bytes, bytes]]) -> Span:
        """A span in the caller's trace, or in a new one."""
        sent = next((value for name, value in headers if name == b"traceparent"), None)
        parent = None if sent is None else well_formed(sent.decode("latin-1"))
        bits = self._random.getrandbits(64)
        made = first_span(self._random.getrandbits(128), bits) if parent is None else span_in(parent, bits)
        return Span(traceparent=made, parent=parent, began_ms=self._now_ms())

    def end(self, span: Span, *, method: str, plane: str, status: int, request_id: str) -> None:
        """The request was answered. Paths are not said: they hold the tenant's names."""
        self._traces.record(
            f"{method} {plane}",
            span=span.traceparent,
            parent=span.parent,
            kind="server",
            started_ms=span.began_ms,
            ended_ms=self._now_ms(),
            attributes={
                "http.request.method": method,
                "http.response.status_code": status,
                "clockhouse.plane": plane,
                "clockhouse.request": request_id,
            },
            failed=status >= 500,
        )
