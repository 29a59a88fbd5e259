"""The first requests of a user, literally."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

from tests.component.cells.api.harness import Api, Cell

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEY = "5d0c1f3a-8a7e-4b52-9a61-0e2f7c9b1d44"
DIGEST: dict[str, Any] = {
    "schedule": {"type": "CRON", "cron": "0 8 * * *", "time_zone": "America/New_York"},
    "target": {"url": "https://email.internal/v1/digests", "method": "POST", "timeout_seconds": 30},
    "payload": {"user_id": 1001, "kind": "daily_digest"},
    "retry_policy": {"max_attempts": 5, "initial_backoff_seconds": 10, "max_backoff_seconds": 600},
    "misfire_policy": "RUN_ONCE",
}
ROLLUP: dict[str, Any] = {
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
ROLLUP_TARGET: dict[str, Any] = {
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


async def test_create_read_and_cancel_the_digest(running: Cell) -> None:
    api = running.api
    await api.target("https://email.internal/v1", target_id="tgt_email")
    made = await api.send("POST", "/v1/jobs", DIGEST, headers={"Idempotency-Key": KEY})
    assert made.status_code == 201, made.text
    job = made.json()
    assert re.fullmatch(r"job_[0-9a-z]{26}", job["job_id"])
    assert made.headers["location"] == f"/v1/jobs/{job['job_id']}"
    assert made.headers["etag"] == '"1"'
    eight = datetime.now(ZoneInfo("America/New_York")).replace(hour=8, minute=0, second=0, microsecond=0)
    expected = eight if eight > datetime.now(UTC) else eight + timedelta(days=1)
    assert job["status"] == "SCHEDULED"
    assert job["next_run_at"] == expected.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert job["next_run_local"] == expected.isoformat()
    assert job["target"] == {
        "type": "HTTP", "target_id": "tgt_email", "path": "/digests", "method": "POST", "timeout_seconds": 30,
    }  # fmt: skip
    assert job["notes"] == []

    read = await api.get(f"/v1/jobs/{job['job_id']}")
    assert (read["job_id"], read["status"], read["recent_runs"]) == (job["job_id"], "SCHEDULED", [])
    assert read["payload"] == DIGEST["payload"]
    assert read["next_run_at"] == job["next_run_at"]

    gone = await api.ok("DELETE", f"/v1/jobs/{job['job_id']}")
    assert gone == {"job_id": job["job_id"], "status": "CANCELLED"}
    assert await api.ok("DELETE", f"/v1/jobs/{job['job_id']}") == gone
    after = await api.get(f"/v1/jobs/{job['job_id']}")
    assert (after["status"], after["next_run_at"], after["due_at"]) == ("CANCELLED", None, None)


async def test_the_same_key_again_makes_no_second_job(api: Api) -> None:
    await api.target("https://email.internal/v1")
    first = await api.send("POST", "/v1/jobs", DIGEST, headers={"Idempotency-Key": KEY})
    again = await api.send("POST", "/v1/jobs", DIGEST, headers={"Idempotency-Key": f'"{KEY}"'})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"
    await api.problem(
        "POST", "/v1/jobs", DIGEST | {"payload": {}}, status=422, code="IDEMPOTENCY_KEY_REUSED",
        headers={"Idempotency-Key": KEY},
    )  # fmt: skip
    assert len((await api.get("/v1/jobs"))["items"]) == 1


async def test_another_job_under_a_key_that_was_forgotten_is_another_job(
    own: Cell, cell_database_url: str
) -> None:
    api = own.api
    await api.target("https://email.internal/v1")
    first = await api.send("POST", "/v1/jobs", DIGEST, headers={"Idempotency-Key": KEY})
    async with await psycopg.AsyncConnection.connect(cell_database_url, autocommit=True) as sql:
        await sql.execute("DELETE FROM idempotency_keys")  # as upkeep does after 24 hours
    again = await api.send("POST", "/v1/jobs", DIGEST, headers={"Idempotency-Key": KEY})
    assert (again.status_code, again.json()["job_id"]) == (200, first.json()["job_id"])
    other = await api.send("POST", "/v1/jobs", DIGEST | {"name": "b"}, headers={"Idempotency-Key": KEY})
    assert (other.status_code, other.json()["name"]) == (201, "b")
    assert len((await api.get("/v1/jobs"))["items"]) == 2


async def test_a_one_off_in_local_time(api: Api) -> None:
    target = await api.target("https://reminders.internal")
    year = datetime.now(UTC).year + 1
    schedule = {"type": "ONCE", "run_at": f"{year}-09-28T09:00:00", "time_zone": "Europe/Berlin"}
    job = await api.job(target["target_id"], schedule=schedule)
    assert job["next_run_at"] == f"{year}-09-28T07:00:00Z"
    assert job["next_run_local"] == f"{year}-09-28T09:00:00+02:00"
    assert job["schedule"] == schedule | {"dst": {"gap": "SHIFT", "overlap": "FIRST"}}
    assert job["dispatch_window_seconds"] == 60


async def test_the_rollup_job_on_a_registered_target(api: Api) -> None:
    registered = await api.ok("POST", "/v1/targets", ROLLUP_TARGET, status=201)
    assert {name: registered[name] for name in ROLLUP_TARGET} == ROLLUP_TARGET
    assert registered["state"] == "PENDING"
    assert registered["secret"].startswith("whsec_")
    await api.problem("POST", "/v1/jobs", ROLLUP, status=422, code="TARGET_NOT_APPROVED")
    approved = await api.ok("POST", "/v1/targets/tgt_reports_rollup:approve")
    assert (approved["state"], approved["approved_by"]) == ("APPROVED", "key:test")
    assert "secret" not in approved
    job = await api.ok("POST", "/v1/jobs", ROLLUP, status=201)
    assert (job["priority"], job["dispatch_window_seconds"]) == ("DEFAULT", 300)
    due, scheduled = (datetime.fromisoformat(job[name]) for name in ("due_at", "next_run_at"))
    assert timedelta() <= due - scheduled < timedelta(seconds=300)


async def test_a_url_under_no_approved_target(api: Api) -> None:
    problem = await api.problem("POST", "/v1/jobs", DIGEST, status=422, code="TARGET_NOT_REGISTERED")
    assert problem["errors"][0]["pointer"] == "/target/url"
    await api.ok("POST", "/v1/targets", {"base_url": "https://email.internal/v1"}, status=201)
    await api.problem("POST", "/v1/jobs", DIGEST, status=422, code="TARGET_NOT_REGISTERED")
