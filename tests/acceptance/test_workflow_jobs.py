"""Jobs whose work is a workflow of calls: the whole product, from the job to the target and back."""

from __future__ import annotations

import uuid
from typing import Any

from tests.api import Api
from tests.recorder import Recorder
from tests.stack import Stack
from tests.waiting import eventually_sync


def definition(target_id: str) -> dict[str, Any]:
    call = {"target_id": target_id, "path": "/charge"}
    undo = {"target_id": target_id, "path": "/refund"}
    wait = {"id": "confirmed", "wait_for_signal": {"name": "confirmed"}}
    return {
        "steps": [{"id": "charge", "activity": call, "compensate_with": "refund"}, wait],
        "compensations": [{"id": "refund", "activity": undo}],
    }


def begun(api: Api, target: Recorder) -> tuple[str, str]:
    """A job's run whose workflow waits for a signal: the run's id, and the workflow's."""
    registered = api.register_target(target.url)
    name = f"charging-{uuid.uuid4().hex[:8]}"
    api.call("PUT", f"/v1/workflow-definitions/{name}/versions/1", definition(registered["target_id"]))
    refused = api.http.post(
        "/v1/jobs",
        json={"schedule": {"type": "NOW"}, "target": {"type": "WORKFLOW", "definition": "nobody-s"}},
    )
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/target/definition"
    job = api.create_job(
        {
            "schedule": {"type": "NOW"},
            "target": {"type": "WORKFLOW", "definition": name, "input": {"cents": 4599}},
        }
    )
    shown = api.get(f"/v1/jobs/{job['job_id']}")
    assert shown["target"] == {"type": "WORKFLOW", "definition": name, "version": None, "wait": True}
    assert shown["payload"] == {"cents": 4599}

    def running() -> str | None:
        runs = api.get(f"/v1/jobs/{job['job_id']}")["recent_runs"]
        return str(runs[0]["run_id"]) if runs and runs[0]["state"] == "RUNNING" else None

    run_id = eventually_sync(running, timeout=30)
    workflow_id = run_id.replace(":", "-")

    def waits() -> bool:
        found = api.http.get(f"/v1/workflows/{workflow_id}")
        return found.status_code == 200 and found.json()["current_steps"] == ["confirmed"]

    eventually_sync(waits, timeout=30)
    return run_id, workflow_id


def state_of(api: Api, run_id: str) -> str:
    return str(api.get(f"/v1/runs/{run_id}")["state"])


def test_a_run_is_its_workflow(stack: Stack) -> None:
    api = Api(stack.info["api_url"], stack.info["api_key"])
    with Recorder() as target:
        run_id, workflow_id = begun(api, target)
        assert [(c.path, c.key, c.body) for c in target.calls] == [
            ("/charge", f"{workflow_id}:charge", b'{"cents":4599}')
        ]
        assert api.get(f"/v1/workflows/{workflow_id}")["parent"]["run_id"] == run_id
        api.call("POST", f"/v1/workflows/{workflow_id}/signals/confirmed", {"signal_id": "s-1"})
        eventually_sync(lambda: state_of(api, run_id) == "SUCCEEDED", timeout=30)
        assert api.get(f"/v1/workflows/{workflow_id}")["status"] == "COMPLETED"
        assert workflow_id not in {
            item["workflow_id"] for item in api.get("/v1/workflows/reconciliation")["items"]
        }


def test_cancelling_the_run_undoes_what_its_workflow_did(stack: Stack) -> None:
    api = Api(stack.info["api_url"], stack.info["api_key"])
    with Recorder() as target:
        run_id, workflow_id = begun(api, target)
        api.call("POST", f"/v1/runs/{run_id}:cancel")
        eventually_sync(lambda: state_of(api, run_id) == "CANCELLED", timeout=30)
        assert api.get(f"/v1/workflows/{workflow_id}")["status"] == "CANCELLED"
        assert [c.path for c in target.calls] == ["/charge", "/refund"]
        assert target.calls[1].headers["X-Compensates"] == f"{workflow_id}:charge"
