"""Every occurrence has a verdict."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from cells.domain.run import RunState
from tests.component.cells.api.harness import Cell

pytestmark = pytest.mark.asyncio(loop_scope="session")

TARGET = "tgt_email"
HOURLY = {"type": "RATE", "every_seconds": 3600}


def shown(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def verdicts(ledger: Any) -> list[tuple[str, str, int]]:
    return [(item["scheduled_for"], item["verdict"], item["count"]) for item in ledger["past"]]


async def test_what_is_to_come(running: Cell) -> None:
    await running.api.target(target_id=TARGET)
    job = await running.api.job(TARGET, dispatch_window_seconds=600)
    path = f"/v1/jobs/{job['job_id']}/occurrences"
    ledger = await running.api.get(path)
    first = datetime.fromisoformat(job["next_run_at"])
    assert (ledger["past"], ledger["status"], ledger["next_cursor"]) == ([], "SCHEDULED", None)
    assert [item["at"] for item in ledger["next"]] == [shown(first + timedelta(hours=i)) for i in range(10)]
    assert ledger["next"][0]["due_at"] == job["due_at"]
    until = shown(first + timedelta(hours=2))
    assert len((await running.api.get(f"{path}?until={until}"))["next"]) == 2
    assert (await running.api.get(f"{path}?count=0"))["next"] == []


async def test_from_due_to_ran(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    job = await api.job(TARGET, schedule=HOURLY | {"start_at": shown(start)}, dispatch_window_seconds=1)
    path = f"/v1/jobs/{job['job_id']}/occurrences"
    running.clock.ahead_ms = 2_500
    assert verdicts(await api.get(path)) == [(shown(start), "due", 1)]
    running.clock.ahead_ms = 60_000
    (late,) = (await api.get(path))["past"]
    assert (late["verdict"], late["run_id"], late["late_ms"] > 50_000) == ("late", None, True)
    running.clock.ahead_ms = 0
    await running.claimable(job["job_id"])
    (claim,) = await running.claim(job["job_id"])
    assert verdicts(await api.get(path)) == [(shown(start), "running", 1)]
    await running.complete(claim, RunState.SUCCEEDED)
    trigger = await api.ok("POST", f"/v1/jobs/{job['job_id']}:trigger", status=201)
    by_hand, ran = (await api.get(path))["past"]
    assert (by_hand["run_id"], by_hand["verdict"], by_hand["by_hand"]) == (trigger["run_id"], "waiting", True)
    assert (ran["verdict"], ran["state"], ran["by_hand"]) == ("ran", "SUCCEEDED", False)
    assert ran["started_at"] is not None
    assert ran["sentence"] == "It ran."
    cut = await api.get(f"{path}?until={shown(start)}&count=0")
    assert cut["past"] == []


async def test_a_pause_is_told_while_it_lasts_and_afterwards(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(TARGET)
    path = f"/v1/jobs/{job['job_id']}"
    await api.ok("POST", f"{path}:pause")
    running.clock.ahead_ms = 3 * 3600 * 1000 + 60_000
    expected = [(job["next_run_at"], "skipped:paused", 3)]
    during = await api.get(f"{path}/occurrences")
    assert (verdicts(during), during["past"][0]["run_id"], during["next"]) == (expected, None, [])
    await api.ok("POST", f"{path}:resume")
    after = await api.get(f"{path}/occurrences")
    assert verdicts(after) == expected
    assert after["past"][0]["run_id"] == f"{job['job_id']}:{job['next_run_at']}"
    assert after["past"][0]["sentence"] == "Not run: the job was paused."
    assert len(after["next"]) == 10


async def test_what_holds_up_all_work_of_a_tenant_is_said(running: Cell) -> None:
    """Its own pause, and its quota of running runs."""
    api = running.api
    await api.target(target_id=TARGET)
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    job = await api.job(TARGET, schedule=HOURLY | {"start_at": shown(start)}, dispatch_window_seconds=1)
    path = f"/v1/jobs/{job['job_id']}"
    run = await api.ok("POST", f"{path}:trigger", status=201)
    running.clock.ahead_ms = 60_000

    async def said() -> list[tuple[str, str | None]]:
        items = (await api.get(f"{path}/occurrences"))["past"]
        return [(item["verdict"], item["reason"]) for item in items]

    assert await said() == [("late", None), ("waiting", None)]
    await running.place(api.tenant, paused=True)
    assert await said() == [("late", "paused"), ("waiting", "paused")]
    waiting = (await api.get(f"/v1/runs/{run['run_id']}"))["waiting"]
    assert (waiting["because"], waiting["target_id"]) == ("paused", None)
    await running.place(api.tenant)
    tenant, host = api.tenant, running.host.host_id
    await running.store.tell_running(full=[(tenant, 5, 5)], room=[], host_id=host)
    assert await said() == [("late", "quota"), ("waiting", "quota")]
    assert (await api.get(path))["waiting"]["because"] == "quota"
    (event,) = (await api.get("/v1/events?type=quota.reached"))["items"]
    assert event["data"] == {"quota": "running_runs", "limit": 5, "used": 5}
    await running.store.tell_running(full=[], room=[tenant], host_id=host)
    assert await said() == [("late", None), ("waiting", None)]


async def test_low_work_waits_for_the_budget(running: Cell) -> None:
    """And says so: what has no run yet, what is due, and what workers poll for; all else goes on."""
    api = running.api
    await api.target(target_id=TARGET)
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=20)
    hourly = HOURLY | {"start_at": shown(start)}
    paths = {}
    for priority in ("LOW", "DEFAULT"):
        job = await api.job(TARGET, schedule=hourly, dispatch_window_seconds=1, priority=priority)
        paths[priority] = f"/v1/jobs/{job['job_id']}"
        await api.ok("POST", f"{paths[priority]}:trigger", status=201)
    queue = {"type": "TASK_QUEUE", "task_queue": "ledger", "lease_seconds": 60}
    task = {"schedule": {"type": "NOW"}, "target": queue, "priority": "LOW"}
    pulled = await api.ok("POST", "/v1/jobs", task, status=201)
    await running.claimable(pulled["job_id"])
    assert await running.claim(pulled["job_id"]) == []
    running.clock.ahead_ms = 60_000

    async def said(path: str) -> list[tuple[str, str | None]]:
        items = (await api.get(f"{path}/occurrences"))["past"]
        return [(item["verdict"], item["reason"]) for item in items]

    await running.place(api.tenant, low_delayed=True)
    assert await said(paths["LOW"]) == [("late", "budget"), ("waiting", "budget")]
    assert (await api.get(paths["LOW"]))["waiting"]["because"] == "budget"
    assert await said(paths["DEFAULT"]) == [("late", None), ("waiting", None)]
    assert await said(f"/v1/jobs/{pulled['job_id']}") == [("waiting", "budget")]
    (run,) = (await api.get(f"/v1/runs?job_id={pulled['job_id']}"))["items"]
    assert (await api.get(f"/v1/runs/{run['run_id']}"))["waiting"]["because"] == "budget"
    await running.place(api.tenant)
    assert await said(paths["LOW"]) == [("late", None), ("waiting", None)]
    assert await said(f"/v1/jobs/{pulled['job_id']}") == [("waiting", None)]


async def test_misfires_and_failures(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    past = {"type": "ONCE", "run_at": "2026-01-05T09:00:00Z"}
    skipped = await api.job(TARGET, schedule=past, misfire_policy="SKIP")
    await running.claim(skipped["job_id"])
    ledger = await api.get(f"/v1/jobs/{skipped['job_id']}/occurrences")
    assert verdicts(ledger) == [("2026-01-05T09:00:00Z", "skipped:misfire", 1)]
    failed = await api.job(TARGET, schedule=past)
    (claim,) = await running.claim(failed["job_id"])
    await running.complete(claim, RunState.FAILED)
    ledger = await api.get(f"/v1/jobs/{failed['job_id']}/occurrences")
    assert verdicts(ledger) == [("2026-01-05T09:00:00Z", "failed", 1)]
    assert ledger["status"] == "COMPLETED"


async def test_a_retry_does_not_make_a_run_late(running: Cell) -> None:
    await running.api.target(target_id=TARGET)
    job = await running.api.job(TARGET, schedule={"type": "NOW"})
    path = f"/v1/jobs/{job['job_id']}/occurrences"
    (claim,) = await running.claim(job["job_id"])
    await running.complete(claim, RunState.SUCCEEDED)
    first = (await running.api.get(path))["past"][0]
    run = await running.api.get(f"/v1/runs/{first['run_id']}")
    begun = datetime.fromisoformat(run["attempts"][0]["started_at"])
    due = datetime.fromisoformat(run["due_at"])
    assert first["late_ms"] == (begun - due) // timedelta(milliseconds=1)
    async with await psycopg.AsyncConnection.connect(running.database_url, autocommit=True) as sql:
        # As after a second attempt, an hour later.
        await sql.execute(
            b"UPDATE runs SET started_at = started_at + interval '1 hour' WHERE tenant_id = %s",
            (running.api.tenant,),
        )
    assert (await running.api.get(path))["past"][0]["late_ms"] == first["late_ms"]


async def test_pages(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(TARGET)
    path = f"/v1/jobs/{job['job_id']}"
    runs = [(await api.ok("POST", f"{path}:trigger", status=201))["run_id"] for _ in range(5)]
    seen: list[str] = []
    where = f"{path}/occurrences?limit=2"
    while True:
        page = await api.send("GET", where)
        seen += [item["run_id"] for item in page.json()["past"]]
        if page.json()["next_cursor"] is None:
            break
        where = page.headers["link"].partition(">")[0].removeprefix("<")
    assert sorted(seen) == sorted(runs)
    other = await api.job(TARGET)
    cursor = (await api.get(f"{path}/occurrences?limit=2"))["next_cursor"]
    for wrong in (f"{path}/occurrences?limit=2&until={job['next_run_at']}&cursor={cursor}",
                  f"/v1/jobs/{other['job_id']}/occurrences?cursor={cursor}",
                  f"{path}/occurrences?from={job['next_run_at']}&until={job['next_run_at']}",
                  f"{path}/occurrences?count=101"):  # fmt: skip
        await api.problem("GET", wrong, status=422, code="INVALID")


async def test_a_backfill_that_is_asked_for_twice_under_one_key_is_one(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    now = datetime.now(UTC)
    job = await api.job(TARGET, schedule=HOURLY | {"start_at": "2026-01-01T00:00:00Z"})
    path = f"/v1/jobs/{job['job_id']}:backfill"
    stretch = {"from": shown(now - timedelta(hours=3)), "until": shown(now)}
    keyed = {"Idempotency-Key": "again"}
    first = await api.ok("POST", path, stretch, status=202, headers=keyed)
    assert (await api.ok("POST", path, stretch, status=202, headers=keyed))["backfill_id"] == first[
        "backfill_id"
    ]
    other = await api.ok("POST", path, stretch, status=202)
    assert other["backfill_id"] != first["backfill_id"]
    changed = stretch | {"max_per_second": 1}
    await api.problem("POST", path, changed, status=422, code="IDEMPOTENCY_KEY_REUSED", headers=keyed)
    listed = await api.get(f"/v1/backfills?job_id={job['job_id']}")
    assert len(listed["items"]) == 2
