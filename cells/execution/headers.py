"""The headers of one call. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from multidict import CIMultiDict, istr

from cells.contract import (
    ATTEMPT_HEADER,
    COMPENSATES_HEADER,
    FENCING_TOKEN_HEADER,
    IDEMPOTENCY_KEY_HEADER,
)

_IDEMPOTENCY_KEY = istr(IDEMPOTENCY_KEY_HEADER)
_FENCING_TOKEN = istr(FENCING_TOKEN_HEADER)
_ATTEMPT = istr(ATTEMPT_HEADER)
_COMPENSATES = istr(COMPENSATES_HEADER)
_WEBHOOK_ID = istr("webhook-id")
_WEBHOOK_TIMESTAMP = istr("webhook-timestamp")
_WEBHOOK_SIGNATURE = istr("webhook-signature")
_TRACEPARENT = istr("traceparent")
_TRACESTATE = istr("tracestate")

#: What a job's own headers may not set: how the message is framed, and what is set here.
RESERVED = frozenset(
    name.lower()
    for name in (
        "Host", "Content-Length", "Transfer-Encoding", "Content-Encoding", "Connection", "Keep-Alive",
        "Upgrade", "TE", "Trailer", "Expect", "Proxy-Authorization", "Proxy-Connection",
        _IDEMPOTENCY_KEY, _FENCING_TOKEN, _ATTEMPT, _COMPENSATES, _WEBHOOK_ID, _WEBHOOK_TIMESTAMP,
        _WEBHOOK_SIGNATURE, _TRACEPARENT, _TRACESTATE,
    )
)  # fmt: skip


def call_headers(
    template: CIMultiDict[str],
    own: Mapping[str, str],
    *,
    run_id: str,
    epoch: int,
    attempt: int,
    timestamp: str,
    signature: str,
    traceparent: str,
    tracestate: str = "",
    compensates: str = "",
) -> CIMultiDict[str]:
    """The target's template, the job's own headers where they take nobody's place, and ours."""
    headers = template.copy()
    for name, value in own.items():
        if name.lower() not in RESERVED and name not in template:
            headers[name] = value
    headers[_IDEMPOTENCY_KEY] = run_id
    headers[_FENCING_TOKEN] = str(epoch)
    headers[_ATTEMPT] = str(attempt)
    if compensates:
        headers[_COMPENSATES] = compensates
    headers[_WEBHOOK_ID] = run_id
    headers[_WEBHOOK_TIMESTAMP] = timestamp
    if signature:
        headers[_WEBHOOK_SIGNATURE] = signature
    headers[_TRACEPARENT] = traceparent
    if tracestate:
        headers[_TRACESTATE] = tracestate
    return headers
