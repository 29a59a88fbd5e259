"""Dispatch windows."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.domain.faults import ScheduleError
from cells.domain.ids import offset_of
from cells.domain.job import Schedule, ScheduleType
from cells.domain.windows import MAX_WINDOW_SECONDS, due_at, window_for

NOON = datetime(2026, 9, 28, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Defaults:
    default_window_seconds: int = 300
    default_once_window_seconds: int = 60


def cron(text: str) -> Schedule:
    return Schedule(type=ScheduleType.CRON, cron=text, time_zone="UTC")


def rate(every: int) -> Schedule:
    return Schedule(type=ScheduleType.RATE, every_seconds=every, start_at="2026-01-01T00:00:00Z")


ONCE = Schedule(type=ScheduleType.ONCE, run_at="2027-01-01T00:00:00Z")
NOW = Schedule(type=ScheduleType.NOW)


@pytest.mark.parametrize(
    ("schedule", "requested", "window_ms"),
    [
        (cron("0 * * * *"), None, 300_000),
        (cron("0 * * * *"), 0, 0),
        (cron("0 * * * *"), 7, 7_000),
        (cron("* * * * *"), None, 59_999),
        (cron("*/2 * * * *"), 600, 119_999),
        (rate(1), None, 999),
        (rate(86_400), 3600, 3_600_000),
        (ONCE, None, 60_000),
        (ONCE, 86_400, 86_400_000),
        (NOW, None, 0),
        (NOW, 300, 0),
    ],
)
def test_window(schedule: Schedule, requested: int | None, window_ms: int) -> None:
    assert window_for(schedule, requested, Defaults()) == window_ms


@pytest.mark.parametrize("requested", [-1, MAX_WINDOW_SECONDS + 1, 10**30])
def test_windows_out_of_range(requested: int) -> None:
    with pytest.raises(ScheduleError) as refused:
        window_for(NOW, requested, Defaults())
    assert [p for p, _ in refused.value.faults] == ["/dispatch_window_seconds"]


def test_a_window_fits_its_column() -> None:
    assert MAX_WINDOW_SECONDS * 1000 < 2**31


@given(job_id=st.uuids(), every=st.integers(1, 100_000), requested=st.integers(0, MAX_WINDOW_SECONDS))
def test_an_offset_is_stable_and_inside_its_bounds(job_id: uuid.UUID, every: int, requested: int) -> None:
    window_ms = window_for(rate(every), requested, Defaults())
    offset = offset_of(job_id, window_ms)
    assert offset == offset_of(uuid.UUID(int=job_id.int), window_ms)
    assert 0 <= offset < max(window_ms, 1)
    assert offset < every * 1000
    assert due_at(NOON, offset) - NOON == timedelta(milliseconds=offset)
