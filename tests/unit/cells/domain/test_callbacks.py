"""The names of callbacks, and what they take over from their job."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from cells.domain.callbacks import FAILURE, SUCCESS, Notify, callback_ordinal, definition_of, ordinal_told_of
from cells.domain.ids import RunKey, fresh_id, parse_run_id, run_id
from cells.domain.job import JobDefinition, Schedule, ScheduleType, TargetRef

JOB = JobDefinition(
    schedule=Schedule(type=ScheduleType.NOW),
    target=TargetRef(target_id="tgt_work"),
    headers={"x-secret": "1"},
    concurrency_key="k",
    on_success=TargetRef(target_id="tgt_ok", path="/done"),
    on_failure=TargetRef(target_id="tgt_pager"),
)


@given(ordinal=st.integers(0, 2_000_000), series=st.integers(1, 1000), other=st.integers(1, 1000))
def test_each_series_of_each_run_has_its_own(ordinal: int, series: int, other: int) -> None:
    name = callback_ordinal(ordinal, series)
    assert -(2**31) <= name < 0
    assert ordinal_told_of(name) == ordinal
    assert (name == callback_ordinal(ordinal, other)) == (series == other)
    assert name != callback_ordinal(ordinal + 1, other)


@given(ordinal=st.integers(0, 2**31 - 1), series=st.integers(1, 1000))
def test_they_are_names_of_runs(ordinal: int, series: int) -> None:
    key = RunKey(
        parent_id=fresh_id(now_ms=1, entropy=bytes(10)),
        scheduled_for=datetime(2026, 9, 28, tzinfo=UTC),
        ordinal=callback_ordinal(ordinal, series),
    )
    assert parse_run_id(run_id(key)) == key


def test_only_the_target_is_the_jobs() -> None:
    told = definition_of(JOB, FAILURE)
    assert told.target == JOB.on_failure
    assert (told.headers, told.concurrency_key, told.on_success, told.on_failure) == ({}, None, None, None)
    assert told.retry_policy.max_attempts > JOB.retry_policy.max_attempts
    assert definition_of(JOB, SUCCESS).target.path == "/done"
    assert Notify.of(told, 1, 0) is None
    assert Notify.of(JOB, 1, 0) is not None
