"""What a rehearsal's report says, out of what was seen and counted."""

from __future__ import annotations

import csv
import io
from typing import Any

from controlplane.rehearsals.models import ENDED, FOLLOWS, Stage
from controlplane.rehearsals.report import COLUMNS, as_csv, report_of, sums_of

_CUT = 1_000.0
_SEEN: dict[str, Any] = {
    "owner_after": "west", "owned_at": 1_027.5, "let_go_at": 1_014.0, "committed_at": 1_010.25,
    "replayed_at": 1_000.0, "position": 5_000, "fork": 4_200, "returned_as": "STRAYED",
}  # fmt: skip
_COUNTED: dict[str, Any] = {
    "due": 100, "began": 100, "once": 98, "late_p50_ms": 12.4,
    "late_p99_ms": 27_000.0, "late_max_ms": 28_500.6,
    "refused": 2, "repeated": 2, "first_began_at": "1970-01-01T00:17:08.500Z",
    "repeats": [
        {"tenant_id": "tnt_x", "run_id": "job_y:2026-01-01T00:00:00Z", "state": "SUCCEEDED", "lost": 1}
    ],
}  # fmt: skip


def _report(**facts: Any) -> dict[str, Any]:
    return report_of(cell="c", region="east", cut_at=_CUT, facts=_SEEN | facts, counted=_COUNTED)


def test_a_takeover_is_told_with_its_times() -> None:
    told = _report()
    assert (told["rto_owner_seconds"], told["rto_first_run_seconds"], told["let_go_seconds"]) == (
        27.5,
        28.5,
        14,
    )
    assert (told["rpo_seconds"], told["rpo_bytes"]) == (10.25, 800)
    assert (told["due"], told["run_once"], told["repeated"], told["refused_by_epoch"]) == (100, 98, 2, 2)
    assert told["late_max_ms"] == 28_501


def test_what_was_not_seen_is_not_made_up() -> None:
    told = _report(owner_after="east", owned_at=None)
    assert told["rpo_seconds"] is told["rpo_bytes"] is told["rto_owner_seconds"] is None
    nothing = report_of(cell="c", region="east", cut_at=_CUT, facts={}, counted={"fault": "away"})
    assert {nothing[name] for name in COLUMNS} == {"c", "east", None}


def test_all_together_are_sums_and_the_worst() -> None:
    together = sums_of([_report(), _report(owned_at=1_030.0)])
    assert (together["cells"], together["due"], together["rto_owner_seconds"]) == (2, 200, 30.0)


def test_the_file_has_a_line_for_each_cell_and_each_repeated_run() -> None:
    lines = list(csv.reader(io.StringIO(as_csv([_report()]))))
    assert lines[0] == list(COLUMNS)
    assert dict(zip(lines[0], lines[1], strict=True))["rpo_seconds"] == "10.25"
    assert lines[-1] == ["c", "tnt_x", "job_y:2026-01-01T00:00:00Z", "SUCCEEDED", "1"]


def test_stages_come_one_after_the_other() -> None:
    assert set(FOLLOWS) == set(Stage)
    assert {stage for stage, after in FOLLOWS.items() if not after} == ENDED
    assert all(len(after) == 1 for stage, after in FOLLOWS.items() if stage not in ENDED | {Stage.CUTTING})
