"""The first requests a user sends, literally, through the router of the whole stack."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.api import Api
from tests.recorder import Recorder
from tests.stack import Stack
from tests.waiting import eventually_sync

pytestmark = pytest.mark.stack

DIGEST = {
    "schedule": {"type": "CRON", "cron": "0 8 * * *", "time_zone": "America/New_York"},
    "target": {"url": "https://email.internal/v1/digests", "method": "POST", "timeout_seconds": 30},
    "payload": {"user_id": 1001, "kind": "daily_digest"},
    "retry_policy": {"max_attempts": 5, "initial_backoff_seconds": 10, "max_backoff_seconds": 600},
    "misfire_policy": "RUN_ONCE",
}
KEY = "5d0c1f3a-8a7e-4b52-9a61-0e2f7c9b1d44"
ROLLUP = {
    "schedule": {"type": "CRON", "cron": "0 * * * *", "time_zone": "UTC"},
    "priority": "DEFAULT",
    "dispatch_window_seconds": 300,
    "target": {
        "type": "HTTP",
        "target_id": "tgt_reports_rollup",
        "path": "/v1/rollups",
        "timeout_seconds": 60,
    },
    "payload": {"report": "hourly_sales"},
    "retry_policy": {"max_attempts": 5, "initial_backoff_seconds": 10, "max_backoff_seconds": 900},
}
ROLLUP_TARGET = {
    "target_id": "tgt_reports_rollup",
    "owner_team": "analytics-platform",
    "base_url": "https://rollups.analytics.internal",
    "max_concurrency": 200,
    "initial_concurrency": 50,
    "latency_slo_ms": 2000,
    "auth": {
        "type": "HMAC_SHA256",
        "secret_arn": "arn:aws:secretsmanager:us-east-1:111122223333:secret:sched-tgt-rollups",
    },
}


@pytest.fixture(scope="module")
def api(stack: Stack) -> Api:
    return Api(stack.info["api_url"], stack.info["api_key"])


def test_an_unregistered_url_is_refused_with_its_code(api: Api) -> None:
    job = {**DIGEST, "target": {**DIGEST["target"], "url": "https://nowhere.internal/v1/digests"}}  # type: ignore[dict-item]
    problem = api.call("POST", "/v1/jobs", job, expect=(422,), headers={"Idempotency-Key": "unregistered"})
    assert problem["code"] == "TARGET_NOT_REGISTERED"


def test_the_digest_job_is_created_read_and_cancelled(api: Api) -> None:
    api.register_target("https://email.internal/v1", target_id="tgt_email")
    made = api.http.post("/v1/jobs", json=DIGEST, headers={"Idempotency-Key": KEY})
    assert made.status_code == 201
    job = made.json()
    assert re.fullmatch(r"job_[0-9a-z]{26}", job["job_id"])
    assert job["status"] == "SCHEDULED"
    eight = datetime.now(ZoneInfo("America/New_York")).replace(hour=8, minute=0, second=0, microsecond=0)
    expected = eight if eight > datetime.now(UTC) else eight + timedelta(days=1)
    assert datetime.fromisoformat(job["next_run_at"]) == expected
    assert job["next_run_local"] == expected.isoformat()

    again = api.http.post("/v1/jobs", json=DIGEST, headers={"Idempotency-Key": f'"{KEY}"'})
    assert (again.status_code, again.json()["job_id"]) == (200, job["job_id"])
    other = api.http.post("/v1/jobs", json={**DIGEST, "payload": {}}, headers={"Idempotency-Key": KEY})
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")

    read = api.get(f"/v1/jobs/{job['job_id']}")
    assert (read["job_id"], read["status"], read["recent_runs"]) == (job["job_id"], "SCHEDULED", [])
    gone = api.call("DELETE", f"/v1/jobs/{job['job_id']}", expect=(200,))
    assert gone == {"job_id": job["job_id"], "status": "CANCELLED"}
    assert api.get(f"/v1/jobs/{job['job_id']}")["status"] == "CANCELLED"


def test_a_one_off_job_in_local_time(api: Api) -> None:
    api.call("DELETE", "/v1/targets/tgt_berlin", expect=(200, 204, 404))
    api.register_target("https://reminders.internal", target_id="tgt_berlin")
    year = datetime.now(UTC).year + 1
    job = api.create_job(
        {
            "schedule": {"type": "ONCE", "run_at": f"{year}-09-28T09:00:00", "time_zone": "Europe/Berlin"},
            "target": {"target_id": "tgt_berlin"},
        }
    )
    assert job["next_run_at"] == f"{year}-09-28T07:00:00Z"
    assert job["next_run_local"] == f"{year}-09-28T09:00:00+02:00"


def test_the_rollup_job_with_a_registered_target(api: Api) -> None:
    registered = api.call("POST", "/v1/targets", ROLLUP_TARGET, expect=(201,))
    assert registered["target_id"] == "tgt_reports_rollup"
    assert registered["owner_team"] == "analytics-platform"
    early = api.call(
        "POST", "/v1/jobs", ROLLUP, expect=(422,), headers={"Idempotency-Key": "before-approval"}
    )
    assert early["code"] == "TARGET_NOT_APPROVED"
    api.call("POST", "/v1/targets/tgt_reports_rollup:approve")
    job = api.create_job(ROLLUP)
    assert (job["priority"], job["dispatch_window_seconds"]) == ("DEFAULT", 300)
    due = datetime.fromisoformat(job["due_at"])
    scheduled = datetime.fromisoformat(job["next_run_at"])
    assert timedelta() <= due - scheduled < timedelta(seconds=300)


def test_a_failing_run_is_retried_with_the_same_key_and_ends_in_the_dlq(api: Api) -> None:
    with Recorder(status=503) as target:
        registered = api.register_target(target.url)
        job = api.create_job(
            {
                "schedule": {"type": "NOW"},
                "target": {"target_id": registered["target_id"], "path": "/down"},
                "retry_policy": {
                    "max_attempts": 3,
                    "initial_backoff_seconds": 0.2,
                    "max_backoff_seconds": 0.5,
                },
            }
        )

        def ended() -> bool:
            runs = api.get(f"/v1/jobs/{job['job_id']}")["recent_runs"]
            return bool(runs) and runs[0]["state"] == "FAILED"

        eventually_sync(ended, timeout=30)
        assert len(target.calls) == 3
        assert len(target.keys()) == 1
        tokens = [int(call.headers["X-Fencing-Token"]) for call in target.calls]
        assert tokens == sorted(set(tokens))
    (item,) = [i for i in api.get("/v1/dlq")["items"] if i["job_id"] == job["job_id"]]
    assert item["http_status"] == 503


@pytest.mark.metered
def test_the_daily_cost_counts_the_runs(stack: Stack, api: Api) -> None:
    with Recorder() as target:
        registered = api.register_target(target.url)
        for _ in range(5):
            api.create_job({"schedule": {"type": "NOW"}, "target": {"target_id": registered["target_id"]}})
        eventually_sync(lambda: len(target.calls) == 5, timeout=20)

    def metered() -> bool:
        days = api.get("/v1/cost-reports/daily")["items"]
        runs = [line["quantity"] for day in days for line in day["lines"] if line["metric"] == "job_runs"]
        return sum(runs) >= 5

    # A minute is sealed when it is over and nothing that began in it is still open.
    eventually_sync(metered, timeout=100, interval=1)
