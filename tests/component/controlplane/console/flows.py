"""Workflows and definitions as a cell shows them, for pages."""

from __future__ import annotations

from typing import Any

from controlplane.console.definitions import FIRST
from tests.component.controlplane.console.conftest import Signed

FLOW_ID = "order-<1>"
RUN = "wr_01m8njb93zg06vpdgn4y6fe2g1"
EARLIER = "wr_01m8njb93zg06vpdgn4y6fe2g0"
FLOW: dict[str, Any] = {
    "workflow_id": FLOW_ID,
    "run_id": RUN,
    "status": "RUNNING",
    "definition": "order_fulfillment",
    "version": 1,
    "region_policy": "HOME_ASYNC",
    "home_region": "local",
    "started_at": "2026-11-30T06:00:00.000Z",
    "closed_at": None,
    "error": None,
    "events": 4,
    "history_bytes": 900,
    "next_timer_at": "2099-11-30T06:00:00Z",
    "parent": None,
    "result": None,
    "current_steps": ["wait_for_pickup"],
    "pending_timers": [{"step": "wait_for_pickup", "fires_at": "2099-11-30T06:00:00Z"}],
    "takeovers": [[1, 1]],
    "late_signals": [],
}
ENDED = {
    **FLOW, "status": "COMPENSATED", "closed_at": "2026-11-30T06:00:30Z", "error": "timeout",
    "current_steps": [], "pending_timers": [], "next_timer_at": None,
}  # fmt: skip
STUCK = {**FLOW, "status": "COMPENSATION_STUCK", "error": "no van <b>"}


def step(name: str, **more: Any) -> dict[str, Any]:
    """A step of a timeline; done, unless said otherwise."""
    return {
        "step": name, "kind": "activity", "state": "COMPLETED", "started_at": "2026-11-30T06:00:01Z",
        "ended_at": "2026-11-30T06:00:05Z", "idempotency_key": f"{FLOW_ID}:{name}", "compensates": None,
        "child_workflow_id": None, "fires_at": None, "error": None, "outcome_known": True,
        "run": None, **more,
    }  # fmt: skip


CHARGE = step(
    "charge_card",
    run={
        "run_id": f"{RUN}:2026-11-30T06:00:01Z~2", "state": "SUCCEEDED", "attempt": 2, "waited_ms": 3000,
        "ran_ms": 1000, "next_attempt_at": None,
    },
)  # fmt: skip
WAIT = step(
    "wait_for_pickup", kind="wait", state="OPEN", ended_at=None, fires_at="2099-11-30T06:00:00Z",
    idempotency_key=None,
)  # fmt: skip
REFUND = step("refund_card", compensates="charge_card", started_at="2026-11-30T06:00:20Z",
              ended_at="2026-11-30T06:00:29Z")  # fmt: skip
DEFINITION = {
    "name": "order_fulfillment", "version": 1, "created_by": "key:<k>",
    "created_at": "2026-11-30T05:00:00Z",
}  # fmt: skip
DEFINITION_READ = {**DEFINITION, "source": FIRST, "steps": ["charge_card", "wait_for_pickup", "ship"]}
EVENT = {
    "seq": 1, "epoch": 1, "type": "STARTED", "at": "2026-11-30T06:00:00Z",
    "data": {"step": "charge_card", "input": {"who": "<script>"}},
}  # fmt: skip
_AT = f"/v1/workflows/{FLOW_ID}".replace("<", "%3C").replace(">", "%3E")
VERSION = "/v1/workflow-definitions/order_fulfillment/versions/1"


def flow_path(rest: str = "") -> str:
    """The API's path of the workflow, as it is sent."""
    return _AT + rest


def answers(flow: Any = None, steps: Any = None) -> dict[str, Any]:
    """What a cell says about it."""
    flow = flow or FLOW
    page = {"items": [flow], "next_cursor": "c+/1"}
    rows = {"items": [{**DEFINITION, "version": 2}, DEFINITION], "next_cursor": None}
    said = {
        "GET /v1/workflows": page,
        f"GET {_AT}": flow,
        f"GET {_AT}/timeline": {"steps": [CHARGE, WAIT] if steps is None else steps},
        f"GET {_AT}/history": {"items": [EVENT], "next_after": 1},
        "GET /v1/workflow-definitions": rows,
        "GET /v1/workflow-definitions/order_fulfillment": DEFINITION_READ,
        f"GET {VERSION}": DEFINITION_READ,
    }
    return {target: (200, document) for target, document in said.items()}


def shown(signed: Signed, path: str, status: int = 200, **headers: str) -> str:
    answer = signed.browser.get(signed.base + path, headers=headers)
    assert answer.status_code == status, path
    return str(answer.content.decode())


def sent(signed: Signed, path: str, status: int, **fields: str) -> str:
    answer = signed.browser.post(signed.base + path, fields, follow=status == 200)
    assert answer.status_code == status, answer.content.decode()
    return str(answer.content.decode())
