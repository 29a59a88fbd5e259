from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest

from cells.domain.ids import RunKey, run_id
from cells.domain.job import JobDefinition, Schedule, ScheduleType, TargetRef
from cells.domain.trace import trace_id, well_formed
from cells.ports import Claim
from cells.spans import attempt_span, attempt_state

ASKER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def claim(kind: ScheduleType, ordinal: int, asker: str | None = ASKER) -> Claim:
    schedule = Schedule(type=kind, cron="* * * * *" if kind is ScheduleType.CRON else None)
    return Claim(
        tenant_id=uuid.UUID(int=1),
        key=RunKey(
            parent_id=uuid.UUID(int=2), scheduled_for=datetime(2026, 1, 1, tzinfo=UTC), ordinal=ordinal
        ),
        epoch=1,
        series=1,
        attempt=1,
        priority=2,
        shard=0,
        version=1,
        definition=JobDefinition(schedule=schedule, target=TargetRef(target_id="tgt_a")),
        payload=None,
        due_ms=0,
        released_ms=0,
        claimed_ms=0,
        lease_ms=0,
        traceparent=asker,
    )


@pytest.mark.parametrize(
    ("kind", "ordinal", "joined"),
    [
        (ScheduleType.NOW, 1, True),
        (ScheduleType.ONCE, 0, True),
        (ScheduleType.CRON, 1, True),  # by hand
        (ScheduleType.CRON, 0, False),
        (ScheduleType.RATE, 0, False),
    ],
)
def test_only_what_somebody_asked_for_is_in_their_trace(
    kind: ScheduleType, ordinal: int, joined: bool
) -> None:
    made = claim(kind, ordinal)
    span = attempt_span(made, run_id(made.key), 7)
    assert (trace_id(span) == trace_id(ASKER)) is joined
    assert span[36:52] == f"{7:016x}"
    assert trace_id(span) == trace_id(attempt_span(made, run_id(made.key), 8))


def test_a_run_that_nobody_traced_has_a_trace_of_its_own() -> None:
    made = claim(ScheduleType.NOW, 1, None)
    assert well_formed(attempt_span(made, run_id(made.key), 0)) is not None


def test_the_tracestate_goes_where_its_trace_goes() -> None:
    kept = f"{ASKER} a=1,b=2"
    asked = claim(ScheduleType.ONCE, 0, kept)
    assert (trace_id(attempt_span(asked, "r", 1)), attempt_state(asked)) == (trace_id(ASKER), "a=1,b=2")
    assert attempt_state(claim(ScheduleType.CRON, 0, kept)) is None
    assert attempt_state(claim(ScheduleType.ONCE, 0)) is None


def test_a_run_nobody_traced_has_one_trace_for_all_attempts() -> None:
    for stored in (None, "junk"):
        made = claim(ScheduleType.NOW, 1, stored)
        first, second = attempt_span(made, "r", 1), attempt_span(made, "r", 0)
        assert first == second
        assert attempt_span(made, "other", 1) != first
