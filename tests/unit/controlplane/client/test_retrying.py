"""When a request is sent again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.client import calls
from controlplane.client.errors import (
    ApiError,
    ClockhouseError,
    QuotaExceeded,
    TransportError,
    Unavailable,
    UnexpectedAnswer,
)
from controlplane.client.retrying import NEVER, Retries, may_repeat
from controlplane.client.wire import Call

SAFE: Call[object] = calls.get_job("job_1")
UNSAFE: Call[object] = calls.edit_job("job_1", {})


def api(status: int, code: str = "X", retry_after: float | None = None) -> ApiError:
    kind = QuotaExceeded if status == 429 else Unavailable if status > 500 else ApiError
    return kind(status=status, code=code, detail="d", retry_after=retry_after)


@pytest.mark.parametrize(
    ("error", "safe", "unsafe"),
    [
        (TransportError("reset"), True, False),
        (TransportError("refused", sent=False), True, True),
        (api(429), True, True),
        (api(502), True, False),
        (api(503), True, False),
        (api(504), True, False),
        (api(500), False, False),
        (api(409), False, False),
        (api(409, "IDEMPOTENCY_IN_PROGRESS"), True, False),
        (api(422), False, False),
        (UnexpectedAnswer("?"), False, False),
    ],
)
def test_only_what_cannot_do_harm_is_repeated(error: ClockhouseError, safe: bool, unsafe: bool) -> None:
    assert (may_repeat(SAFE, error), may_repeat(UNSAFE, error)) == (safe, unsafe)


@given(attempt=st.integers(1, 10), rand=st.floats(0, 1, exclude_max=True))
def test_pauses_grow_with_full_jitter_and_end(attempt: int, rand: float) -> None:
    retries = Retries(attempts=6, first_seconds=0.5, most_seconds=4.0)
    pause = retries.pause(SAFE, api(503), attempt=attempt, spent=0.0, rand=rand)
    if attempt >= 6:
        assert pause is None
    else:
        assert pause == min(4.0, 0.5 * 2 ** (attempt - 1)) * rand


def test_a_pause_is_never_shorter_than_the_server_wishes() -> None:
    retries = Retries(budget_seconds=60)
    assert retries.pause(SAFE, api(429, retry_after=7), attempt=1, spent=0, rand=0.0) == 7.0
    assert retries.pause(SAFE, api(429, retry_after=7), attempt=1, spent=54, rand=0.0) is None
    assert retries.pause(SAFE, api(429, retry_after=3600), attempt=1, spent=0, rand=0.0) is None


def test_never_is_never() -> None:
    assert NEVER.pause(SAFE, api(503), attempt=1, spent=0, rand=0.0) is None
