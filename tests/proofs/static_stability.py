"""static-stability: Django, Celery, the control plane's PostgreSQL and its Valkey are stopped for a
minute and the router is restarted meanwhile. Jobs keep firing and the data-plane API keeps answering."""

from __future__ import annotations

import time
from typing import Any

from tests.api import Api
from tests.recorder import Recorder
from tests.stack import Stack
from tests.waiting import eventually_sync

CONTROL_PLANE = (
    *("django", "celery-driving", "celery-sending", "celery-long", "celery-beat"),
    *("postgres-control", "valkey-control"),
)
OUTAGE_SECONDS = 60
#: The job fires every two seconds; a larger hole than this refutes the claim.
LARGEST_GAP_SECONDS = 5.0


def main(outage_seconds: int = OUTAGE_SECONDS) -> dict[str, Any]:
    with Recorder() as target, Stack() as stack:
        return run_outage(stack, target, outage_seconds=outage_seconds)


def run_outage(stack: Stack, target: Recorder, *, outage_seconds: int) -> dict[str, Any]:
    api = Api(stack.info["api_url"], stack.info["api_key"])
    registered = api.register_target(target.url)
    job = api.create_job(
        {
            "schedule": {"type": "RATE", "every_seconds": 2},
            "target": {"type": "HTTP", "target_id": registered["target_id"], "path": "/tick"},
            "dispatch_window_seconds": 1,
        }
    )
    eventually_sync(lambda: len(target.calls) >= 2, timeout=30)

    for name in CONTROL_PLANE:
        stack.stop(name)
    began = time.time()
    stack.stop("router")
    stack.start("router")
    router_back = time.time()
    requests, refused, created = 0, [], []
    while time.time() - began < outage_seconds:
        requests += 2
        try:
            created.append(
                api.create_job(
                    {
                        "schedule": {"type": "NOW"},
                        "target": {"type": "HTTP", "target_id": registered["target_id"], "path": "/now"},
                    }
                )["job_id"]
            )
            api.get(f"/v1/jobs/{job['job_id']}")
        except Exception as error:  # noqa: BLE001 - every refusal is a figure of the proof
            refused.append(repr(error)[:300])
        time.sleep(0.5)
    ended = time.time()
    ticks = sorted(c.at for c in target.calls if c.path == "/tick" and began <= c.at <= ended)
    gaps = [b - a for a, b in zip([began, *ticks], [*ticks, ended], strict=True)]
    called = {c.key.split(":")[0] for c in list(target.calls) if c.path == "/now"}

    for name in reversed(CONTROL_PLANE):
        stack.start(name)
    usage_back = _answers(lambda: api.get("/v1/tenant"))
    return {
        "holds": not refused and max(gaps) <= LARGEST_GAP_SECONDS and set(created) <= called and usage_back,
        "outage_seconds": round(ended - began),
        "router_restart_seconds": round(router_back - began, 1),
        "ticks": len(ticks),
        "largest_gap_seconds": round(max(gaps), 2),
        "api_requests": requests,
        "api_refused": len(refused),
        "first_refusal": refused[0] if refused else None,
        "jobs_created": len(created),
        "jobs_called": len(set(created) & called),
        "management_api_back": usage_back,
    }


def _answers(call: Any) -> bool:
    def once() -> bool:
        try:
            call()
        except AssertionError:
            return False
        return True

    eventually_sync(once, timeout=60)
    return True
