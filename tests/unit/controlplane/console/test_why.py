"""Why a job did not run: each answer once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controlplane.console.why import Finding, obstacles, verdict

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
NINE = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
JOB: dict[str, Any] = {
    "status": "SCHEDULED",
    "schedule": {"type": "CRON"},
    "target": {"target_id": "tgt_a"},
    "created_at": "2026-11-01T00:00:00Z",
    "updated_at": "2026-11-01T00:00:00Z",
    "next_run_at": "2026-12-01T09:00:00Z",
}
OCCURRENCES = [{"at": "2026-11-30T09:00:00Z"}, {"at": "2026-12-01T09:00:00Z"}]


def record(at: str, verdict_: str, sentence: str = "It so happened.", **more: Any) -> dict[str, Any]:
    usual = {"run_id": f"job_a:{at}", "scheduled_for": at, "count": 1}
    return {**usual, "verdict": verdict_, "sentence": sentence, **more}


def found(
    *ledger: dict[str, Any], at: datetime = NINE, occurrences: Any = OCCURRENCES, **job: Any
) -> list[Finding]:
    return verdict(
        {**JOB, **job}, at, now=NOW, ledger=ledger, occurrences=occurrences, tolerance=timedelta(seconds=90)
    )


@pytest.mark.parametrize(
    ("verdict_", "look"),
    [("ran", "good"), ("failed", "bad"), ("running", "live"), ("late", "wait"), ("skipped:paused", "mute")],
)
def test_a_recorded_occurrence_says_what_became_of_it(verdict_: str, look: str) -> None:
    (finding,) = found(record("2026-11-30T09:00:30Z", verdict_))
    assert (finding.look, finding.run_id) == (look, "job_a:2026-11-30T09:00:30Z")
    assert finding.text == "It so happened. It was for"


def test_a_record_that_stands_for_many_covers_those_after_it() -> None:
    row = record("2026-11-29T09:00:00Z", "skipped:paused", count=3)
    (finding,) = found(row)
    assert "stands for 3 occurrences. The first of them was for" in finding.text
    later = record("2026-11-29T21:00:00Z", "ran")
    assert "stands for" not in found(later, row)[0].text


def test_what_has_no_record_is_explained() -> None:
    assert "did not exist yet" in found(at=datetime(2026, 10, 1, tzinfo=UTC))[0].text
    tomorrow = datetime(2026, 12, 1, 9, tzinfo=UTC)
    assert "still to come" in found(at=tomorrow)[0].text
    assert "would be due" in found(at=tomorrow, status="PAUSED")[0].text
    elsewhen = found(at=NINE - timedelta(hours=1))[0]
    assert ("has no occurrence then" in elsewhen.text, elsewhen.at) == (True, "2026-11-30T09:00:00Z")
    assert "no occurrence at or after" in found(occurrences=[])[0].text
    assert "changed afterwards" in found(updated_at="2026-11-30T10:00:00Z")[0].text
    assert "no record of it yet" in found()[0].text


def test_obstacles() -> None:
    approved = {"state": "APPROVED"}
    assert obstacles(JOB, approved, suspended=False) == []
    said = [
        obstacles({**JOB, "status": "PAUSED"}, approved, suspended=True),
        obstacles(JOB, {"state": "DISABLED"}, suspended=False),
        obstacles(JOB, None, suspended=False),
        obstacles({**JOB, "status": "CANCELLED"}, approved, suspended=False),
        obstacles({**JOB, "status": "COMPLETED"}, approved, suspended=False),
    ]
    assert [len(each) for each in said] == [2, 1, 1, 1, 1]
    assert "tgt_a is disabled" in said[1][0].text
    assert "does not exist any more" in said[2][0].text


def test_a_paused_job_says_what_resuming_does_beside_its_pause_alone() -> None:
    paused = {**JOB, "status": "PAUSED"}
    suspended, cron, target = obstacles(paused, None, suspended=True)
    assert cron.text.endswith("Resuming plans the next one after now.")
    assert not any("esum" in other.text for other in (suspended, target))
    for kind in ("ONCE", "NOW"):
        (once,) = obstacles({**paused, "schedule": {"type": kind}}, {"state": "APPROVED"}, suspended=False)
        assert once.text.endswith("it runs at the time it had, or at once if that went by.")
        assert "skipped" not in once.text
