"""What answers mean, and which failures are alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.domain.outcome import CallError, classify, fingerprint, normalise_error
from cells.domain.run import AttemptOutcome

OK, AGAIN, NEVER = AttemptOutcome.SUCCEEDED, AttemptOutcome.RETRYABLE, AttemptOutcome.TERMINAL


def test_every_status() -> None:
    for status in range(100, 1000):
        if 200 <= status < 300:
            expected = OK
        elif status in (408, 425, 429) or 500 <= status < 600:
            expected = AGAIN
        else:
            expected = NEVER
        assert classify(status, None) is expected, status


@pytest.mark.parametrize("error", CallError)
def test_calls_without_an_answer(error: CallError) -> None:
    expected = NEVER if error in (CallError.BLOCKED, CallError.TARGET, CallError.RESULT) else AGAIN
    assert classify(None, error) is expected
    assert classify(None, f"{error}: 10.0.0.1") is expected
    assert classify(200, error) is expected  # the answer broke off


def test_nothing_known_is_retried() -> None:
    assert classify(None, None) is AGAIN


def test_what_differs_from_run_to_run_is_taken_out() -> None:
    assert normalise_error("Connect to 10.0.0.7:8443 FAILED\n  after 3012 ms") == (
        "connect to <n>.<n>.<n>.<n>:<n> failed after <n> ms"
    )
    assert normalise_error("no order 3f2504e0-4f89-11d3-9a0c-0305e82c3301") == "no order <id>"
    assert normalise_error("job_01h455vb4pex5vsknk084sn02q is gone") == "job_<id> is gone"
    assert normalise_error("hash 9f86d081884c7d65 at 0xdeadbeef") == "hash <id> at <id>"
    assert normalise_error("facade defaced") == "facade defaced"


def test_fingerprints() -> None:
    a = fingerprint("tgt_a", 503, "order 17 not found")
    assert a == fingerprint("tgt_a", 503, "Order 18  not found")
    others = [
        fingerprint("tgt_b", 503, "order 17 not found"),
        fingerprint("tgt_a", 500, "order 17 not found"),
        fingerprint("tgt_a", 503, "timeout"),
        fingerprint(None, None, None),
    ]
    assert len({a, *others}) == 5


@given(st.none() | st.text(), st.none() | st.integers(100, 599), st.none() | st.text())
def test_any_failure_has_a_fingerprint(target: str | None, status: int | None, error: str | None) -> None:
    mark = fingerprint(target, status, error)
    assert len(mark) == 16
    assert set(mark) <= set("0123456789abcdef")
