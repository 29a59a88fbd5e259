"""Editing, cancelling, pausing, resuming and triggering jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cells.domain.run import RunState
from cells.ports import Conflict
from tests.component.cells.api.harness import Api, Cell
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

TARGET = "tgt_email"


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


# --- edits -------------------------------------------------------------------------------
async def test_an_edit_makes_a_version_and_moves_the_timer(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(TARGET, payload={"a": 1, "b": {"c": 2}}, tags=["x"], name="old")
    path = f"/v1/jobs/{job['job_id']}"
    assert await running.timers(job["job_id"]) == {1: ms(job["due_at"])}
    edited = await api.ok("PATCH", path, {"name": "new", "payload": {"b": {"c": None, "d": 3}}})
    assert (edited["version"], edited["name"], edited["tags"]) == (2, "new", ["x"])
    assert edited["payload"] == {"a": 1, "b": {"d": 3}}
    assert (edited["next_run_at"], edited["due_at"]) == (job["next_run_at"], job["due_at"])
    assert await running.timers(job["job_id"]) == {2: ms(job["due_at"])}

    moved = await api.ok("PATCH", path, {"schedule": {"every_seconds": 600}, "dispatch_window_seconds": 1})
    assert moved["version"] == 3
    assert moved["schedule"]["start_at"] == job["schedule"]["start_at"]
    assert datetime.fromisoformat(moved["next_run_at"]) <= datetime.now(UTC) + timedelta(seconds=600)
    assert await running.timers(job["job_id"]) == {3: ms(moved["due_at"])}

    cleared = await api.ok("PATCH", path, {"name": None, "tags": None, "payload": None})
    assert (cleared["name"], cleared["tags"], cleared["payload"]) == (None, [], None)
    assert (await api.get(path)) == cleared | {"recent_runs": [], "waiting": None}
    assert (await api.get("/v1/jobs?tag=x"))["items"] == []


async def test_another_type_of_schedule_or_target_replaces_the_old_one(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    await api.target("https://b.example/v2", target_id="tgt_b")
    job = await api.job(TARGET, target={"target_id": TARGET, "path": "/x", "timeout_seconds": 9})
    path = f"/v1/jobs/{job['job_id']}"
    edited = await api.ok(
        "PATCH",
        path,
        {"schedule": {"type": "CRON", "cron": "0 8 * * *"}, "target": {"url": "https://b.example/v2/y"}},
    )
    assert edited["schedule"] == {
        "type": "CRON", "cron": "0 8 * * *", "time_zone": "UTC", "dst": {"gap": "SHIFT", "overlap": "FIRST"},
    }  # fmt: skip
    assert edited["target"] == {
        "type": "HTTP", "target_id": "tgt_b", "path": "/y", "method": "POST", "timeout_seconds": 9,
    }  # fmt: skip
    assert edited["next_run_at"].endswith("T08:00:00Z")
    assert (await api.get("/v1/jobs?target=tgt_email"))["items"] == []


async def test_a_wrong_edit_lists_its_faults_and_changes_nothing(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(TARGET, schedule={"type": "CRON", "cron": "0 8 * * *"})
    path = f"/v1/jobs/{job['job_id']}"
    before = await api.get(path)
    for patch, pointers in (
        ({"nmae": "x", "priority": "URGENT"}, {"/nmae", "/priority"}),
        ({"schedule": {"cron": "61 * * * *"}, "name": ""}, {"/schedule/cron", "/name"}),
        ({"schedule": {"every_seconds": 5}}, {"/schedule/every_seconds"}),
        ({"schedule": None, "target": None}, {"/schedule", "/target"}),
        ({"schedule": 5}, {"/schedule"}),
        ({"target": {"path": "/../x"}}, {"/target/path"}),
        ({"region_policy": "SINGLE_REGION"}, {"/region_policy"}),
        ({"dispatch_window_seconds": 0}, {"/dispatch_window_seconds"}),
        ({"job_id": "x", "status": "PAUSED"}, {"/job_id", "/status"}),
    ):
        problem = await api.problem("PATCH", path, patch, status=422, code="INVALID")
        assert {fault["pointer"] for fault in problem["errors"]} == pointers, problem
    await api.problem("PATCH", path, b"[1]", status=422, code="INVALID")
    await api.problem("PATCH", path, b"{", status=400, code="MALFORMED")
    await api.problem("PATCH", path, {"payload": "x" * 262_144}, status=413, code="PAYLOAD_TOO_LARGE")
    await api.problem(
        "PATCH", path, {"target": {"target_id": "tgt_none"}}, status=422, code="TARGET_NOT_REGISTERED"
    )
    assert await api.get(path) == before
    assert await running.timers(job["job_id"]) in ({}, {1: ms(job["due_at"])})


async def test_if_match_names_the_version(api: Api) -> None:
    await api.target(target_id=TARGET)
    job = await api.job(TARGET)
    path = f"/v1/jobs/{job['job_id']}"
    read = await api.send("GET", path)
    first = read.headers["etag"]
    assert first == '"1"'
    edited = await api.send("PATCH", path, {"name": "a"}, headers={"If-Match": first})
    assert (edited.status_code, edited.headers["etag"]) == (200, '"2"')
    for method, where, body in (
        ("PATCH", path, {"name": "b"}),
        ("DELETE", path, None),
        ("POST", path + ":pause", None),
    ):
        for stale in (first, 'W/"2"', '"x"', "2", '"99"'):
            problem = await api.problem(
                method, where, body, status=412, code="PRECONDITION_FAILED", headers={"If-Match": stale}
            )
            assert problem["version"] == 2
    assert (await api.get(path))["name"] == "a"
    for fresh in ("*", '"3"', '"9", "4"'):
        await api.ok("PATCH", path, {"name": "c"}, headers={"If-Match": fresh})


async def test_an_edit_that_loses_against_a_run_says_so(running: Cell) -> None:
    """The run begins between the edit's reading and its writing."""
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(
        TARGET, schedule={"type": "RATE", "every_seconds": 1, "start_at": "2026-01-01T00:00:00Z"}
    )
    path = f"/v1/jobs/{job['job_id']}"

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(running.store, name)

        async def edit_job(self, *args: Any, **more: Any) -> Any:
            await eventually(lambda: running.claim(job["job_id"]))
            return await running.store.edit_job(*args, **more)

    racing = running.with_engines(store=Slow())  # type: ignore[arg-type]
    problem = await racing.problem("PATCH", path, {"name": "x"}, status=409, code="RUN_UNDER_WAY")
    assert "nothing was changed" in problem["detail"]
    after = await api.get(path)
    assert (after["version"], after["name"]) == (1, None)


async def test_an_edit_that_loses_against_another_edit_is_merged_again(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(TARGET)
    path = f"/v1/jobs/{job['job_id']}"
    lost = 0

    class Losing:
        def __getattr__(self, name: str) -> Any:
            return getattr(running.store, name)

        async def edit_job(self, *args: Any, **more: Any) -> Any:
            nonlocal lost
            lost += 1
            if lost == 1:
                await api.ok("PATCH", path, {"tags": ["other"]})
            return await running.store.edit_job(*args, **more)

    racing = running.with_engines(store=Losing())  # type: ignore[arg-type]
    edited = await racing.ok("PATCH", path, {"name": "mine"})
    assert (edited["version"], edited["name"], edited["tags"]) == (3, "mine", ["other"])
    lost = 0
    await racing.problem(
        "PATCH", path, {"name": "again"}, status=412, code="PRECONDITION_FAILED", headers={"If-Match": '"3"'}
    )
    assert (await api.get(path))["name"] == "mine"


async def test_an_edit_may_not_exceed_the_strict_allowance(running: Cell) -> None:
    api = running.api
    await running.place(api.tenant, strict_jobs_per_second=1)
    await api.target(target_id=TARGET)
    strict = {"priority": "CRITICAL", "dispatch_window_seconds": 0}
    once = {"type": "ONCE", "run_at": "2027-01-05T09:00:00Z"}
    await api.job(TARGET, schedule=once, **strict)
    job = await api.job(TARGET, schedule=once)
    path = f"/v1/jobs/{job['job_id']}"
    problem = await api.problem("PATCH", path, strict, status=409, code="STRICT_ALLOWANCE_EXCEEDED")
    assert problem["nearest_available"] == "2027-01-05T09:00:01Z"
    later = {"schedule": {"run_at": "2027-01-05T09:00:01Z"}}
    assert (await api.ok("PATCH", path, strict | later))["due_at"] == "2027-01-05T09:00:01Z"


async def test_ended_jobs_cannot_be_edited(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(TARGET, schedule={"type": "NOW"})
    (claim,) = await running.claim(job["job_id"])
    await running.complete(claim, RunState.SUCCEEDED)
    path = f"/v1/jobs/{job['job_id']}"
    await api.problem("PATCH", path, {"name": "x"}, status=409, code="CONFLICT")
    await api.problem("POST", path + ":pause", status=409, code="CONFLICT")
    await api.problem("POST", path + ":resume", status=409, code="CONFLICT")
    await api.problem("DELETE", path, status=409, code="CONFLICT")
    assert (await api.get(path))["status"] == "COMPLETED"


# --- states ------------------------------------------------------------------------------
async def test_pause_and_resume(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(TARGET)
    path = f"/v1/jobs/{job['job_id']}"
    paused = await api.ok("POST", path + ":pause")
    assert (paused["status"], paused["next_run_at"], paused["due_at"]) == ("PAUSED", None, None)
    assert await running.timers(job["job_id"]) == {}
    assert await api.ok("POST", path + ":pause") == paused
    assert [item["job_id"] for item in (await api.get("/v1/jobs?state=PAUSED"))["items"]] == [job["job_id"]]
    # Two occurrences go by; the one to come is the first after now, on the same grid.
    running.clock.ahead_ms = 2 * 3600 * 1000
    edited = await api.ok("PATCH", path, {"name": "while paused"})
    assert (edited["status"], edited["version"]) == ("PAUSED", 2)
    resumed = await api.ok("POST", path + ":resume")
    expected = datetime.fromisoformat(job["next_run_at"]) + timedelta(hours=2)
    assert resumed["status"] == "SCHEDULED"
    assert datetime.fromisoformat(resumed["next_run_at"]) == expected
    assert await running.timers(job["job_id"]) == {2: ms(resumed["due_at"])}
    assert await api.ok("POST", path + ":resume") == resumed
    (missed,) = (await api.get(path))["recent_runs"]
    assert (missed["scheduled_for"], missed["state"]) == (job["next_run_at"], "SKIPPED")
    assert (await api.get(f"/v1/runs/{missed['run_id']}"))["reason"] == "paused"


async def test_a_one_off_that_went_by_while_paused_runs_late(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(TARGET, schedule={"type": "ONCE", "run_at": "2026-01-05T09:00:00Z"})
    path = f"/v1/jobs/{job['job_id']}"
    await api.ok("POST", path + ":pause")
    resumed = await api.ok("POST", path + ":resume")
    assert resumed["next_run_at"] == job["next_run_at"]
    assert resumed["due_at"] > job["due_at"]
    (claim,) = await running.claim(job["job_id"])
    assert str(claim.key) == f"{job['job_id']}:2026-01-05T09:00:00Z"


async def test_a_job_paused_beyond_its_end_is_completed(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    end = (datetime.now(UTC) + timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
    job = await api.job(TARGET, schedule={"type": "RATE", "every_seconds": 3600, "end_at": end})
    path = f"/v1/jobs/{job['job_id']}"
    await api.ok("POST", path + ":pause")
    running.clock.ahead_ms = 5 * 3600 * 1000
    assert (await api.ok("POST", path + ":resume"))["status"] == "COMPLETED"


async def test_cancelling_takes_the_waiting_runs_along(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(TARGET)
    path = f"/v1/jobs/{job['job_id']}"
    run = await api.ok("POST", path + ":trigger", status=201)
    assert await api.ok("DELETE", path) == {"job_id": job["job_id"], "status": "CANCELLED"}
    assert (await api.get(f"/v1/runs/{run['run_id']}"))["state"] == "CANCELLED"
    assert 1 not in await running.timers(job["job_id"])
    for verb in (":pause", ":resume"):
        await api.problem("POST", path + verb, status=409, code="CONFLICT")
    await api.problem("POST", path + ":trigger", status=409, code="CONFLICT")


# --- runs by hand ------------------------------------------------------------------------
async def test_a_trigger_starts_a_run_now(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(TARGET, payload={"own": 1})
    path = f"/v1/jobs/{job['job_id']}:trigger"
    answer = await api.send("POST", path, headers={"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"})
    assert answer.status_code == 201
    run = answer.json()
    assert answer.headers["location"] == f"/v1/runs/{run['run_id']}"
    assert run["run_id"] == run["idempotency_key"] == f"{job['job_id']}:{run['scheduled_for']}:1"
    assert (run["state"], run["outcome"], run["attempt"]) == ("DUE", None, 0)
    assert run["where_the_time_went"]["window_ms"] < 1000
    timers = await running.timers(job["job_id"])
    assert ms(run["due_at"]) in timers.values()
    second = await api.ok("POST", path, {"payload": {"mine": 2}}, status=201)
    assert second["run_id"].endswith(":2")
    assert (await api.get(f"/v1/jobs/{job['job_id']}"))["next_run_at"] == job["next_run_at"]
    for wrong, pointer in (({"payloads": 1}, "/payloads"), ([], "")):
        problem = await api.problem("POST", path, wrong, status=422, code="INVALID")
        assert problem["errors"][0]["pointer"] == pointer
    paused = await api.ok("POST", f"/v1/jobs/{job['job_id']}:pause")
    assert paused["status"] == "PAUSED"
    await api.ok("POST", path, status=201)


async def test_a_trigger_under_a_key_starts_one_run(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job, other = await api.job(TARGET), await api.job(TARGET)
    path = f"/v1/jobs/{job['job_id']}:trigger"
    key = {"Idempotency-Key": "once"}
    first = await api.send("POST", path, headers=key)
    again = await api.send("POST", path, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["run_id"] == first.json()["run_id"]
    assert again.headers["idempotency-replayed"] == "true"
    await api.problem("POST", path, {"payload": 1}, status=422, code="IDEMPOTENCY_KEY_REUSED", headers=key)
    elsewhere = await api.send("POST", f"/v1/jobs/{other['job_id']}:trigger", headers=key)
    assert elsewhere.status_code == 201
    assert len((await api.get(f"/v1/runs?job_id={job['job_id']}"))["items"]) == 1


# --- a queue that is down ----------------------------------------------------------------
async def test_writes_go_on_while_the_queue_is_down(running: Cell) -> None:
    class Down:
        async def add(self, members: Any) -> None:
            raise Conflict("broken in a way nobody thought of")

        async def remove(self, members: Any) -> None:
            raise ConnectionError("no route to host")

    await running.api.target(target_id=TARGET)
    api = running.with_engines(queue=Down())  # type: ignore[arg-type]
    job = await api.job(TARGET)
    await api.ok("PATCH", f"/v1/jobs/{job['job_id']}", {"priority": "HIGH"})
    await api.ok("POST", f"/v1/jobs/{job['job_id']}:trigger", status=201)
    await api.ok("DELETE", f"/v1/jobs/{job['job_id']}")
    services = api.app.state.services
    await services.feed.flush()
    assert services.metrics.registry.get_sample_value("cell_api_queue_missed_total") == 5
    assert (await running.api.get(f"/v1/jobs/{job['job_id']}"))["status"] == "CANCELLED"
