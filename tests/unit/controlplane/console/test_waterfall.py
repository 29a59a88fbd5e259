"""A run's time, attempt by attempt."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from controlplane.console.waterfall import waterfall

DUE = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)


def at(ms: int) -> str:
    return (DUE + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")


def attempt(
    number: int, claimed: int, started: int | None, finished: int, retry: int | None
) -> dict[str, Any]:
    return {
        "number": number,
        "outcome": "RETRYABLE",
        "claimed_at": at(claimed),
        "started_at": None if started is None else at(started),
        "finished_at": at(finished),
        "retry_in_ms": retry,
    }


def run(*attempts: dict[str, Any], **more: Any) -> dict[str, Any]:
    usual = {"due_at": at(0), "attempts": attempts, "state": "FAILED", "attempt": 1}
    return {**usual, "claimed_at": None, "started_at": None, **more}


def test_nothing_is_drawn_before_the_first_attempt() -> None:
    assert waterfall(run(state="DUE"), DUE) is None


def test_waits_calls_and_retries_follow_one_another_on_one_scale() -> None:
    shown = waterfall(run(attempt(1, 100, 200, 500, 300), attempt(2, 800, 900, 1000, None)), DUE)
    assert shown is not None
    first, second = shown.rows
    assert [(piece.part, piece.x, piece.width) for piece in first.pieces] == [
        ("queue", 0.0, 10.0),
        ("slot", 10.0, 10.0),
        ("run", 20.0, 30.0),
        ("retries", 50.0, 30.0),
    ]
    assert [(piece.part, piece.x, piece.width) for piece in second.pieces] == [
        ("slot", 80.0, 10.0),
        ("run", 90.0, 10.0),
    ]
    assert (shown.total, shown.middle, first.took) == ("1 s", "500 ms", "300 ms")


def test_the_last_failure_is_a_failure_and_an_earlier_one_a_retry() -> None:
    shown = waterfall(run(attempt(1, 0, 1, 2, 10), attempt(2, 12, 13, 14, None)), DUE)
    assert shown is not None
    assert [row.pieces[1].look for row in shown.rows] == ["wait", "bad"]


def test_a_call_that_never_began_has_no_bar() -> None:
    shown = waterfall(run(attempt(1, 5, None, 9, None)), DUE)
    assert shown is not None
    assert [piece.part for piece in shown.rows[0].pieces] == ["queue", "slot"]


def test_an_attempt_under_way_reaches_to_now() -> None:
    shown = waterfall(
        run(state="RUNNING", claimed_at=at(10), started_at=at(20)), DUE + timedelta(milliseconds=100)
    )
    assert shown is not None
    (row,) = shown.rows
    assert row.running
    assert (row.pieces[-1].look, row.pieces[-1].x, row.pieces[-1].width) == ("live", 20.0, 80.0)
