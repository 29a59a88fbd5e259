"""What an answer of a target means, and which failures are alike."""

from __future__ import annotations

import enum
import hashlib
import re

from cells.domain.run import RESULT_LIMIT, AttemptOutcome


class CallError(enum.StrEnum):
    """Why a call has no HTTP answer. Stored as `attempt.error`, sometimes with `: detail`."""

    TIMEOUT = "timeout"  # no complete answer within the target's timeout
    CONNECTION = "connection failed"  # refused, reset, unreachable
    NAME = "name does not resolve"  # DNS
    TLS = "TLS failed"  # certificate or handshake
    PROTOCOL = "not HTTP"  # the answer could not be read
    BLOCKED = "address not allowed"  # the egress guard refused the resolved address
    TARGET = "target not usable"  # deleted, disabled or never approved
    RESULT = "result too long"  # a workflow's step was done, and answered more than is kept


#: Errors that a retry would only repeat: our own rules forbid the call, or what it answered.
_TERMINAL_ERRORS = (CallError.BLOCKED, CallError.TARGET, CallError.RESULT)
#: The error of a step that answered more than its workflow may keep.
RESULT_TOO_LONG = (
    f"{CallError.RESULT}: a step of a workflow may answer {RESULT_LIMIT} bytes "
    f"({RESULT_LIMIT // 1024} KiB) at most"
)
_RETRYABLE_STATUSES = frozenset({408, 425, 429})


def classify(status: int | None, error: str | None) -> AttemptOutcome:
    """Success is 2xx. Retryable: 408, 425, 429, 5xx and no answer. The rest, redirects
    included, fails at once. An error outweighs a status (the answer broke off)."""
    if error is not None:
        terminal = error.startswith(_TERMINAL_ERRORS)
        return AttemptOutcome.TERMINAL if terminal else AttemptOutcome.RETRYABLE
    if status is None:
        return AttemptOutcome.RETRYABLE
    if 200 <= status <= 299:
        return AttemptOutcome.SUCCEEDED
    if status in _RETRYABLE_STATUSES or 500 <= status <= 599:
        return AttemptOutcome.RETRYABLE
    return AttemptOutcome.TERMINAL


_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TYPEID = re.compile(r"\b([a-z]{2,8})_[0-9a-hjkmnp-tv-z]{26}\b")
_HEX = re.compile(r"\b0x[0-9a-f]+\b|\b(?=[a-f]*[0-9])[0-9a-f]{8,}\b")
_NUMBER = re.compile(r"\d+")
_SPACE = re.compile(r"\s+")


def normalise_error(error: str) -> str:
    """An error without what differs from one run to the next: ids, numbers, spacing, case."""
    text = error[:1000].lower()
    text = _UUID.sub("<id>", text)
    text = _TYPEID.sub(r"\1_<id>", text)
    text = _HEX.sub("<id>", text)
    text = _NUMBER.sub("<n>", text)
    return _SPACE.sub(" ", text).strip()[:200]


#: What stands for the error in the fingerprint of a run that ended because its holder died, by its state.
HOLDER_DIED = {"FAILED": "poison", "UNKNOWN": "unknown"}


def fingerprint(target_id: str | None, status: int | None, error: str | None) -> str:
    """Equal for failures that have the same cause as far as we can see: target, status and
    normalised error. 16 hex digits."""
    parts = (target_id or "", str(status or ""), normalise_error(error or ""))
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8, person=b"ch-fail").hexdigest()
