"""When a failed attempt is tried again: exponential backoff with full jitter."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from cells.domain.job import RetryPolicy

#: No target may push a retry further away than this (milliseconds).
MAX_RETRY_AFTER_MS = 24 * 3_600_000


def backoff_ms(policy: RetryPolicy, attempt: int) -> int:
    """The longest wait after attempt number `attempt` (1, 2, ...), in milliseconds."""
    # 2^64 is beyond every cap; a larger exponent would overflow the float.
    doubled = policy.initial_backoff_seconds * 2.0 ** min(max(attempt - 1, 0), 64)
    return int(min(policy.max_backoff_seconds, doubled) * 1000)


def next_attempt(
    policy: RetryPolicy, attempt: int, *, rand: float, retry_after_ms: int | None = None
) -> int | None:
    """Milliseconds to wait after attempt number `attempt` failed; None if it was the last.
    `max_attempts` 0 has no last one.

    Full jitter: anything between nothing and the backoff, so that what failed together does
    not come back together. `rand` is in [0, 1). A target's Retry-After is a lower bound, to
    which the jitter is added for the same reason.
    """
    if 0 < policy.max_attempts <= attempt:
        return None
    jitter = int(rand * backoff_ms(policy, attempt))
    if retry_after_ms is None:
        return jitter
    return min(max(retry_after_ms, 0), MAX_RETRY_AFTER_MS) + jitter


def parse_retry_after(text: str, now: datetime) -> int | None:
    """Milliseconds that a Retry-After header asks for (seconds or an HTTP date), None if it
    is neither. A date in the past asks for nothing: 0."""
    value = text.strip()
    if not value or not value.isascii():
        return None
    if value.isdigit():
        return min(int(value[:10]) * 1000, MAX_RETRY_AFTER_MS)
    try:
        at = parsedate_to_datetime(value)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        wait = (at - now).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0, round(wait * 1000)), MAX_RETRY_AFTER_MS)
