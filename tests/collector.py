"""A collector of OpenTelemetry spans: OTLP over HTTP, protobuf, on a free port of 127.0.0.1."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """Keeps the spans it was sent."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Span] = []
        self.resources: list[dict[str, str]] = []

    def take(self, path: str, body: bytes) -> None:
        """One request of an exporter."""
        assert path == "/v1/traces", path
        for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append({a.key: a.value.string_value for a in sent.resource.attributes})
            for scope in sent.scope_spans:
                self.spans.extend(scope.spans)

    def of_kind(self, kind: Any) -> list[Span]:
        """Spans of a kind, the earliest first."""
        return sorted((s for s in self.spans if s.kind == kind), key=lambda s: s.start_time_unix_nano)


def attributes(span: Span) -> dict[str, str | int]:
    """A span's attributes that are texts or whole numbers."""
    return {
        a.key: a.value.string_value if a.value.HasField("string_value") else a.value.int_value
        for a in span.attributes
    }


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector, until the end of the block."""
    made = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            made.take(self.path, body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Nothing: what matters is what it kept."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    serving = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    serving.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
