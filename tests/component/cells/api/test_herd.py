"""What will be due, by minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.component.cells.api.harness import Cell

pytestmark = pytest.mark.asyncio(loop_scope="session")

TARGET = "tgt_email"


async def test_the_coming_minutes(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    await api.target("https://other.internal", target_id="tgt_other")
    assert (await api.get("/v1/herd"))["minutes"] == []
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    at = now + timedelta(hours=2)
    once = {"schedule": {"type": "ONCE", "run_at": f"{at:%Y-%m-%dT%H:%M:%SZ}"}, "dispatch_window_seconds": 1}
    await api.job(TARGET, **once)
    await api.job("tgt_other", priority="LOW", **once)
    soon = f"{now + timedelta(minutes=10):%Y-%m-%dT%H:%M:%SZ}"
    hourly = {"type": "RATE", "every_seconds": 3600, "start_at": soon}
    rate = {"schedule": hourly, "dispatch_window_seconds": 1}
    recurring = await api.job(TARGET, **rate)
    cron = {"schedule": {"type": "CRON", "cron": "*/30 * * * *"}, "dispatch_window_seconds": 1}
    half_hourly = await api.job(TARGET, **cron)
    paused = await api.job(TARGET, **rate)
    await api.ok("POST", f"/v1/jobs/{paused['job_id']}:pause")

    herd = await api.get("/v1/herd?hours=6")
    assert (herd["truncated"], herd["jobs"], herd["jobs_left_out"]) == (False, 4, 0)
    found = {item["minute"]: item["count"] for item in herd["minutes"]}
    half_hours = _halves(half_hourly["next_run_at"], herd["until"])
    assert half_hours in (11, 12)
    assert herd["total"] == sum(found.values()) == 2 + 6 + half_hours
    assert herd["peak"]["count"] == max(found.values())
    first = datetime.fromisoformat(recurring["next_run_at"])
    for i in range(6):
        assert found[f"{first + timedelta(hours=i):%Y-%m-%dT%H:%M:%SZ}"] >= 1
    assert found[f"{at:%Y-%m-%dT%H:%M:%SZ}"] >= 2
    other = await api.get("/v1/herd?target=tgt_other")
    assert other["minutes"] == [{"minute": f"{at:%Y-%m-%dT%H:%M:%SZ}", "count": 1}]
    assert (await api.get("/v1/herd?priority=LOW"))["total"] == 1
    assert (await api.get("/v1/herd?priority=CRITICAL"))["total"] == 0
    hour = await api.get("/v1/herd?hours=1")
    assert hour["total"] == 1 + _halves(half_hourly["next_run_at"], hour["until"])
    for query in ("hours=0", "hours=49", "priority=low", "target=%00"):
        await api.problem("GET", f"/v1/herd?{query}", status=422, code="INVALID")


def _halves(first: str, until: str) -> int:
    ahead = datetime.fromisoformat(until) - datetime.fromisoformat(first)
    return -(-ahead // timedelta(minutes=30))


async def test_what_is_overdue_counts_now(running: Cell) -> None:
    await running.api.target(target_id=TARGET)
    await running.api.job(TARGET, schedule={"type": "ONCE", "run_at": "2026-01-05T09:00:00Z"})
    (minute,) = (await running.api.get("/v1/herd"))["minutes"]
    assert minute["count"] == 1
