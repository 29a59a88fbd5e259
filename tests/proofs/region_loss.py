"""region-loss: the region that owns a cell dies (-9) amid its due jobs; another one takes the cell over.
It owns it within 27 s and is on schedule within two minutes; every job runs, what was in flight is
repeated under its old key only, every region's API answers, and the dead region comes back fenced."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from controlplane.regions.deciding import Act
from tests.recorder import Recorder
from tests.regional import RegionalStack
from tests.waiting import eventually_sync

CELL = "shared-1"
JOBS = 600
#: The jobs are spread over so long: some are due before, some while nobody owns the cell, some after.
SPREAD_SECONDS = 90
OWNER_SECONDS, SCHEDULE_SECONDS = 27.0, 120.0
#: A run that starts so soon after it was due is on schedule.
ON_TIME_SECONDS = 2.0


def main(jobs: int = JOBS) -> dict[str, Any]:
    environment = {"CLOCKHOUSE_CELLS": CELL, "CLOCKHOUSE_DEMO_JOBS": "0"}
    with Recorder(delay_seconds=0.05) as target, RegionalStack(environment=environment) as stack:
        return lose_a_region(stack, target, jobs=jobs)


def lose_a_region(stack: RegionalStack, target: Recorder, *, jobs: int) -> dict[str, Any]:
    first = stack.owner(CELL)
    if first is None:
        raise AssertionError("nobody owns the cell")
    others = [region for region in stack.regions if region != first]
    expected = create(stack, others[0], target, jobs=jobs)
    eventually_sync(lambda: len(target.calls) >= jobs // 10, timeout=120)
    eventually_sync(lambda: all(stack.keeper(CELL, region).get("ready") for region in others), timeout=30)

    lost_at = time.time()
    stack.region_dies(first)
    down_at = time.time()
    owner = eventually_sync(lambda: stack.owner(CELL), timeout=120)
    owned_at = time.time()

    def done() -> bool:
        return len(expected & set(target.keys())) == len(expected)

    eventually_sync(done, timeout=240)
    on_time = _on_schedule(stack, owner, after=owned_at)
    answers = {region: stack.api_in(region).http.get("/v1/jobs").status_code for region in others}

    stack.region_returns(first)
    eventually_sync(
        lambda: stack.keeper(CELL, first).get("act") in (Act.FOLLOW.value, Act.STRAYED.value), timeout=120
    )
    still = stack.owner(CELL)
    keys = target.keys()
    seconds = {
        "owner_after": round(owned_at - lost_at, 1),
        "on_schedule_after": round(on_time - lost_at, 1),
    }
    return {
        "holds": seconds["owner_after"] <= OWNER_SECONDS + (down_at - lost_at)
        and seconds["on_schedule_after"] <= SCHEDULE_SECONDS
        and set(keys) >= expected
        and set(answers.values()) == {200}
        and still == owner,
        **seconds,
        "killing_took": round(down_at - lost_at, 1),
        "jobs": jobs,
        "never_called": len(expected - set(keys)),
        "called_twice": sum(1 for count in keys.values() if count > 1),
        "from": first,
        "to": owner,
        "answers": answers,
        "returned_as": stack.keeper(CELL, first).get("act"),
    }


def create(stack: RegionalStack, region: str, target: Recorder, *, jobs: int) -> set[str]:
    """Jobs through the API of a region that does not own the cell; their idempotency keys."""
    api = stack.api_in(region)
    target_id = api.register_target(target.url)["target_id"]
    begin = (datetime.now(UTC) + timedelta(seconds=10 + jobs / 100)).replace(microsecond=0)

    def create(number: int) -> str:
        due = begin + timedelta(seconds=number * SPREAD_SECONDS // jobs)
        at = due.strftime("%Y-%m-%dT%H:%M:%SZ")
        job = api.create_job(
            {
                "schedule": {"type": "ONCE", "run_at": at},
                "target": {"type": "HTTP", "target_id": target_id},
                "dispatch_window_seconds": 1,
                "payload": {"number": number},
            }
        )
        return f"{job['job_id']}:{at}"

    with ThreadPoolExecutor(4) as pool:
        return set(pool.map(create, range(jobs)))


def _on_schedule(stack: RegionalStack, region: str, *, after: float) -> float:
    """From when on every run started on time, by the new owner's own records (seconds since 1970)."""
    with psycopg.connect(stack.site(CELL, region)["database_url"]) as connection:
        row = connection.execute(
            "SELECT extract(epoch FROM max(started_at)) FROM runs"
            " WHERE started_at - due_at > %s * interval '1 second' AND started_at >= to_timestamp(%s)",
            (ON_TIME_SECONDS, after),
        ).fetchone()
    late = row[0] if row is not None else None
    return after if late is None else float(late)
