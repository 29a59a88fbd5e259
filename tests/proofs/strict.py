"""strict: what is STRICT is acknowledged, called and handed to workers only once another region has it. While
none confirms, every route that changes it answers 503 UNCONFIRMED and nothing is called on its behalf: no
target, no worker, no step of a workflow. The same requests, sent again, are done once; what was acknowledged,
changes and endings included, survives the loss of its region the moment after."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.api import Api
from tests.recorder import Recorder
from tests.regional import RegionalStack
from tests.strict_routes import NOT_TWICE, Things, confirmed, once, poll_once, unconfirmed
from tests.waiting import eventually_sync

CELL = "shared-1"
#: Of each kind of change that is acknowledged before the region is lost; `JOBS=…`.
JOBS = 100


def main(jobs: int | None = None) -> dict[str, Any]:
    jobs = jobs or int(os.environ.get("JOBS", JOBS))
    environment = {"CLOCKHOUSE_CELLS": CELL, "CLOCKHOUSE_DEMO_JOBS": "0"}
    with Recorder() as target, RegionalStack(environment=environment) as stack:
        return prove_strict(stack, target, jobs=jobs)


def prove_strict(stack: RegionalStack, target: Recorder, *, jobs: int) -> dict[str, Any]:
    first = stack.owner(CELL)
    if first is None:
        raise AssertionError("nobody owns the cell")
    api = stack.api_in(first)
    target_id = api.register_target(target.url)["target_id"]
    began = time.monotonic()
    api.create_job(once(target_id, 1))
    confirmed_ms = round((time.monotonic() - began) * 1000)
    eventually_sync(lambda: len(target.calls) == 1, timeout=60)

    alone = _alone(stack, target, api, target_id, first)
    kept = _lost(stack, api, target_id, first, jobs=jobs)
    wanted = alone.pop("keys") + kept.pop("due")
    eventually_sync(lambda: len(target.keys()) >= wanted, timeout=180)
    return {
        "holds": not alone["acknowledged_alone"]
        and alone["called_alone"] == alone["polled_alone"] == 0
        and not alone["not_done_again"]
        and not kept["lost"]
        and kept["acknowledged"] == jobs * len(_KINDS),
        "confirmed_ms": confirmed_ms,
        **alone,
        **kept,
        "called_twice": sum(1 for count in target.keys().values() if count > 1),
        "from": first,
    }


def _alone(stack: RegionalStack, target: Recorder, api: Api, target_id: str, first: str) -> dict[str, Any]:
    """Both other regions are cut off, and everything is tried."""
    others = [region for region in stack.regions if region != first]
    things = Things(api, target_id)
    requests = list(things.requests())
    things.task("strict-waiting", poll=False)
    due = things.job()  # its run is due while nobody confirms
    before = len(target.calls)
    for region in others:
        stack.stop(f"postgres-{CELL}-{region}")
    # The calls that were confirmed before are made.
    eventually_sync(lambda: unconfirmed(api.http.post(f"/v1/jobs/{due}:trigger")), timeout=60)
    before = max(before, len(target.calls))
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda request: request.send(api), requests))
    acknowledged = [
        f"{request.what}: {answer.status_code} {answer.text[:200]}"
        for request, answer in zip(requests, answers, strict=True)
        if not unconfirmed(answer)
    ]
    late = time.time() + 4
    polled = 0

    def over() -> bool:
        nonlocal polled
        polled += len(poll_once(api, "strict-waiting"))
        return time.time() > late

    eventually_sync(over, timeout=60)
    called = len(target.calls) - before

    for region in others:
        stack.start(f"postgres-{CELL}-{region}")
    eventually_sync(lambda: all(stack.keeper(CELL, region).get("ready") for region in others), timeout=120)
    eventually_sync(lambda: requests[0].send(api).status_code == 200, timeout=60)
    again = [(request.what, request.send(api)) for request in requests if request.what not in NOT_TWICE]
    eventually_sync(lambda: poll_once(api, "strict-waiting"), timeout=60)
    # The job that was created, the runs that were triggered, and the step of the workflow that was paid.
    eventually_sync(lambda: len(target.calls) >= before + 4, timeout=60)
    return {
        "routes": len(requests),
        "acknowledged_alone": acknowledged,
        "called_alone": called,
        "polled_alone": polled,
        "not_done_again": [f"{what}: {answer.text[:200]}" for what, answer in again if not confirmed(answer)],
        "keys": len(target.keys()),
    }


def _create(things: Things) -> Callable[[Api], bool]:
    job = things.api.create_job(once(things.target_id, 60))["job_id"]
    return lambda api: api.http.get(f"/v1/jobs/{job}").status_code == 200


def _edit(things: Things) -> Callable[[Api], bool]:
    job, name = things.job(), uuid.uuid4().hex
    things.api.call("PATCH", f"/v1/jobs/{job}", {"name": name})
    return lambda api: api.http.get(f"/v1/jobs/{job}").json().get("name") == name


def _cancel(things: Things) -> Callable[[Api], bool]:
    job = things.job()
    things.api.call("DELETE", f"/v1/jobs/{job}")
    return lambda api: api.http.get(f"/v1/jobs/{job}").json().get("status") == "CANCELLED"


def _complete(things: Things) -> Callable[[Api], bool]:
    (task,) = things.task(f"q-{uuid.uuid4().hex[:8]}")
    path = f"/v1/runs/{task['run_id']}"
    things.api.call("POST", f"{path}:complete", {"epoch": task["epoch"], "outcome": "SUCCEEDED"})
    return lambda api: api.http.get(path).json().get("state") == "SUCCEEDED"


def _start(things: Things) -> Callable[[Api], bool]:
    name = things.workflow()
    return lambda api: api.http.get(f"/v1/workflows/{name}").status_code == 200


def _signal(things: Things) -> Callable[[Api], bool]:
    name = things.workflow()
    signal = {"signal_id": "s", "payload": {}}
    things.api.call("POST", f"/v1/workflows/{name}/signals/paid", signal)

    def heard(api: Api) -> bool:
        return bool(eventually_sync(
            lambda: api.http.get(f"/v1/workflows/{name}").json().get("status") == "COMPLETED", timeout=60
        ))  # fmt: skip

    return heard


#: What is acknowledged before the region is lost.
_KINDS = (_create, _edit, _cancel, _complete, _start, _signal)


def _lost(stack: RegionalStack, api: Api, target_id: str, first: str, *, jobs: int) -> dict[str, Any]:
    """What was acknowledged is there when its region is gone the moment after."""
    things = Things(api, target_id)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda kind: kind(things), _KINDS * jobs))
    died = time.monotonic()
    stack.region_dies(first)
    owner = eventually_sync(lambda: stack.owner(CELL), timeout=120)
    there = stack.api_in(owner)
    eventually_sync(lambda: there.http.get("/v1/jobs").status_code == 200, timeout=60)
    seconds = round(time.monotonic() - died, 1)
    kinds = [kind.__name__.strip("_") for kind in _KINDS * jobs]
    lost = [kind for kind, kept in zip(kinds, made, strict=True) if not kept(there)]
    return {
        "acknowledged": len(made),
        "lost": lost,
        "to": owner,
        "answers_after_seconds": seconds,
        "due": 2 * jobs,
    }
