"""W3C trace context: reading a `traceparent` and a `tracestate`, and making those of a new span. Pure.

Where a span is kept for later, its tracestate stands behind it, after a space: one is nothing without
the other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

_FORM = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_SAMPLED = "01"
#: What tracing systems keep of their own: `key=value`, the key perhaps `tenant@system`.
_MEMBER = re.compile(
    r"[a-z0-9][a-z0-9_\-*/@]{0,255}="
    r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_MOST_MEMBERS = 32
_MOST_CHARACTERS = 512


def well_formed(header: str | None) -> str | None:
    """A header, if it is well formed; W3C says to ignore one that is not."""
    return header if header is not None and _FORM.fullmatch(header) else None


def state_of(headers: Iterable[str]) -> str | None:
    """The `tracestate` that some headers make together: at most 32 members in 512 characters, the newest
    (the first) of them. None if there is none, or a member is malformed: then W3C says to drop all."""
    members = [member.strip(" \t") for header in headers for member in header.split(",")]
    members = [member for member in members if member]
    if not all(_MEMBER.fullmatch(member) for member in members):
        return None
    kept: list[str] = []
    size = -1
    for member in members[:_MOST_MEMBERS]:
        size += 1 + len(member)
        if size > _MOST_CHARACTERS:
            break
        kept.append(member)
    return ",".join(kept) or None


def context_of(traceparent: str | None, tracestate: str | None) -> str | None:
    """A span with its tracestate, as they are kept."""
    return traceparent if traceparent is None or not tracestate else f"{traceparent} {tracestate}"


def span_of(context: str | None) -> str | None:
    """The `traceparent` of what is kept, if it is well formed."""
    return None if context is None else well_formed(context.partition(" ")[0])


def tracestate_of(context: str | None) -> str | None:
    """The `tracestate` of what is kept."""
    return None if span_of(context) is None else (context or "").partition(" ")[2] or None


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
