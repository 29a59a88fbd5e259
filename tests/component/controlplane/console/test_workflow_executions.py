"""Pages of workflows: which execution an act is about, which there are, and which to compare."""

from __future__ import annotations

import pytest

from tests.component.controlplane.console.cell import TARGET, Cell
from tests.component.controlplane.console.conftest import Signed
from tests.component.controlplane.console.flows import (
    CHARGE,
    EARLIER,
    ENDED,
    FLOW,
    FLOW_ID,
    REFUND,
    RUN,
    STUCK,
    answers,
    flow_path,
)
from tests.component.controlplane.console.test_workflows import HERE, flows, sent, shown

__all__ = ["flows"]

pytestmark = pytest.mark.django_db


def test_an_act_is_about_the_execution_that_was_shown(flows: Cell, owner: Signed) -> None:
    for verb in ("cancel", "terminate", "reset", "migrate", "resolve"):
        assert f'name="run_id" value="{RUN}"' in shown(owner, HERE + verb)
    flows.answers[f"POST {flow_path(':cancel')}"] = (202, FLOW)
    sent(owner, f"{HERE}cancel", 200, run_id=RUN)
    assert flows.asked("POST", flow_path(":cancel"))[-1].body == {"run_id": RUN}
    # A second click is the same reset: the cell answers the execution that the first one began.
    flows.answers[f"POST {flow_path(':reset')}"] = (200, FLOW)
    for run_id in (RUN, RUN, EARLIER):
        sent(owner, f"{HERE}reset", 200, step="charge_card", run_id=run_id)
    one, again, other = flows.asked("POST", flow_path(":reset"))
    assert one.body == {"step": "charge_card"}
    assert one.headers["Idempotency-Key"] == again.headers["Idempotency-Key"]
    assert one.headers["Idempotency-Key"] != other.headers["Idempotency-Key"]
    # Shown again when its outcome is not known, the form still means that one.
    flows.answers[f"POST {flow_path(':reset')}"] = (503, {"status": 503})
    assert f'value="{EARLIER}"' in sent(owner, f"{HERE}reset", 503, step="charge_card", run_id=EARLIER)


def test_executions_of_an_id_are_found_among_those_that_begin_alike(flows: Cell, owner: Signed) -> None:
    others = [{**FLOW, "workflow_id": f"{FLOW_ID}{n}", "run_id": f"wr_{n}"} for n in range(200)]
    same = [FLOW, {**FLOW, "run_id": EARLIER}]
    pages = [{"items": others, "next_cursor": "more"}, {"items": same, "next_cursor": None}]
    flows.turns["GET /v1/workflows"] = [(200, page) for page in pages]
    assert EARLIER in shown(owner, HERE)


def test_an_ended_one_is_asked_for_no_more(flows: Cell, owner: Signed) -> None:
    assert 'hx-swap="outerHTML"' in shown(owner, f"{HERE}live")
    flows.answers |= answers(ENDED, [CHARGE, REFUND])
    part = shown(owner, f"{HERE}live")
    assert 'id="live"' in part
    assert "hx-get" not in part


def test_what_is_to_be_compared_is_listed_with_its_keys(flows: Cell, owner: Signed) -> None:
    path = "GET /v1/workflows/reconciliation"
    question = {
        "step": "charge_card", "idempotency_key": "order:charge_card", "child_workflow_id": None,
        "outcome": "UNKNOWN", "error": "no answer", "told_late": True, "undone": False,
        "compensation": "refund_card", "compensation_idempotency_key": "order:refund_card",
        "compensation_state": "FAILED", "compensation_error": "no van <b>",
    }  # fmt: skip
    flows.answers[path] = (200, {"items": [{**STUCK, "steps": [question]}], "next_cursor": "c+/2"})
    page = shown(owner, "/workflow-reconciliation")
    for text in ("unknown whether it happened", "told late", "order:charge_card", "order:refund_card"):
        assert text in page
    assert "no van &lt;b&gt;" in page
    assert "cursor=c%2B%2F2" in page
    flows.answers[path] = (200, {"items": [], "next_cursor": None})
    assert "clockhouse workflows reconciliation" in shown(owner, "/workflow-reconciliation")
    assert "workflow-reconciliation" in shown(owner, "/workflows/")


def test_a_rotation_that_was_not_done_may_be_asked_for_again(cell: Cell, owner: Signed) -> None:
    cell.answers["GET /v1/targets/tgt_echo"] = (200, TARGET)
    rotate = "POST /v1/targets/tgt_echo:rotate-secret"
    cell.answers[rotate] = (409, {"status": 409, "code": "CONFLICT", "detail": "disabled"})
    assert "whsec_new" not in sent(owner, "/targets/tgt_echo/rotate", 200, token="once")
    cell.answers[rotate] = (200, {**TARGET, "secret": "whsec_new"})
    assert "whsec_new" in sent(owner, "/targets/tgt_echo/rotate", 200, token="once")
