"""static-stability: the whole control plane and its database are down (`OUTAGE_SECONDS`, usually a minute):
timers of every kind fire on time, the API answers, and routers start anew from what they have on disk."""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.api import Api
from tests.recorder import Recorder
from tests.stack import Stack
from tests.waiting import eventually_sync

#: Django, Celery, the engines: all that knows who exists. The ownership store is in the same PostgreSQL.
CONTROL_PLANE = (
    *("django", "celery-driving", "celery-sending", "celery-long", "celery-beat"),
    *("postgres-control", "valkey-control"),
)
OUTAGE_SECONDS = 60
#: Whatever fires later than this refutes the claim; so does a larger hole between two ticks.
LATEST_SECONDS = 5.0
#: Jobs for instants within the outage, made before it: one for so many seconds, and so many at most.
_EACH_SECONDS, _MOST_TIMERS = 2, 100


def main() -> dict[str, Any]:
    with Recorder() as target, Stack() as stack:
        outage = int(os.environ.get("OUTAGE_SECONDS", OUTAGE_SECONDS))
        return run_outage(stack, target, outage_seconds=outage)


@dataclass
class _Requests:
    """What was asked of the API meanwhile, and what was refused."""

    counts: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)

    def ask(self, name: str, call: Callable[[], Any]) -> Any:
        self.counts[name] += 1
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - every refusal is a figure of the proof
            self.refused.append(f"{name}: {error!r}"[:300])
            return None


def _http(target_id: str, path: str) -> dict[str, Any]:
    return {"type": "HTTP", "target_id": target_id, "path": path}


def run_outage(stack: Stack, target: Recorder, *, outage_seconds: int) -> dict[str, Any]:
    api, mark = Api(stack.info["api_url"], stack.info["api_key"]), secrets.token_hex(4)
    target_id = api.register_target(target.url)["target_id"]
    tick = api.create_job(
        {
            "schedule": {"type": "RATE", "every_seconds": 2},
            "target": _http(target_id, "/tick"),
            "dispatch_window_seconds": 1,
        }
    )
    yearly = api.create_job(
        {"schedule": {"type": "CRON", "cron": "0 3 1 1 *"}, "target": _http(target_id, "/yearly")}
    )
    steps = [{"id": "told", "activity": {"target_id": target_id, "path": "/step"}}]
    api.call("PUT", f"/v1/workflow-definitions/flow_{mark}/versions/1", {"steps": steps})
    eventually_sync(lambda: any(c.path == "/tick" for c in target.calls), timeout=30)
    # The first instants lie behind the time that stopping takes.
    first = time.time() + 8
    instants = [
        first + outage_seconds * n / timers
        for timers in [min(_MOST_TIMERS, max(4, outage_seconds // _EACH_SECONDS))]
        for n in range(timers)
    ]
    planned = {_once(api, target_id, at): int(at) for at in instants}

    down = [name for name in CONTROL_PLANE if name in stack.info["processes"]]
    for name in down:
        stack.stop(name)
    began, requests = time.time(), _Requests()
    until = max(began + outage_seconds, instants[-1] + LATEST_SECONDS)
    restarts = [began, began + (until - began) / 2, began + (until - began) * 3 / 4]
    restarted: list[float] = []
    created, started = [], []
    while time.time() < until:
        if restarts and time.time() >= restarts[0]:
            restarts.pop(0)
            at = time.time()
            # Once it ends in order, then it is killed: each time it knows all it needs from its disk.
            stack.stop("router", kill=bool(restarted))
            stack.start("router")
            restarted.append(time.time() - at)
        n = requests.counts.total()
        made = requests.ask("create", lambda: _now(api, target_id))
        created += [made["job_id"]] if made else []
        flow = {"workflow_id": f"{mark}-{n}", "definition": f"flow_{mark}"}
        if requests.ask("start workflow", lambda flow=flow: api.call("POST", "/v1/workflows", flow)):
            started.append(flow["workflow_id"])
        requests.ask("read", lambda: api.get(f"/v1/jobs/{tick['job_id']}"))
        requests.ask("list", lambda: api.get("/v1/runs", limit=5))
        path = f"/v1/jobs/{yearly['job_id']}"
        requests.ask("edit", lambda path=path, n=n: api.call("PATCH", path, {"name": f"n {n}"}))
        body = {"worker_id": mark, "wait_seconds": 0}
        requests.ask("poll", lambda body=body: api.call("POST", f"/v1/task-queues/q-{mark}/tasks:poll", body))
        time.sleep(0.5)
    ended = time.time()

    def completed() -> list[str]:
        found = [w for w in started if api.get(f"/v1/workflows/{w}")["status"] == "COMPLETED"]
        return found if len(found) == len(started) else []

    # What was asked for last ends a moment later, while the control plane is still down.
    eventually_sync(lambda: {c.key.split(":")[0] for c in list(target.calls)} >= {*created}, timeout=30)
    flows = eventually_sync(completed, timeout=30) if started else []
    ticks = sorted(c.at for c in target.calls if c.path == "/tick" and began <= c.at <= ended)
    gaps = [b - a for a, b in zip([began, *ticks], [*ticks, ended], strict=True)]
    calls = list(target.calls)
    called = Counter(c.key.split(":")[0] for c in calls)
    late = [c.at - planned[job] for c in calls if (job := c.key.split(":")[0]) in planned]

    for name in reversed(down):
        stack.start(name)
    usage_back = _answers(lambda: api.get("/v1/tenant"))
    fired = len(late) == len(planned) and min(late) >= 0 and max(late) <= LATEST_SECONDS
    return {
        "holds": not requests.refused
        and max(gaps) <= LATEST_SECONDS
        and fired
        and all(called[job] == 1 for job in created)
        and len(flows) == len(started) > 0
        and len(restarted) == 3
        and usage_back,
        "outage_seconds": round(ended - began),
        "router_restarts": len(restarted),
        "longest_router_restart_seconds": round(max(restarted), 1),
        "ticks": len(ticks),
        "largest_gap_seconds": round(max(gaps), 2),
        "timers": len(planned),
        "timers_fired": len(late),
        "latest_timer_seconds": round(max(late, default=0.0), 2),
        "api_requests": requests.counts.total(),
        "by_kind": dict(requests.counts),
        "api_refused": len(requests.refused),
        "first_refusal": requests.refused[0] if requests.refused else None,
        "jobs_created": len(created),
        "jobs_called_once": sum(called[job] == 1 for job in created),
        "workflows_started": len(started),
        "workflows_completed": len(flows),
        "management_api_back": usage_back,
    }


def _now(api: Api, target_id: str) -> Any:
    return api.create_job({"schedule": {"type": "NOW"}, "target": _http(target_id, "/now")})


def _once(api: Api, target_id: str, at: float) -> str:
    """A job for an instant, due at that very second."""
    when = datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = api.create_job(
        {
            "schedule": {"type": "ONCE", "run_at": when},
            "target": _http(target_id, "/once"),
            "dispatch_window_seconds": 1,
        }
    )
    return str(made["job_id"])


def _answers(call: Any) -> bool:
    def once() -> bool:
        try:
            call()
        except AssertionError:
            return False
        return True

    eventually_sync(once, timeout=60)
    return True
