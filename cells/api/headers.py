"""Which headers a job may add to its calls (RFC 9110), and which are ours. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

COUNT_LIMIT = 32
#: Names and values together, in characters.
SIZE_LIMIT = 8192

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
#: ASCII only: what the far end makes of other octets is anybody's guess.
_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?|")

#: Set by the executor or by HTTP itself.
RESERVED = frozenset(
    {
        "host",
        "content-length",
        "content-encoding",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "proxy-authorization",
        "proxy-authenticate",
        "proxy-connection",
        "http2-settings",
        "idempotency-key",
        "x-fencing-token",
        "traceparent",
        "tracestate",
    }
)
RESERVED_PREFIXES = ("webhook-", "x-clockhouse-")


def header_faults(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """What is wrong with a job's headers: (name, sentence); an empty name concerns them all."""
    faults: list[tuple[str, str]] = []
    if len(headers) > COUNT_LIMIT:
        faults.append(("", f"has more than {COUNT_LIMIT} members"))
    if sum(len(name) + len(value) for name, value in headers.items()) > SIZE_LIMIT:
        faults.append(("", f"is longer than {SIZE_LIMIT} characters in all"))
    seen: set[str] = set()
    for name, value in headers.items():
        lower = name.lower()
        if not _TOKEN.fullmatch(name):
            faults.append((name, "is no header name"))
        elif lower in RESERVED or lower.startswith(RESERVED_PREFIXES):
            faults.append((name, "is set by Clockhouse or by HTTP itself"))
        elif lower in seen:
            faults.append((name, "is there twice"))
        elif not _VALUE.fullmatch(value):
            faults.append((name, "is no header value: printable ASCII, no space at either end"))
        seen.add(lower)
    return faults
