"""Three regions as `make regions` starts them, small: jobs run where they belong, wherever told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.recorder import Recorder
from tests.regional import RegionalStack
from tests.waiting import eventually_sync

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(420)]

CELL = "shared-1"


def test_jobs_of_another_region_run_at_home_and_in_their_region_alone() -> None:
    environment = {"CLOCKHOUSE_CELLS": CELL, "CLOCKHOUSE_DEMO_JOBS": "0"}
    with Recorder() as target, RegionalStack(environment=environment) as stack:
        owner = stack.owner(CELL)
        assert owner is not None
        other = next(region for region in stack.regions if region != owner)
        api = stack.api_in(other)
        target_id = api.register_target(target.url)["target_id"]
        at = (datetime.now(UTC) + timedelta(seconds=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
        made = [
            api.create_job(
                {
                    "schedule": {"type": "ONCE", "run_at": at},
                    "target": {"type": "HTTP", "target_id": target_id},
                    "dispatch_window_seconds": 1,
                    "region_policy": policy,
                }
            )["job_id"]
            for policy in ("HOME_ASYNC", "SINGLE_REGION")
        ]
        keys = {f"{job_id}:{at}" for job_id in made}
        eventually_sync(lambda: keys <= set(target.keys()), timeout=60)
        assert [job["job_id"] for job in api.get("/v1/jobs")["items"]][:2] == made[::-1]
        runs = [api.get(f"/v1/runs/{key}")["state"] for key in sorted(keys)]
        assert set(runs) <= {"RUNNING", "SUCCEEDED"}
