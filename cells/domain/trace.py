"""W3C trace context: reading a `traceparent`, and making that of a new span. Pure."""

from __future__ import annotations

import hashlib
import re

_FORM = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_SAMPLED = "01"


def well_formed(header: str | None) -> str | None:
    """A header, if it is well formed; W3C says to ignore one that is not."""
    return header if header is not None and _FORM.fullmatch(header) else None


def is_sampled(traceparent: str) -> bool:
    """Whether whoever began the trace wants its spans kept."""
    return bool(int(traceparent[53:], 16) & 1)


def trace_id(traceparent: str) -> str:
    """The trace's 32 hexadecimal digits."""
    return traceparent[3:35]


def span_in(parent: str, span: int) -> str:
    """A new span in the trace of `parent`. `span` is 64 random bits."""
    return f"00-{parent[3:35]}-{span or 1:016x}-{parent[53:]}"


def span_of_run(run_id: str, span: int) -> str:
    """A new span in the trace of a run's own, the same for all its attempts."""
    trace = hashlib.blake2b(run_id.encode(), digest_size=16, person=b"ch-trace").hexdigest()
    return f"00-{trace}-{span or 1:016x}-{_SAMPLED}"


def first_span(trace: int, span: int) -> str:
    """The first span of a new trace. `trace` is 128 random bits."""
    return f"00-{trace or 1:032x}-{span or 1:016x}-{_SAMPLED}"
