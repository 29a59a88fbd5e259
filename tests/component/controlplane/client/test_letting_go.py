"""Commands that would reach further than was said: they refuse, or show what they reach first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.component.controlplane.client.conftest import Received, Server

NOW = "2026-11-30T12:00:00Z"
LETTER = {
    "run_id": "job_1:2026-11-30T11:00:00Z", "job_id": "job_1", "series": 1, "fingerprint": "f00d",
    "reason": "FAILED", "target_id": "tgt_x", "http_status": 500, "error": None, "attempt": 3,
    "failed_at": NOW,
}  # fmt: skip


def letters(request: Received) -> Any:
    if request.body.get("dry_run"):
        return {
            "selection_id": "sel_1", "action": request.path.rpartition(":")[2], "count": 3, "hash": "h",
            "sample": [LETTER], "expires_at": NOW,
        }  # fmt: skip
    return {
        "redrive_id": "op_1", "action": "purge", "state": "DONE", "total": 3, "processed": 3, "done": 3,
        "unchanged": 0, "failed": 0, "max_per_second": 50, "created_at": NOW,
    }  # fmt: skip


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_dead_letters_are_chosen_or_all_are_said(server: Server, cli: Any, verb: str) -> None:
    server.handler = letters
    done = cli("dlq", verb, "--yes")
    assert (done.exit_code, server.received) == (2, [])
    assert "--all" in done.stderr
    assert cli("dlq", verb, "--all", "--yes").exit_code == 0
    assert [request.body.get("filter") for request in server.received] == [{}, None]


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_dead_letters_are_shown_and_counted_before_anything_is_asked(
    server: Server, cli: Any, verb: str
) -> None:
    server.handler = letters
    done = cli("dlq", verb, "--target", "tgt_x")
    assert done.exit_code == 2  # there is no terminal to ask
    assert LETTER["run_id"] in done.stdout
    assert "and 2 more" in done.stdout
    assert f"{verb.capitalize()} 3 dead letters" in done.stderr
    assert [request.body["dry_run"] for request in server.received] == [True]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--path", "/x"], "--path goes with --target or --url"),
        (["--method", "PUT", "--timeout", "5", "--header", "a: b"], "--method, --timeout, --header go with"),
    ],
)
def test_a_queued_job_takes_no_options_of_a_call(
    server: Server, cli: Any, options: list[str], said: str
) -> None:
    done = cli("jobs", "create", "--now", "--queue", "ledger", *options)
    assert (done.exit_code, server.received) == (2, [])
    assert said in " ".join(done.stderr.split())


def test_dead_letters_are_chosen_by_reason(server: Server, cli: Any) -> None:
    server.handler = letters
    assert cli("dlq", "redrive", "--reason", "poison", "--yes").exit_code == 0
    assert server.received[0].body["filter"] == {"reason": "POISON"}
