"""strict: a STRICT job is acknowledged and called only once another region has it. While no region confirms,
the answer is 503 UNCONFIRMED and nothing is called; the same request, sent again, makes one job; what was
acknowledged survives the loss of its region the moment after."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.recorder import Recorder
from tests.regional import RegionalStack
from tests.waiting import eventually_sync

CELL = "shared-1"
JOBS = 200


def main(jobs: int = JOBS) -> dict[str, Any]:
    environment = {"CLOCKHOUSE_CELLS": CELL, "CLOCKHOUSE_DEMO_JOBS": "0"}
    with Recorder() as target, RegionalStack(environment=environment) as stack:
        return prove_strict(stack, target, jobs=jobs)


def prove_strict(stack: RegionalStack, target: Recorder, *, jobs: int) -> dict[str, Any]:
    first = stack.owner(CELL)
    if first is None:
        raise AssertionError("nobody owns the cell")
    others = [region for region in stack.regions if region != first]
    api = stack.api_in(first)
    target_id = api.register_target(target.url)["target_id"]

    def body(number: int, seconds: float) -> dict[str, Any]:
        due = datetime.now(UTC) + timedelta(seconds=seconds)
        return {
            "schedule": {"type": "ONCE", "run_at": due.strftime("%Y-%m-%dT%H:%M:%SZ")},
            "target": {"type": "HTTP", "target_id": target_id},
            "dispatch_window_seconds": 1,
            "region_policy": "STRICT",
            "payload": {"number": number},
        }

    def post(what: dict[str, Any], key: str) -> httpx.Response:
        return api.http.post("/v1/jobs", json=what, headers={"Idempotency-Key": key})

    began = time.monotonic()
    confirmed = post(body(0, 1), str(uuid.uuid4()))
    confirmed_ms = round((time.monotonic() - began) * 1000)
    eventually_sync(lambda: len(target.calls) == 1, timeout=60)

    # Nobody confirms: it is stored at home, said to be no more than that, and not called.
    for region in others:
        stack.stop(f"postgres-{CELL}-{region}")
    alone, key = body(1, 1), str(uuid.uuid4())
    unconfirmed = post(alone, key)
    again = post(alone, key)
    late = time.time() + 4
    eventually_sync(lambda: time.time() > late, timeout=30)  # it is due meanwhile
    called_alone = len(target.calls) - 1
    for region in others:
        stack.start(f"postgres-{CELL}-{region}")
    eventually_sync(lambda: all(stack.keeper(CELL, region).get("ready") for region in others), timeout=120)
    replayed = eventually_sync(lambda: (got := post(alone, key)).status_code == 200 and got, timeout=60)
    eventually_sync(lambda: len(target.calls) == 2, timeout=60)

    # What was acknowledged is there when its region is gone the moment after.
    def create(number: int) -> str | None:
        answer = post(body(number, 45), str(uuid.uuid4()))
        return str(answer.json()["job_id"]) if answer.status_code == 201 else None

    with ThreadPoolExecutor(8) as pool:
        acknowledged = {job for job in pool.map(create, range(2, 2 + jobs)) if job is not None}
    stack.region_dies(first)
    owner = eventually_sync(lambda: stack.owner(CELL), timeout=120)
    there = stack.api_in(owner)
    eventually_sync(lambda: there.http.get("/v1/jobs").status_code == 200, timeout=60)
    lost = [job for job in acknowledged if there.http.get(f"/v1/jobs/{job}").status_code != 200]
    eventually_sync(lambda: len(target.keys()) >= 2 + len(acknowledged), timeout=180)
    return {
        "holds": confirmed.status_code == 201
        and [answer.status_code for answer in (unconfirmed, again)] == [503, 503]
        and unconfirmed.json()["code"] == "UNCONFIRMED"
        and called_alone == 0
        and replayed.status_code == 200
        and not lost
        and len(acknowledged) == jobs,
        "confirmed_ms": confirmed_ms,
        "unconfirmed": unconfirmed.json().get("code"),
        "called_while_unconfirmed": called_alone,
        "acknowledged": len(acknowledged),
        "lost": len(lost),
        "called_twice": sum(1 for count in target.keys().values() if count > 1),
        "from": first,
        "to": owner,
    }
