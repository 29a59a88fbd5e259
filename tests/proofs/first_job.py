"""first-job: a job created by the printed curl, and one of our own, are each called exactly once,
not early, with an idempotency key, a fencing token and a signature that the public
`standardwebhooks` package verifies."""

from __future__ import annotations

import json
import subprocess
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from standardwebhooks import Webhook

from tests.api import Api
from tests.recorder import Recorder
from tests.stack import Stack
from tests.waiting import eventually_sync

#: How long after the window we still look for a second call.
SECOND_LOOK_SECONDS = 4.0


def main() -> dict[str, Any]:
    with Recorder() as target, Stack() as stack:
        printed = _printed_curl(stack)
        own = _own_job(stack, target)
        figures = {**printed, **own}
        return {
            "holds": printed["curl_calls"] == 1
            and own["calls"] == 1
            and own["early_ms"] == 0
            and own["idempotency_key"]
            and own["fencing_token"]
            and own["body"]
            and own["signature_verified"]
            and own["state"] == "SUCCEEDED",
            **figures,
        }


def _printed_curl(stack: Stack) -> dict[str, Any]:
    """Runs the curl line of the start-up message as a user would paste it."""
    answer = subprocess.run(
        ["bash", "-c", stack.printed_curl], capture_output=True, text=True, timeout=30, check=True
    )
    job_id = json.loads(answer.stdout)["job_id"]

    def calls() -> list[dict[str, Any]]:
        seen: list[dict[str, Any]] = httpx.get(f"{stack.echo_url}/calls").json()["calls"]
        return [c for c in seen if job_id in json.dumps(c)]

    eventually_sync(lambda: bool(calls()), timeout=20)
    time.sleep(SECOND_LOOK_SECONDS)  # a second call must have had its chance
    return {"curl_calls": len(calls())}


def _own_job(stack: Stack, target: Recorder) -> dict[str, Any]:
    api = Api(stack.info["api_url"], stack.info["api_key"])
    registered = api.register_target(target.url)
    due = (datetime.now(UTC) + timedelta(seconds=5)).replace(microsecond=0)
    job = api.create_job(
        {
            "schedule": {"type": "ONCE", "run_at": due.strftime("%Y-%m-%dT%H:%M:%SZ")},
            "target": {"type": "HTTP", "target_id": registered["target_id"], "path": "/first"},
            "dispatch_window_seconds": 1,
            "payload": {"hello": "clockhouse"},
        }
    )
    run_id = f"{job['job_id']}:{due:%Y-%m-%dT%H:%M:%SZ}"
    eventually_sync(lambda: bool(target.calls), timeout=20)
    time.sleep(SECOND_LOOK_SECONDS)
    run = api.get(f"/v1/runs/{run_id}")
    call = target.calls[0]
    try:
        Webhook(registered["secret"]).verify(call.body, dict(call.headers))
        verified = True
    except Exception as error:  # noqa: BLE001 - any refusal of the package refutes the claim
        verified = False
        print(f"signature refused: {error!r}")
    due_at = datetime.fromisoformat(run["due_at"]).timestamp()
    return {
        "calls": len(target.calls),
        "early_ms": max(0, round((due_at - call.at) * 1000)),
        "late_ms": max(0, round((call.at - due_at) * 1000)),
        "idempotency_key": call.key == run_id,
        "fencing_token": int(call.headers["X-Fencing-Token"]) == run["epoch"] > 0,
        "signature_verified": verified,
        "body": call.body == b'{"hello":"clockhouse"}',
        "state": run["state"],
    }
