"""Requests about workflows and definitions: what is sent, how answers are read, how a terminal shows them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from controlplane.client import (
    Invalid,
    NondeterministicChange,
    WorkflowIdInUse,
    definition_calls,
    workflow_calls,
)
from controlplane.client.cli.workflow_tables import timeline_table
from controlplane.client.decoding import decode
from controlplane.client.definition_calls import named_in
from controlplane.client.wire import Answer, Call, error_of
from controlplane.client.workflow_documents import Timeline, Workflow

AT = datetime(2026, 11, 30, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("call", "method", "path", "body"),
    [
        (
            workflow_calls.start_workflow("o-1", "order", input=None),
            "POST", "/v1/workflows", {"workflow_id": "o-1", "definition": "order", "input": None},
        ),
        (
            workflow_calls.signal_workflow("o/1", "paid", {"at": AT}, signal_id="s"),
            "POST", "/v1/workflows/o%2F1/signals/paid",
            {"signal_id": "s", "payload": {"at": "2026-11-30T08:00:00Z"}},
        ),
        (workflow_calls.cancel_workflow("o-1"), "POST", "/v1/workflows/o-1:cancel", {}),
        (
            workflow_calls.terminate_workflow("o-1", run_id="wr_1"),
            "POST", "/v1/workflows/o-1:terminate", {"run_id": "wr_1"},
        ),
        (
            workflow_calls.resolve_workflow("o-1", "retry", run_id="wr_1"),
            "POST", "/v1/workflows/o-1:resolve", {"action": "retry", "run_id": "wr_1"},
        ),
        (
            workflow_calls.start_workflow("o-1", "order", id_reuse="REJECT"),
            "POST", "/v1/workflows", {"workflow_id": "o-1", "definition": "order", "id_reuse": "REJECT"},
        ),
        (workflow_calls.reset_workflow("o", "s[2]"), "POST", "/v1/workflows/o:reset", {"step": "s[2]"}),
        (definition_calls.get_definition("order"), "GET", "/v1/workflow-definitions/order", None),
        (
            definition_calls.check_definition("o", 2),
            "POST", "/v1/workflow-definitions/o/versions/2:check", None,
        ),
    ],
)  # fmt: skip
def test_what_is_sent(call: Call[Any], method: str, path: str, body: Any) -> None:
    assert (call.method, call.path, call.body) == (method, path, body)


def test_a_definition_is_sent_as_the_text_it_is() -> None:
    call = definition_calls.put_definition("order", 7, "steps: []  # ü")
    assert (call.content(), call.content_type) == ("steps: []  # ü".encode(), "application/yaml")
    assert workflow_calls.cancel_workflow("o").content_type == "application/json"


def test_only_what_settles_a_state_is_repeated() -> None:
    assert workflow_calls.start_workflow("o", "d").safe
    assert workflow_calls.signal_workflow("o", "s").safe
    assert definition_calls.put_definition("o", 1, "").safe
    assert workflow_calls.reset_workflow("o", "s", idempotency_key="k").safe
    assert not workflow_calls.migrate_workflow("o", 2).safe
    assert not workflow_calls.terminate_workflow("o").safe


def test_history_goes_on_behind_a_sequence() -> None:
    call = workflow_calls.workflow_history("o", limit=1)
    event = {"seq": 1, "epoch": 1, "type": "STARTED", "at": "2026-11-30T08:00:00Z", "data": {}}
    page = call.read(_answer(200, {"items": [event], "next_after": 1}))
    assert (page.parameter, page.next_cursor, page.items[0].seq) == ("after", "1", 1)
    assert call.read(_answer(200, {"items": [], "next_after": None})).last


def test_errors_have_classes_and_lines() -> None:
    fault = {"line": 3, "pointer": "/steps/0", "detail": "needs `id`"}
    invalid = error_of(_answer(422, {"code": "INVALID", "errors": [fault]}), AT)
    assert isinstance(invalid, Invalid)
    assert [str(one) for one in invalid.faults] == ["line 3: needs `id`"]
    assert isinstance(error_of(_answer(409, {"code": "WORKFLOW_ID_IN_USE"}), AT), WorkflowIdInUse)
    event = {"seq": 4, "type": "TIMER_STARTED", "step": "nap", "expected": "nothing"}
    changed = error_of(
        _answer(422, {"code": "NONDETERMINISTIC_DEFINITION_CHANGE", "first_diverging_event": event}), AT
    )
    assert isinstance(changed, NondeterministicChange)
    assert changed.first_diverging_event == event


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("workflow: order\nversion: 7\n", "order", "7"),
        ("# mine\n'workflow' : \"order\"  # it\nversion:   7 # of them\n", "order", "7"),
        ("steps:\n  - id: a\n    workflow: inner\n    version: 3\n", None, None),
        ('{"workflow": "order", "version": 7}', "order", "7"),
        ('{"workflow": ', None, None),
        ("workflow:\nversion: x", None, "x"),
    ],
)
def test_what_a_text_is_called(text: str, name: str | None, version: str | None) -> None:
    assert (named_in(text, "workflow"), named_in(text, "version")) == (name, version)


def test_a_timeline_is_drawn_on_one_scale() -> None:
    one = decode(Workflow, {**_WORKFLOW, "closed_at": _at(40), "status": "COMPENSATED"})
    steps = [
        _step("charge", 0, 10, run={"waited_ms": 5000, "ran_ms": 5000}),
        _step("pickup", 10, 30, kind="wait", state="FAILED", error="timeout"),
        _step("refund", 30, 40, compensates="charge", run={"waited_ms": 0, "ran_ms": 10_000}),
    ]
    found = decode(Timeline, {"workflow_id": "o", "run_id": "wr_1", "steps": steps})
    shown = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    shown.print(timeline_table(found, one, AT))
    charge, pickup, refund, note, key = shown.export_text().splitlines()[1:]
    assert charge.rstrip().endswith(" " + "░" * 5 + "█" * 6)
    assert pickup.rstrip().endswith(" " * 10 + "░" * 21)
    assert refund.startswith("↶ refund (undoes charge)")
    assert refund.rstrip().endswith("▒" * 10)
    assert note == "pickup: timeout"
    assert key.endswith("the whole is 40.0 s")


def _answer(status: int, document: Any) -> Answer:
    return Answer(status=status, headers={}, body=json.dumps(document).encode())


def _at(seconds: int) -> str:
    return (AT + timedelta(seconds=seconds)).isoformat()


_WORKFLOW = {
    "workflow_id": "o", "run_id": "wr_1", "status": "RUNNING", "definition": "order", "version": 1,
    "started_at": _at(0),
}  # fmt: skip


def _step(name: str, begin: int, end: int, **more: Any) -> dict[str, Any]:
    run = more.pop("run", None)
    if run is not None:
        run = {"run_id": "wr_1:2", "state": "SUCCEEDED", "attempt": 1, "next_attempt_at": None, **run}
    return {
        "step": name, "kind": "activity", "state": "COMPLETED", "started_at": _at(begin),
        "ended_at": _at(end), "run": run, **more,
    }  # fmt: skip
