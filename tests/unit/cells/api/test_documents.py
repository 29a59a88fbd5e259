"""Instants, time splits, quantiles and merge patches."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cells.api.building import epoch_ms, merged
from cells.api.documents import instant, run_document, time_split
from cells.api.stats import quantile
from cells.domain.ids import RunKey
from cells.domain.run import Attempt, AttemptOutcome, RunState
from cells.ports import LAG_BOUNDS_MS, RunRow

NOON = datetime(2026, 9, 28, 12, tzinfo=UTC)


def test_instants_show_milliseconds_only_where_there_are_any() -> None:
    assert instant(None) is None
    assert instant(NOON) == "2026-09-28T12:00:00Z"
    assert instant(NOON.replace(microsecond=7000)) == "2026-09-28T12:00:00.007Z"
    assert instant(NOON.replace(microsecond=999)) == "2026-09-28T12:00:00Z"
    assert instant(NOON.astimezone(timezone(timedelta(hours=5)))) == "2026-09-28T12:00:00Z"


@given(st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1)))  # noqa: DTZ001 - made aware below
def test_epoch_milliseconds_are_exact(naive: datetime) -> None:
    at = naive.replace(tzinfo=UTC, microsecond=naive.microsecond // 1000 * 1000)
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=epoch_ms(at)) == at
    assert epoch_ms(at.astimezone(timezone(timedelta(hours=-9)))) == epoch_ms(at)


def run(**fields: Any) -> RunRow:
    row = RunRow(
        tenant_id=uuid.UUID(int=1),
        key=RunKey(parent_id=uuid.UUID(int=2), scheduled_for=NOON),
        kind=0,
        state=RunState.SUCCEEDED,
        priority=2,
        version=1,
        epoch=1,
        series=1,
        attempt=1,
        timer_at=None,
        lease_expires_at=None,
        due_at=at(1000),
        released_at=at(1100),
        claimed_at=at(1130),
        started_at=at(1135),
        finished_at=at(1200),
        cancel_requested=False,
        target_id="tgt_x",
        http_status=200,
        reason=None,
        skipped=0,
    )
    return replace(row, **fields)


def at(ms: int) -> datetime:
    return NOON + timedelta(milliseconds=ms)


def attempt(number: int, claimed: int, finished: int, retry_in_ms: int | None = None) -> Attempt:
    return Attempt(
        number=number,
        epoch=number,
        outcome=AttemptOutcome.RETRYABLE,
        claimed_at=f"{at(claimed):%Y-%m-%dT%H:%M:%S.%fZ}",
        finished_at=f"{at(finished):%Y-%m-%dT%H:%M:%S.%fZ}",
        retry_in_ms=retry_in_ms,
    )


def test_where_the_time_of_one_attempt_went() -> None:
    done = run(attempts=[attempt(1, 1130, 1200)])
    assert time_split(done) == {
        "window_ms": 1000, "retries_ms": 0, "dead_letter_ms": None, "quota_ms": 100, "queue_ms": 30,
        "slot_ms": 5, "run_ms": 65,
    }  # fmt: skip


def test_where_the_time_of_a_retried_run_went() -> None:
    done = run(
        attempt=2,
        attempts=[attempt(1, 1130, 1200, retry_in_ms=500), attempt(2, 1800, 1900)],
        released_at=at(1720),
        claimed_at=at(1800),
        started_at=at(1801),
        finished_at=at(1900),
    )
    assert time_split(done) == {
        "window_ms": 1000, "retries_ms": 700, "dead_letter_ms": None, "quota_ms": 20, "queue_ms": 80,
        "slot_ms": 1, "run_ms": 99,
    }  # fmt: skip


def test_what_a_redriven_run_lay_dead_is_no_quotas_fault() -> None:
    """Its attempts are those of two series; each counts from 1."""
    first = [attempt(1, 1130, 1200, retry_in_ms=500), attempt(2, 1800, 1900)]
    waits = run(
        series=2, attempt=0, state=RunState.DUE, attempts=first, released_at=at(1720), finished_at=None
    )
    assert time_split(waits)["dead_letter_ms"] == 0, "nobody has looked at it yet"
    times = {"released_at": at(91_900), "claimed_at": at(91_930), "started_at": at(91_931)}
    again: dict[str, Any] = {"series": 2, **times}
    under_way = run(attempts=first, state=RunState.RUNNING, finished_at=None, **again)
    expected = {
        "window_ms": 1000, "retries_ms": 900, "dead_letter_ms": 90_000, "quota_ms": 0, "queue_ms": 30,
        "slot_ms": 1,
    }  # fmt: skip
    assert time_split(under_way) == expected | {"run_ms": None}
    ended = msgspec.structs.replace(attempt(1, 91_930, 91_950), series=2)
    done = run(attempts=[*first, ended], finished_at=at(91_950), **again)
    assert time_split(done) == expected | {"run_ms": 19}
    shown = run_document(done, bodies_shown=False)["attempts"]
    assert [(one["series"], one["number"]) for one in shown] == [(1, 1), (1, 2), (2, 1)]


def test_what_has_not_happened_has_no_time() -> None:
    waiting = run(released_at=None, claimed_at=None, started_at=None, finished_at=None)
    split = time_split(waiting)
    assert (split["window_ms"], split["retries_ms"]) == (1000, 0)
    assert [split[name] for name in ("quota_ms", "queue_ms", "slot_ms", "run_ms")] == [None] * 4


def counts(**at_bound: int) -> list[int]:
    found = [at_bound.get(f"le{bound}", 0) for bound in LAG_BOUNDS_MS]
    return [*found, at_bound.get("more", 0)]


def test_quantiles_of_a_histogram() -> None:
    assert quantile(counts(), 0.5, 0) is None
    assert quantile(counts(le10=100), 0.5, 10) == 7.5
    assert quantile(counts(le10=100), 0.99, 8) == 8.0
    assert quantile(counts(le5=50, le100=50), 0.5, 90) == 5.0
    assert quantile(counts(le5=50, le100=50), 0.75, 100) == 75.0
    assert quantile(counts(more=10), 0.5, 100_000) == 80_000.0


@given(st.lists(st.integers(0, 50), min_size=13, max_size=13), st.integers(0, 200_000))
def test_quantiles_rise_and_stay_below_the_largest(found: list[int], most: int) -> None:
    values = [quantile(found, q / 10, most) for q in range(1, 11)]
    if sum(found) == 0:
        assert values == [None] * 10
    else:
        assert values == sorted(values)  # type: ignore[type-var]
        assert values[-1] is not None
        assert values[-1] <= most


def patched(target: Any, patch: Any) -> Any:
    """RFC 7396, as it is written there."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = patched(result.get(name), value)
    return result


values = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


@given(objects, objects)
def test_merge_patches_follow_the_standard(target: dict[str, Any], patch: dict[str, Any]) -> None:
    def raw(value: dict[str, Any]) -> dict[str, msgspec.Raw]:
        return {name: msgspec.Raw(msgspec.json.encode(member)) for name, member in value.items()}

    result = msgspec.json.decode(msgspec.json.encode(merged(raw(target), raw(patch))))
    assert result == patched(target, patch)
