"""How values are said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from cells.domain.job import STATUS
from cells.domain.run import AttemptOutcome, RunState
from controlplane.console.cost import money
from controlplane.console.wording import (
    STATES,
    counted,
    duration,
    main_delay,
    parse,
    relative,
    schedule,
    time_split,
)

NOW = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (None, "–"), (0, "0 ms"), (0.4, "0 ms"), (999, "999 ms"), (1000, "1 s"), (2440, "2.4 s"),
        (59_940, "59.9 s"), (59_960, "1 min"), (200_000, "3 min 20 s"), (7_500_000, "2 h 5 min"),
        (90_000_000, "1 d 1 h"),
    ],
)  # fmt: skip
def test_durations(ms: float | None, said: str) -> None:
    assert duration(ms) == said


def test_relative_times() -> None:
    assert relative(NOW, NOW) == "just now"
    assert relative(NOW + timedelta(seconds=61), NOW) == "in 1 min"
    assert relative(NOW - timedelta(hours=49), NOW) == "2 d ago"


def test_instants() -> None:
    assert parse("2026-11-30T09:00:00Z") == NOW
    assert parse("nonsense") is None
    assert parse(None) is None


def test_schedules() -> None:
    assert schedule({"type": "CRON", "cron": "* * * * *", "time_zone": "Asia/Tokyo"}) == (
        "* * * * *",
        "Asia/Tokyo",
    )
    assert schedule({"type": "RATE", "every_seconds": 90}) == ("every 1 min 30 s", "elapsed time")
    assert schedule({"type": "NOW"}) == ("at once", "")


def test_every_state_has_a_word_and_a_sign() -> None:
    known = {str(state) for state in (*RunState, *AttemptOutcome, *STATUS.values())}
    assert known <= STATES.keys()
    signs = {
        look: {sign for _, kind, sign in STATES.values() if kind == look} for look in ("good", "bad", "live")
    }
    assert signs["good"].isdisjoint(signs["bad"] | signs["live"])
    assert signs["bad"].isdisjoint(signs["live"])


def test_the_window_does_not_hide_the_rest() -> None:
    split = time_split({"window_ms": 60_000, "quota_ms": 0, "queue_ms": 5, "slot_ms": None, "run_ms": 15})
    assert (split.window_ms, split.total_ms) == (60_000, 20)
    assert [(part.name, part.x, part.share) for part in split.parts] == [
        ("queue", 0, 25.0),
        ("run", 25.0, 75.0),
    ]
    assert time_split(None).parts == ()


def test_what_delayed_a_run_most() -> None:
    assert main_delay({"window_ms": 5, "queue_ms": 9, "run_ms": 1000}) == "queue"
    assert main_delay({"run_ms": 1000}) == ""


def test_money_and_counts() -> None:
    assert money(Decimal(0)) == "0.00"
    assert money(Decimal("0.00000001")) == "<\u00a00.0001"
    assert money(Decimal("0.1234567")) == "0.1235"
    assert money(Decimal("1234.5")) == "1,234.50"
    assert (counted(1, "run"), counted(2, "run")) == ("1 run", "2 runs")
