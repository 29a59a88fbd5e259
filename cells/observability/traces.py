"""Spans, sent to an OpenTelemetry collector where the environment names one.

Without `OTEL_EXPORTER_OTLP_ENDPOINT` there is no `Traces`, the SDK is not even imported, and
nothing is paid but a look at None. With it, finished spans go into a bounded buffer that a thread
of its own sends in batches over OTLP/HTTP: a slow or absent collector costs spans, never a run.
The other standard variables (`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_BSP_…`, `OTEL_RESOURCE_ATTRIBUTES`)
are read by the SDK.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from cells.domain.trace import is_sampled

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

#: How long the end of the process waits for the last batch (seconds).
_FLUSH_SECONDS = 2.0
_MS = 1_000_000  # nanoseconds

Attributes = Mapping[str, str | int | float | bool]


class Traces:
    """Records finished spans. Made by `traces_from`."""

    def __init__(self, resource: Mapping[str, str]):
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._api, self._span = trace, ReadableSpan
        self._resource = Resource.create(dict(resource))
        self._scope = InstrumentationScope("clockhouse")
        self._kinds = {"server": trace.SpanKind.SERVER, "client": trace.SpanKind.CLIENT}
        self._failed = trace.Status(trace.StatusCode.ERROR)
        self._unset = trace.Status(trace.StatusCode.UNSET)
        self._sender = BatchSpanProcessor(OTLPSpanExporter())

    def record(
        self,
        name: str,
        *,
        span: str,
        parent: str | None,
        link: str | None = None,
        kind: Literal["server", "client"],
        started_ms: float,
        ended_ms: float,
        attributes: Attributes,
        failed: bool,
    ) -> None:
        """Keep a span that is over, until it is sent. `span` is its own traceparent, made before what
        it is about began: the SDK's tracer would choose other ids and want to be there from then on.
        Times are epoch milliseconds."""
        if not is_sampled(span):
            return
        self._sender.on_end(
            self._span(
                name,
                context=self._context(span, remote=False),
                parent=None if parent is None else self._context(parent, remote=True),
                resource=self._resource,
                attributes=attributes,
                links=() if link is None else (self._api.Link(self._context(link, remote=True)),),
                kind=self._kinds[kind],
                status=self._failed if failed else self._unset,
                start_time=round(started_ms * _MS),
                end_time=round(max(started_ms, ended_ms) * _MS),
                instrumentation_scope=self._scope,
            )
        )

    async def close(self) -> None:
        """Send what is left, if the collector takes it at once."""
        # The SDK waits far longer for a collector that is away; a daemon thread may be left alone.
        sending = threading.Thread(target=self._sender.shutdown, daemon=True)
        sending.start()
        await asyncio.to_thread(sending.join, _FLUSH_SECONDS)

    def _context(self, traceparent: str, *, remote: bool) -> SpanContext:
        return self._api.SpanContext(
            int(traceparent[3:35], 16),
            int(traceparent[36:52], 16),
            remote,
            self._api.TraceFlags(int(traceparent[53:], 16)),
        )


def traces_from(env: Mapping[str, str], *, service: str, **resource: str) -> Traces | None:
    """What the environment asks for; None: no spans. `resource` is said of every span."""
    if not (env.get("OTEL_EXPORTER_OTLP_ENDPOINT") or env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")):
        return None
    if env.get("OTEL_SDK_DISABLED", "").lower() == "true" or env.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    return Traces({"service.name": env.get("OTEL_SERVICE_NAME") or service, **resource})
