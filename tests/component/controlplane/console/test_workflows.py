"""Pages of workflows: what they show to whom, what an act says before and after, and bad days."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from controlplane.console.definitions import FIRST
from tests.component.controlplane.console.cell import JOB, JOB_ID, Cell
from tests.component.controlplane.console.conftest import Signed, sign_in
from tests.component.controlplane.console.flows import (
    CHARGE,
    DEFINITION_READ,
    EARLIER,
    ENDED,
    FLOW,
    FLOW_ID,
    REFUND,
    RUN,
    STUCK,
    VERSION,
    answers,
    flow_path,
    sent,
    shown,
)

pytestmark = pytest.mark.django_db
HERE = f"/workflows/{quote(FLOW_ID)}/"
READS = (
    "/workflows/",
    HERE,
    f"{HERE}live",
    f"{HERE}history",
    "/definitions/",
    "/definitions/order_fulfillment/",
)


@pytest.fixture
def flows(cell: Cell) -> Cell:
    cell.answers |= answers()
    return cell


# --- what is shown -------------------------------------------------------------------------
def test_the_list_is_filtered_by_its_address(flows: Cell, owner: Signed) -> None:
    page = shown(owner, "/workflows/?status=RUNNING&definition=order_fulfillment&prefix=order-")
    assert "order-&lt;1&gt;" in page
    assert "Running</span>" in page
    assert 'aria-current="page">Workflows' in page
    assert "cursor=c%2B%2F1" in page
    target = flows.asked("GET", "/v1/workflows")[-1].target
    assert "status=RUNNING&definition=order_fulfillment&prefix=order-" in target
    part = shown(owner, "/workflows/", **{"HX-Request": "true"})
    assert "order-&lt;1&gt;" in part
    assert "<html" not in part


def test_a_list_that_is_not_over_says_how_far_it_looked(flows: Cell, owner: Signed) -> None:
    looked = {"items": [], "next_cursor": "more", "looked_back_to": "2026-11-29T06:00:00Z"}
    flows.answers["GET /v1/workflows"] = (200, looked)
    for filters in ("", "?status=FAILED"):
        page = owner.browser.get(f"{owner.base}/workflows/{filters}").content.decode()
        assert "No workflow fits these filters among those started since" in page
        assert ("cursor=more" in page, "No workflow yet" in page) == (True, False)


def test_the_empty_list_teaches_the_first_step(flows: Cell, owner: Signed) -> None:
    flows.answers["GET /v1/workflows"] = (200, {"items": [], "next_cursor": None})
    page = shown(owner, "/workflows/")
    assert "curl -sS -X POST" in page
    assert "workflow-new?definition=order_fulfillment" in page
    flows.answers["GET /v1/workflow-definitions"] = (200, {"items": [], "next_cursor": None})
    assert "definition-new?example" in shown(owner, "/workflows/")
    assert "Begin with this one" in shown(owner, "/definitions/")
    assert "charge_card" in shown(owner, "/definition-new?example")
    assert "No workflow fits" in shown(owner, "/workflows/?status=FAILED")


def test_bad_filters_are_told(flows: Cell, owner: Signed) -> None:
    fault = {"parameter": "prefix", "detail": "letters, digits, - and _"}
    flows.answers["GET /v1/workflows"] = (422, {"status": 422, "code": "INVALID", "errors": [fault]})
    assert "prefix letters, digits, - and _" in shown(owner, "/workflows/?prefix=%2F", 422)


def test_a_workflow_is_shown_with_its_lines(flows: Cell, owner: Signed) -> None:
    page = shown(owner, HERE)
    assert "charge_card" in page
    assert f"/runs/{RUN}:2026-11-30T06:00:01Z~2/" in page
    assert "attempt 2" in page
    assert "url(#flow-retries)" in page  # an earlier attempt lies before the one that did it
    assert "url(#flow-wait)" in page
    assert "Pending timer" in page
    assert "The definition as a graph" in page
    for act in ("signal", "cancel", "terminate", "reset", "migrate"):
        assert f"{HERE}{act}" in page
    assert f"{HERE}resolve" not in page
    part = shown(owner, f"{HERE}live")
    assert "<html" not in part
    assert "<script" not in page.partition("</head>")[2].replace('<script src="', "")


def test_what_was_undone_is_hatched_and_an_ended_one_stands_still(flows: Cell, owner: Signed) -> None:
    flows.answers |= answers(ENDED, [CHARGE, REFUND])
    page = shown(owner, HERE)
    assert "undoes charge_card" in page
    assert "url(#flow-undo)" in page
    assert "data-now" not in page
    assert "every 2s" not in page
    assert f"{HERE}cancel" not in page
    assert f"{HERE}reset" in page


def test_a_definition_that_is_gone_or_unreadable_leaves_the_page_whole(flows: Cell, owner: Signed) -> None:
    flows.answers[f"GET {VERSION}"] = (200, {**DEFINITION_READ, "source": "steps: [], of: a later language"})
    page = shown(owner, HERE)
    assert "charge_card" in page
    assert "The definition as a graph" not in page


def test_an_earlier_execution_has_no_acts(flows: Cell, owner: Signed) -> None:
    flows.answers |= answers({**ENDED, "run_id": EARLIER})
    flows.answers["GET /v1/workflows"] = (
        200,
        {"items": [FLOW, {**ENDED, "run_id": EARLIER}], "next_cursor": None},
    )
    page = shown(owner, f"{HERE}?run={EARLIER}")
    assert f"run_id={EARLIER}" in flows.asked("GET", flow_path())[-1].target
    assert f"{HERE}reset" not in page
    assert "Executions of this id" in page


def test_history_is_paged_and_escaped(flows: Cell, owner: Signed) -> None:
    page = shown(owner, f"{HERE}history?after=7")
    assert "after=7" in flows.asked("GET", flow_path("/history"))[-1].target
    assert "&lt;script&gt;" in page
    assert f"?run={RUN}&amp;after=1" in page
    flows.answers[f"GET {flow_path()}"] = (200, {**FLOW, "result_hidden": True})
    assert "may not see payloads" in shown(owner, f"{HERE}history")


def test_a_definition_is_drawn_and_told_in_words(flows: Cell, owner: Signed) -> None:
    page = shown(owner, "/definitions/order_fulfillment/?version=1")
    assert 'role="img" aria-label="order_fulfillment: charge_card, wait_for_pickup, ship' in page
    assert "graph-undo" in page
    assert "waits for picked_up, 3 d at most; then everything is undone" in page
    assert "CHARGE on queue payments, 5×, 30 s each" in page
    assert "definition-new?from=order_fulfillment" in page
    flows.answers[f"GET {VERSION}"] = (200, {**DEFINITION_READ, "source": "steps: later"})
    assert "steps: later" in shown(owner, "/definitions/order_fulfillment/?version=1")


# --- who may -------------------------------------------------------------------------------
@pytest.mark.parametrize("path", READS)
def test_a_viewer_reads_and_acts_on_nothing(flows: Cell, path: str) -> None:
    viewer = sign_in("viewer")
    page = shown(viewer, path)
    for word in ("/cancel", "workflow-new", ">Register<"):
        assert word not in page
    caller = flows.calls[-1].caller
    assert "workflows:read" in caller.scopes
    assert "workflows:write" not in caller.scopes


def test_a_viewer_checks_and_registers_nothing(flows: Cell) -> None:
    viewer = sign_in("viewer")
    shown(viewer, "/workflow-new", 403)
    shown(viewer, f"{HERE}cancel", 403)
    sent(viewer, f"{HERE}terminate", 403)
    assert ">Register<" not in shown(viewer, "/definition-new")
    sent(viewer, "/definition-new", 403, text=FIRST, act="register")
    assert [call for call in flows.calls if call.method in ("POST", "PUT")] == []


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/workflows/nobody/",
            "/workflows/nobody/live",
            "/workflows/nobody/history",
            "/workflows/nobody/cancel",
        ),
        *("/definitions/nobody/", "/definition-new?from=nobody", f"{HERE}explode"),
    ],
)
def test_what_is_not_there_is_a_404(flows: Cell, owner: Signed, path: str) -> None:
    shown(owner, path, 404)


def test_pages_of_another_workspace_are_not_there(flows: Cell, owner: Signed) -> None:
    stranger = sign_in("owner")
    for path in (*READS, f"{HERE}cancel", "/workflow-new", "/definition-new"):
        assert stranger.browser.get(owner.base + path).status_code == 404
    assert flows.calls == []


# --- acts ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("signal", "It waits for picked_up now."),
        ("cancel", "Undone: 1 step (charge_card), the latest first."),
        ("terminate", "Stays done, and is not undone: 1 step (charge_card)."),
        ("reset", "The step you choose runs again"),
        ("migrate", "now it is 1"),
        ("resolve", "Nothing is left to be undone."),
    ],
)
def test_an_act_says_what_it_will_touch(flows: Cell, owner: Signed, verb: str, said: str) -> None:
    page = shown(owner, HERE + verb)
    assert said in page
    assert "csrfmiddlewaretoken" in page
    part = shown(owner, HERE + verb, **{"HX-Request": "true"})
    assert said in part
    assert "<html" not in part
    assert flows.asked("POST", flow_path(f":{verb}")) == []


def test_a_signal_is_sent_once_under_its_id(flows: Cell, owner: Signed) -> None:
    target = flow_path("/signals/picked_up")
    taken = {"workflow_id": FLOW_ID, "run_id": RUN, "signal_id": "s-1", "status": "accepted"}
    flows.answers[f"POST {target}"] = (202, taken)
    fields = {"name": "picked_up", "signal_id": "s-1", "payload": '{"by": "Ada"}'}
    assert "picked_up is taken (s-1)." in sent(owner, f"{HERE}signal", 200, **fields)
    assert flows.asked("POST", target)[-1].body == {"signal_id": "s-1", "payload": {"by": "Ada"}}
    flows.answers[f"POST {target}"] = (202, {**taken, "status": "late"})
    assert "came too late" in sent(owner, f"{HERE}signal", 200, **fields)
    flows.answers[f"POST {target}"] = (202, {**taken, "status": "duplicate"})
    assert "Nothing was changed" in sent(owner, f"{HERE}signal", 200, **fields)
    page = sent(owner, f"{HERE}signal", 422, **{**fields, "payload": "{"})
    assert "is not JSON" in page
    assert 'value="s-1"' in page  # the same signal, once it is right


def test_acts_are_sent_and_said(flows: Cell, owner: Signed) -> None:
    for verb, fields, body, said in (
        ("cancel", {"reason": "no stock"}, {"reason": "no stock"}, "1 step will be undone."),
        ("terminate", {}, {}, "Done, and not undone: 1 step."),
        ("reset", {"step": "charge_card"}, {"step": "charge_card"}, "goes on from charge_card"),
        ("migrate", {"version": "2"}, {"version": 2}, "went from version 1 to 2."),
        ("resolve", {"action": "close", "note": "n"}, {"action": "close", "note": "n"}, "is closed as it is"),
    ):  # fmt: skip
        flows.answers[f"POST {flow_path(f':{verb}')}"] = (202, {**FLOW, "version": 2})
        assert said in sent(owner, HERE + verb, 200, **fields), verb
        assert flows.asked("POST", flow_path(f":{verb}"))[-1].body == body


def test_a_refused_act_keeps_what_was_typed(flows: Cell, owner: Signed) -> None:
    detail = "event 3 (TIMER_STARTED nap) would not have been recorded under that version, but: nothing."
    code = "NONDETERMINISTIC_DEFINITION_CHANGE"
    flows.answers[f"POST {flow_path(':migrate')}"] = (422, {"status": 422, "code": code, "detail": detail})
    assert "Event 3 (TIMER_STARTED nap)" in sent(owner, f"{HERE}migrate", 422, version="2")
    conflict = {"status": 409, "code": "CONFLICT", "detail": "the workflow is COMPLETED"}
    flows.answers[f"POST {flow_path(':cancel')}"] = (409, conflict)
    page = sent(owner, f"{HERE}cancel", 409, reason="mine")
    assert "The workflow is COMPLETED" in page
    assert 'value="mine"' in page
    flows.answers[f"POST {flow_path(':cancel')}"] = (503, {"status": 503})
    assert "is not known" in sent(owner, f"{HERE}cancel", 503, reason="mine")


def test_a_stuck_one_asks_for_a_decision(flows: Cell, owner: Signed) -> None:
    flows.answers |= answers(STUCK, [CHARGE, {**REFUND, "state": "FAILED", "error": "no van"}])
    page = shown(owner, HERE)
    assert "It needs a decision" in page
    assert f"{HERE}signal" not in page
    assert "Not undone yet: 1 step (refund_card)." in shown(owner, f"{HERE}resolve")


# --- starting ------------------------------------------------------------------------------
START = {"workflow_id": "order-2", "definition": "order_fulfillment", "version": "", "input": '{"n": 1}'}


def test_a_start_is_sent_as_typed(flows: Cell, owner: Signed) -> None:
    assert 'value="order_fulfillment-' in shown(owner, "/workflow-new?definition=order_fulfillment")
    begun = {"workflow_id": FLOW_ID, "definition": "order_fulfillment", "version": 1}
    flows.answers["POST /v1/workflows"] = (201, begun)
    assert "is started, under order_fulfillment 1." in sent(owner, "/workflow-new", 200, **START)
    asked: Any = flows.asked("POST", "/v1/workflows")[-1].body
    assert asked == {"workflow_id": "order-2", "definition": "order_fulfillment", "input": {"n": 1}}
    flows.answers["POST /v1/workflows"] = (200, begun)
    assert "was started before" in sent(owner, "/workflow-new", 200, **START)


def test_a_start_shows_every_fault_at_its_field(flows: Cell, owner: Signed) -> None:
    faults = [
        {"pointer": "/workflow_id", "detail": "bad id"},
        {"pointer": "/version", "detail": "bad version"},
    ]
    flows.answers["POST /v1/workflows"] = (422, {"status": 422, "code": "INVALID", "errors": faults})
    page = sent(owner, "/workflow-new", 422, **{**START, "version": "x"})
    assert "bad id" in page
    assert "bad version" in page
    assert "{&quot;n&quot;: 1}" in page
    in_use = {
        "status": 409,
        "code": "WORKFLOW_ID_IN_USE",
        "detail": "Another workflow is open under that id.",
    }
    flows.answers["POST /v1/workflows"] = (409, in_use)
    assert "another workflow is open under this id" in sent(owner, "/workflow-new", 409, **START)
    assert "is not JSON" in sent(owner, "/workflow-new", 422, **{**START, "input": "{"})


# --- checking and registering ----------------------------------------------------------------
def test_faults_are_shown_by_line(flows: Cell, owner: Signed) -> None:
    faults = [
        {"line": 4, "pointer": "/steps/0", "detail": "needs `id`"},
        {"line": 4, "pointer": "/steps/0/retry", "detail": "unknown field"},
        {"line": 99, "pointer": "", "detail": "beyond <its> end"},
    ]
    flows.answers[f"POST {VERSION}:check"] = (422, {"status": 422, "code": "INVALID", "errors": faults})
    page = sent(owner, "/definition-new", 422, text=FIRST.replace("\n", "\r\n"), act="check")
    assert flows.asked("POST", f"{VERSION}:check")[-1].body == FIRST  # line ends as people typed them
    assert "2 lines with faults" in page
    assert '<li value="4"><code>  - id: charge_card</code>' in page
    assert "beyond &lt;its&gt; end" in page
    assert "compensate_with: refund_card" in page


def test_a_check_lists_what_could_go_on_and_what_could_not(flows: Cell, owner: Signed) -> None:
    event = {
        "seq": 2,
        "type": "ACTIVITY_SCHEDULED",
        "step": "pay",
        "expected": "ACTIVITY_SCHEDULED charge_card",
    }
    one = {"workflow_id": FLOW_ID, "run_id": RUN, "version": 1}
    checked = {
        "name": "order_fulfillment", "version": 1, "compatible": [{**one, "workflow_id": "order-3"}],
        "blocked": [{**one, "first_diverging_event": event}], "undecided": [], "open": 5, "looked_at": 2,
        "more": True, "next_cursor": "behind",
    }  # fmt: skip
    flows.answers[f"POST {VERSION}:check"] = (200, checked)
    page = sent(owner, "/definition-new", 200, text=FIRST, act="check")
    assert "1 could go on under it and 1 could not" in page
    assert "Looked at 2 of 5 so far" in page
    undecided = [{**one, "workflow_id": "order-5", "reason": "not replayed within 10 seconds"}]
    last = {**checked, "blocked": [], "undecided": undecided, "open": None, "next_cursor": None}
    flows.answers[f"POST {VERSION}:check"] = (200, last)
    so_far = {"looked_at": "2", "could": "1", "could_not": "1", "undecided": "0", "open": "5"}
    ended = sent(owner, "/definition-new", 200, text=FIRST, act="go-on", cursor="behind", **so_far)
    assert flows.asked("POST", f"{VERSION}:check")[-1].target.endswith("?cursor=behind")
    assert "2 could go on under it and 1 could not" in ended
    assert "not replayed within 10 seconds" in ended
    assert "Go on with the check" not in ended
    assert "ACTIVITY_SCHEDULED charge_card" in page
    assert "order-3" in page
    assert "As a graph" in page
    assert flows.asked("PUT", VERSION) == []


def test_a_text_is_registered_once(flows: Cell, owner: Signed) -> None:
    flows.answers[f"PUT {VERSION}"] = (201, DEFINITION_READ)
    assert "is registered. New starts take it" in sent(
        owner, "/definition-new", 200, text=FIRST, act="register"
    )
    assert flows.asked("PUT", VERSION)[-1].body == FIRST
    flows.answers[f"PUT {VERSION}"] = (200, DEFINITION_READ)
    assert "was registered before" in sent(owner, "/definition-new", 200, text=FIRST, act="register")
    detail = "order_fulfillment has a version 1 with another text; register the next version."
    flows.answers[f"PUT {VERSION}"] = (409, {"status": 409, "code": "CONFLICT", "detail": detail})
    assert "register the next version" in sent(owner, "/definition-new", 409, text=FIRST, act="register")
    assert "version: 2" in shown(owner, "/definition-new?from=order_fulfillment")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("steps: []", "needs `workflow`"),
        ("workflow: x\nsteps: []", "needs `version`"),
        ("#" * (256 * 1024 + 1), "is longer than 256 KiB"),
    ],
)
def test_a_text_that_names_nothing_is_not_sent(flows: Cell, owner: Signed, text: str, said: str) -> None:
    assert said in sent(owner, "/definition-new", 422, text=text, act="register")
    assert flows.asked("PUT", VERSION) == []


# --- jobs that start workflows -----------------------------------------------------------------
def test_a_job_that_starts_workflows_is_made_and_shown(flows: Cell, owner: Signed) -> None:
    assert '<option value="order_fulfillment">' in shown(owner, "/jobs/new?target_kind=WORKFLOW")
    fields = {
        "kind": "NOW", "target_kind": "WORKFLOW", "definition": "order_fulfillment", "wait": "no",
        "definition_version": "", "payload": '{"n": 1}', "headers": "A: b",
    }  # fmt: skip
    sent(owner, "/jobs/new", 422, **fields)  # the cell has no answer for it
    body: Any = flows.asked("POST", "/v1/jobs")[-1].body
    target = {"type": "WORKFLOW", "definition": "order_fulfillment", "version": None, "wait": False}
    assert (body["target"], body["payload"], "headers" in body) == (target, {"n": 1}, False)
    flows.answers[f"GET /v1/jobs/{JOB_ID}"] = (200, {**JOB, "target": {**target, "version": 2}})
    page = shown(owner, f"/jobs/{JOB_ID}/")
    assert f'href="{owner.base}/definitions/order_fulfillment/"' in page
    assert "as soon as its workflow has begun" in page
    assert 'value="order_fulfillment"' in shown(owner, f"/jobs/{JOB_ID}/edit")
