"""Answers as typed values, from servers older and newer than this client."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from controlplane.client.decoding import decode
from controlplane.client.documents import CostReport, Job, Run
from controlplane.client.errors import UnexpectedAnswer

JOB = {
    "job_id": "job_1", "status": "SCHEDULED", "version": 3, "schedule": {"type": "NOW"},
    "target": {"target_id": "tgt_1"}, "next_run_at": "2026-09-28T12:00:00.250Z", "tags": ["a"],
    "recent_runs": [
        {"run_id": "r", "scheduled_for": "2026-09-28T11:00:00Z", "attempt": 1,
         "state": "READY", "outcome": None}
    ],
}  # fmt: skip


def test_a_job() -> None:
    job = decode(Job, JOB)
    assert job.next_run_at == datetime(2026, 9, 28, 12, 0, 0, 250_000, tzinfo=UTC)
    assert (job.tags, job.key, job.payload_hidden) == (("a",), None, False)
    assert job.recent_runs[0].finished_at is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        job.status = "PAUSED"  # type: ignore[misc]


def test_what_a_newer_server_says_is_kept() -> None:
    job = decode(Job, {**JOB, "status": "HIBERNATING", "owner": {"team": "x"}})
    assert job.status == "HIBERNATING"
    assert job.extra == {"owner": {"team": "x"}}
    assert job.raw["owner"] == {"team": "x"}
    assert job == decode(Job, {**JOB, "status": "HIBERNATING"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "3"}, r"Job.version: str instead of int"),
        ({"version": True}, r"Job.version: bool instead of int"),
        ({"job_id": None}, r"Job.job_id: nothing instead of str"),
        ({"next_run_at": "tomorrow"}, r"Job.next_run_at: Invalid isoformat"),
        ({"tags": "a"}, r"Job.tags: str instead of list"),
        ({"recent_runs": [1]}, r"RecentRun: int instead of an object"),
    ],
)
def test_broken_promises_are_told_with_their_place(change: dict[str, object], message: str) -> None:
    with pytest.raises(UnexpectedAnswer, match=message):
        decode(Job, {**JOB, **change})


def test_money_is_exact_and_from_is_a_member() -> None:
    report = decode(
        CostReport,
        {
            "from": "2026-09-01", "to": "2026-09-02", "total": "0.00000012",
            "items": [{"day": "2026-09-01", "currency": "USD", "total": "0.00000012", "lines": []}],
        },
    )  # fmt: skip
    assert (report.from_, report.total) == (date(2026, 9, 1), Decimal("0.00000012"))
    assert report.extra == {}


def test_states_that_are_final() -> None:
    run = {"run_id": "r", "job_id": "j", "scheduled_for": "2026-09-28T12:00:00Z", "attempt": 1}
    assert not decode(Run, {**run, "state": "RUNNING"}).finished
    assert decode(Run, {**run, "state": "SUCCEEDED_AFTER_CANCEL"}).succeeded
    # A final state this client has not heard of is told by its outcome.
    assert decode(Run, {**run, "state": "EXPLODED", "outcome": "EXPLODED"}).finished
