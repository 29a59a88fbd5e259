"""Backoff and Retry-After."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.domain.job import RetryPolicy
from cells.domain.retry import MAX_RETRY_AFTER_MS, backoff_ms, next_attempt, parse_retry_after

NOW = datetime(2026, 9, 28, 12, tzinfo=UTC)
POLICY = RetryPolicy(max_attempts=5, initial_backoff_seconds=10, max_backoff_seconds=60)


def test_the_bound_doubles_up_to_the_cap() -> None:
    assert [backoff_ms(POLICY, n) for n in range(1, 7)] == [10_000, 20_000, 40_000, 60_000, 60_000, 60_000]
    assert backoff_ms(POLICY, 10**9) == 60_000


def test_full_jitter() -> None:
    assert next_attempt(POLICY, 2, rand=0.0) == 0
    assert next_attempt(POLICY, 2, rand=0.5) == 10_000


def test_the_last_attempt_is_the_last() -> None:
    assert next_attempt(POLICY, 4, rand=0.5) == 30_000
    assert next_attempt(POLICY, 5, rand=0.5) is None
    assert next_attempt(POLICY, 5, rand=0.5, retry_after_ms=1000) is None


def test_retry_after_is_a_lower_bound() -> None:
    assert next_attempt(POLICY, 1, rand=0.0, retry_after_ms=90_000) == 90_000
    assert next_attempt(POLICY, 1, rand=0.5, retry_after_ms=90_000) == 95_000
    assert next_attempt(POLICY, 1, rand=0.0, retry_after_ms=10**12) == MAX_RETRY_AFTER_MS


@given(
    attempt=st.integers(1, 10**6),
    rand=st.floats(0, 1, exclude_max=True),
    retry_after=st.none() | st.integers(-(10**12), 10**12),
    initial=st.floats(0, 900),
    cap=st.floats(0, 900),
)
def test_a_wait_is_inside_its_bounds(
    attempt: int, rand: float, retry_after: int | None, initial: float, cap: float
) -> None:
    policy = RetryPolicy(max_attempts=10**7, initial_backoff_seconds=initial, max_backoff_seconds=cap)
    wait = next_attempt(policy, attempt, rand=rand, retry_after_ms=retry_after)
    assert wait is not None
    asked = min(max(retry_after or 0, 0), MAX_RETRY_AFTER_MS)
    assert asked <= wait <= asked + 900_000


@pytest.mark.parametrize(
    ("text", "wait_ms"),
    [
        ("0", 0),
        ("120", 120_000),
        (" 120 ", 120_000),
        ("9" * 300, MAX_RETRY_AFTER_MS),
        ("Mon, 28 Sep 2026 12:01:30 GMT", 90_000),
        ("Mon, 28 Sep 2026 14:01:30 +0200", 90_000),
        ("Mon, 28 Sep 2026 11:59:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER_MS),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("١٢", None),
        ("Mon, 99 Sep 2026 12:01:30 GMT", None),
        ("Mon, 28 Sep 999999999999 12:01:30 GMT", None),
    ],
)
def test_retry_after(text: str, wait_ms: int | None) -> None:
    assert parse_retry_after(text, NOW) == wait_ms


@given(st.text(max_size=60))
def test_any_retry_after_is_read_or_ignored(text: str) -> None:
    wait = parse_retry_after(text, NOW)
    assert wait is None or 0 <= wait <= MAX_RETRY_AFTER_MS
