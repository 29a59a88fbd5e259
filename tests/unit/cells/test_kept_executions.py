"""What an engine keeps of executions is bounded by the memory it takes."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest

from cells.domain.workflow.events import Event, EventType
from cells.workflow_ports import WorkflowRow
from cells.workflows import planner
from cells.workflows.planner import CachedPlanner

_AT = datetime(2026, 11, 30, tzinfo=UTC)


def row(n: int) -> WorkflowRow:
    return WorkflowRow(
        tenant_id=uuid.UUID(int=1),
        run_id=uuid.UUID(int=n),
        workflow_id=f"w-{n}",
        shard=0,
        status="RUNNING",
        definition="waiting",
        version=1,
        input_hash=b"",
        region_policy="HOME_ASYNC",
        next_seq=2,
        epoch=1,
        takeovers=[],
        decide_at=None,
        timer_at=None,
        history_bytes=0,
        parent=None,
        started_at=_AT,
        closed_at=None,
        result=None,
        error=None,
    )


def remembered(engine: CachedPlanner, n: int, size: int) -> WorkflowRow:
    data = {"workflow_id": f"w-{n}", "run_id": "wr_1", "definition": "waiting", "version": 1}
    engine.remember(row(n), [Event(seq=1, type=EventType.STARTED, at=0, data=data, size=size)])
    return row(n)


def test_short_histories_count_with_what_they_take_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "KEPT_BYTES", 100_000)
    engine = CachedPlanner()
    rows = [remembered(engine, n, 180) for n in range(1, 101)]  # 18,000 bytes of history
    engine.trim()
    kept = [row.run_id.int for row in rows if engine.knows(row)]
    assert kept == list(range(61, 101))  # the latest, 2,500 bytes each


def test_one_that_is_longer_than_all_there_is_room_for_stays_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "KEPT_BYTES", 100_000)
    engine = CachedPlanner()
    first, last = remembered(engine, 1, 180), remembered(engine, 2, 9_000_000)
    engine.trim()
    assert (engine.knows(first), engine.knows(last)) == (False, True)
    engine.forget([(last.tenant_id.int, last.run_id.int)])
    rows = [remembered(engine, n, 180) for n in (3, 4)]
    engine.trim()
    assert all(engine.knows(one) for one in rows)
