"""`clockhouse workflows reconciliation`, and questions and lists that say what they count."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.component.controlplane.client.conftest import Server

ITEM = {
    "workflow_id": "order-1", "run_id": "wr_1", "definition": "order", "version": 1,
    "status": "COMPENSATION_STUCK", "error": "no van", "started_at": "2026-11-30T06:00:00Z",
    "closed_at": None,
    "steps": [
        {
            "step": "charge_card", "idempotency_key": "order-1:charge", "child_workflow_id": None,
            "outcome": "UNKNOWN", "error": None, "told_late": True, "undone": False,
            "compensation": "refund_card", "compensation_idempotency_key": "order-1:refund",
            "compensation_state": "FAILED", "compensation_error": "no van",
        }
    ],
}  # fmt: skip


def test_workflows_to_compare_are_listed_with_their_keys(server: Server, cli: Any) -> None:
    server.script = [(200, {"items": [ITEM], "next_cursor": None})] * 2
    done = cli("workflows", "reconciliation", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, [ITEM])
    shown = cli("workflows", "reconciliation").stdout
    for text in ("order-1", "charge_card", "refund"):
        assert text in shown
    asked = server.received[0]
    assert (asked.path, asked.query) == ("/v1/workflows/reconciliation", {"limit": "20"})
    server.script = [(200, {"items": [], "next_cursor": None, "unreachable_regions": ["east"]})]
    none = cli("workflows", "reconciliation")
    assert "Nothing to compare" in none.stdout
    assert "east does not answer" in none.stderr, "what is kept there alone may be to compare"


def _step(name: str, kind: str, state: str) -> dict[str, Any]:
    return {
        "step": name, "kind": kind, "state": state, "started_at": "2026-11-30T06:00:00Z", "ended_at": None,
        "idempotency_key": None, "compensates": None, "child_workflow_id": None, "fires_at": None,
        "error": None, "outcome_known": True, "run": None,
    }  # fmt: skip


def test_an_open_wait_is_under_way_but_no_step_that_was_done(server: Server, cli: Any) -> None:
    steps = [
        _step("charge", "activity", "COMPLETED"), _step("nap", "timer", "COMPLETED"),
        _step("pick_up", "wait", "OPEN"),
    ]  # fmt: skip
    server.script = [(200, {"workflow_id": "o", "run_id": "wr_1", "steps": steps})]
    asked = cli("workflows", "cancel", "o")
    assert "1 step done, of which what can be undone is; under way: pick_up." in asked.stderr


def test_with_nothing_open_nothing_is_under_way(server: Server, cli: Any) -> None:
    steps = [
        _step("charge", "activity", "COMPLETED"), _step("pick_up", "wait", "COMPLETED"),
        _step("both", "group", "OPEN"),
    ]  # fmt: skip
    server.script = [(200, {"workflow_id": "o", "run_id": "wr_1", "steps": steps})]
    asked = cli("workflows", "cancel", "o")
    assert "1 step done, of which what can be undone is; nothing is under way." in asked.stderr


def test_usage_by_job_ends_at_a_limit(server: Server, cli: Any) -> None:
    def page(first: int, cursor: str | None) -> tuple[int, dict[str, Any]]:
        items = [
            {"day": None, "job_id": f"job_{n}", "metric": "job_runs", "region_policy": "LOCAL", "quantity": n}
            for n in range(first, first + 2)
        ]
        return 200, {"from": "2026-11-01", "to": "2026-11-30", "by": "job", "items": items,
                     "next_cursor": cursor}  # fmt: skip

    server.script = [page(0, "a"), page(2, "b"), page(4, "c")]
    done = cli("usage", "--by", "job", "--limit", "3", "--json")
    assert [item["job_id"] for item in json.loads(done.stdout)["items"]] == ["job_0", "job_1", "job_2"]
    assert len(server.received) == 2
    assert "--limit 0 shows all" in done.stderr


def test_a_job_that_completed_says_how_its_last_run_ended(server: Server, cli: Any) -> None:
    last = {
        "run_id": "job_1:2026-11-30T06:00:00Z", "scheduled_for": "2026-11-30T06:00:00Z", "attempt": 3,
        "state": "FAILED", "outcome": "FAILED", "finished_at": "2026-11-30T06:01:00Z",
    }  # fmt: skip
    job = {
        "job_id": "job_1", "status": "COMPLETED", "version": 1, "schedule": {"type": "NOW"}, "target": {},
        "next_run_at": None, "last_run": last,
    }  # fmt: skip
    server.script = [(200, {"items": [job], "next_cursor": None})]
    shown = cli("jobs", "list").stdout
    assert server.received[0].query["include"] == "last_run"
    assert "last run" in shown.splitlines()[0]
    assert "COMPLETED" in shown
    assert "FAILED (" in shown
    server.script = [(200, {**job, "recent_runs": [last]})]
    assert "last run" in cli("jobs", "get", "job_1").stdout


def test_what_is_missing_is_told_once_with_what_to_do(server: Server, cli: Any) -> None:
    problem = {"status": 404, "code": "NOT_FOUND", "detail": "There is no budget."}
    server.script = [(404, problem)]
    done = cli("budget", "show")
    assert (done.exit_code, done.stdout) == (4, "")
    assert done.stderr.splitlines() == [
        "Error: There is no budget. (NOT_FOUND)", "`clockhouse budget set 100` sets one.",
    ]  # fmt: skip


def test_a_payload_is_shown_as_json_and_hours_with_their_zone(server: Server, cli: Any) -> None:
    job = {
        "job_id": "job_1", "status": "SCHEDULED", "version": 1, "schedule": {"type": "NOW"}, "target": {},
        "next_run_at": None, "payload": {"a": None, "b": "ü"},
    }  # fmt: skip
    server.script = [(200, job)]
    assert '{"a": null, "b": "ü"}' in cli("jobs", "get", "job_1").stdout
    herd = {
        "from": "2026-11-30T06:00:00Z", "to": "2026-12-01T06:00:00Z", "jobs": 1, "total": 3, "peak": None,
        "minutes": [{"minute": "2026-11-30T06:05:00Z", "count": 3, "by_target": {}}],
    }  # fmt: skip
    server.script = [(200, herd)]
    assert re.search(r"30 Nov, \d\d:00(Z|[+-]\d\d:\d\d) +3", cli("herd").stdout)


def test_a_definition_that_is_empty_lacks_all_at_once(cli: Any) -> None:
    done = cli("definitions", "put", "/dev/null")
    assert done.exit_code == 2
    said = " ".join(done.stderr.split())
    for text in ("`workflow`", "`version`", "clockhouse definitions language"):
        assert text in said
