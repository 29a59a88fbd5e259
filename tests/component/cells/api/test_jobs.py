"""Creating, reading and listing jobs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cells.domain.run import RunState
from cells.ports import Retryable
from tests.component.cells.api.harness import Api, Cell

pytestmark = pytest.mark.asyncio(loop_scope="session")

TARGET = "tgt_email"
NOW_JOB: dict[str, Any] = {"schedule": {"type": "NOW"}, "target": {"target_id": TARGET}}


def parsed(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_all_faults_at_once_and_nothing_is_made(api: Api) -> None:
    problem = await api.problem(
        "POST",
        "/v1/jobs",
        {
            "schedule": {"type": "CRON", "cron": "61 8 * * *", "time_zone": "Mars/Olympus", "end_at": "soon"},
            "target": {"target_id": "tgt_email", "path": "/../admin"},
            "priority": "URGENT",
            "overlap_policy": "NEVER",
        },
        status=422,
        code="INVALID",
    )
    assert {fault["pointer"] for fault in problem["errors"]} == {
        "/schedule/cron",
        "/schedule/time_zone",
        "/schedule/end_at",
        "/target/path",
        "/priority",
        "/overlap_policy",
    }
    assert (await api.get("/v1/jobs"))["items"] == []


async def test_schedules_that_cannot_be(api: Api) -> None:
    await api.target(target_id=TARGET)
    for schedule, pointer in (
        ({"type": "CRON", "cron": "0 0 30 2 *"}, "/schedule/cron"),
        ({"type": "CRON", "cron": "0 0 0 12 * *"}, "/schedule/cron"),
        ({"type": "ONCE", "run_at": "2026-09-28T09:00:00"}, "/schedule/time_zone"),
        (
            {
                "type": "ONCE",
                "run_at": "2027-03-28T02:30:00",
                "time_zone": "Europe/Berlin",
                "dst": {"gap": "SKIP"},
            },
            "/schedule/run_at",
        ),
        ({"type": "RATE", "every_seconds": 60, "end_at": "2020-01-01T00:00:00Z"}, "/schedule/end_at"),
    ):
        problem = await api.problem(
            "POST", "/v1/jobs", NOW_JOB | {"schedule": schedule}, status=422, code="INVALID"
        )
        assert pointer in [fault["pointer"] for fault in problem["errors"]], problem
    assert (await api.get("/v1/jobs"))["items"] == []


async def test_a_job_now_is_due_at_once(running: Cell) -> None:
    await running.api.target(target_id=TARGET)
    before = running.clock.now_ms()
    job = await running.api.ok("POST", "/v1/jobs", NOW_JOB, status=201)
    after = running.clock.now_ms()
    due_ms = round(parsed(job["due_at"]).timestamp() * 1000)
    assert before <= due_ms <= after
    assert parsed(job["next_run_at"]) == parsed(job["due_at"]).replace(microsecond=0)
    assert job["dispatch_window_seconds"] == 0
    assert await running.timers(job["job_id"]) == {1: due_ms}
    (claim,) = await running.claim(job["job_id"])
    await running.complete(claim, RunState.SUCCEEDED)
    read = await running.api.get(f"/v1/jobs/{job['job_id']}")
    assert (read["status"], read["next_run_at"]) == ("COMPLETED", None)
    (run,) = read["recent_runs"]
    assert run["run_id"] == f"{job['job_id']}:{job['next_run_at']}:1"
    assert (run["outcome"], run["state"], run["attempt"]) == ("SUCCEEDED", "SUCCEEDED", 1)
    assert run["finished_at"] is not None


async def test_a_one_off_in_the_past_says_what_will_happen(running: Cell) -> None:
    await running.api.target(target_id=TARGET)
    past = {"type": "ONCE", "run_at": "2026-01-05T09:00:00Z"}
    late = await running.api.job(TARGET, schedule=past)
    assert late["next_run_at"] == "2026-01-05T09:00:00Z"
    # Due when it was made: what came before is not our lateness.
    assert late["due_at"] >= late["created_at"] > late["next_run_at"]
    assert "RUN_ONCE" in late["notes"][0]
    skipped = await running.api.job(TARGET, schedule=past, misfire_policy="SKIP")
    assert "SKIPPED" in skipped["notes"][0]
    (claim,) = await running.claim(late["job_id"])
    assert str(claim.key) == f"{late['job_id']}:2026-01-05T09:00:00Z"
    assert list(await running.claim(skipped["job_id"])) == []
    read = await running.api.get(f"/v1/jobs/{skipped['job_id']}")
    assert [(run["state"], run["scheduled_for"]) for run in read["recent_runs"]] == [
        ("SKIPPED", "2026-01-05T09:00:00Z")
    ]


async def test_windows_follow_the_tenant_and_the_period(running: Cell) -> None:
    await running.place(running.api.tenant, default_window_seconds=120, default_once_window_seconds=7)
    await running.api.target(target_id=TARGET)
    hourly = await running.api.job(TARGET)
    assert hourly["dispatch_window_seconds"] == 120
    once = await running.api.job(TARGET, schedule={"type": "ONCE", "run_at": "2027-01-05T09:00:00Z"})
    assert once["dispatch_window_seconds"] == 7
    often = await running.api.job(TARGET, schedule={"type": "RATE", "every_seconds": 2})
    lag = parsed(often["due_at"]) - parsed(often["next_run_at"])
    assert timedelta() <= lag < timedelta(seconds=2)
    wide = await running.api.job(TARGET, dispatch_window_seconds=3000)
    assert parsed(wide["due_at"]) - parsed(wide["next_run_at"]) < timedelta(seconds=3000)


async def test_strict_jobs_need_an_allowance(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    strict = {
        "schedule": {"type": "ONCE", "run_at": "2027-01-05T09:00:00Z"},
        "target": {"target_id": TARGET},
        "priority": "CRITICAL",
        "dispatch_window_seconds": 0,
    }
    problem = await api.problem("POST", "/v1/jobs", strict, status=409, code="STRICT_ALLOWANCE_EXCEEDED")
    assert problem["nearest_available"] is None
    await running.place(api.tenant, strict_jobs_per_second=2)
    first = await api.ok("POST", "/v1/jobs", strict, status=201)
    assert first["due_at"] == first["next_run_at"] == "2027-01-05T09:00:00Z"
    await api.ok("POST", "/v1/jobs", strict, status=201)
    problem = await api.problem("POST", "/v1/jobs", strict, status=409, code="STRICT_ALLOWANCE_EXCEEDED")
    assert problem["nearest_available"] == "2027-01-05T09:00:01Z"
    problem = await api.problem("POST", "/v1/jobs", strict | {"priority": "HIGH"}, status=422, code="INVALID")
    assert problem["errors"][0]["pointer"] == "/dispatch_window_seconds"
    await api.ok("POST", "/v1/jobs", strict | {"schedule": {"type": "NOW"}, "priority": "LOW"}, status=201)


async def test_strict_needs_other_regions_even_by_the_tenants_default(running: Cell) -> None:
    api = running.api
    await running.place(api.tenant, default_region_policy="STRICT")
    await api.target(target_id=TARGET)
    for given in (NOW_JOB, NOW_JOB | {"region_policy": "STRICT"}):
        problem = await api.problem("POST", "/v1/jobs", given, status=422, code="INVALID")
        assert [fault["pointer"] for fault in problem["errors"]] == ["/region_policy"]
        assert ("tenant's default" in problem["errors"][0]["detail"]) is ("region_policy" not in given)
    await api.ok("POST", "/v1/jobs", NOW_JOB | {"region_policy": "HOME_ASYNC"}, status=201)


async def test_pending_timers_are_limited(running: Cell) -> None:
    await running.place(running.api.tenant, pending_timers=1)
    await running.api.target(target_id=TARGET)
    await running.api.job(TARGET)
    answer = await running.api.send("POST", "/v1/jobs", NOW_JOB)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (429, "QUOTA_EXCEEDED")
    assert (problem["scope"], problem["quota"], problem["limit"]) == ("tenant", "pending_timers", 1)
    assert int(answer.headers["retry-after"]) > 0


async def test_what_gets_its_timer_later_counts_as_one_that_is_created(running: Cell) -> None:
    api = running.api
    await running.place(api.tenant, pending_timers=2)
    await api.target(target_id=TARGET)
    paused = await api.job(TARGET)
    await api.ok("POST", f"/v1/jobs/{paused['job_id']}:pause")
    await api.job(TARGET)
    other = await api.job(TARGET)
    problem = await api.problem(
        "POST", f"/v1/jobs/{paused['job_id']}:resume", status=429, code="QUOTA_EXCEEDED"
    )
    assert (problem["scope"], problem["quota"], problem["limit"]) == ("tenant", "pending_timers", 2)
    assert (await api.get(f"/v1/jobs/{paused['job_id']}"))["status"] == "PAUSED"
    await api.ok("DELETE", f"/v1/jobs/{other['job_id']}")
    await api.ok("POST", f"/v1/jobs/{paused['job_id']}:resume")
    # What is resumed already stays so, room or not.
    await api.ok("POST", f"/v1/jobs/{paused['job_id']}:resume")


async def test_keys_are_unique(api: Api) -> None:
    await api.target(target_id=TARGET)
    await api.job(TARGET, key="nightly")
    await api.problem("POST", "/v1/jobs", NOW_JOB | {"key": "nightly"}, status=409, code="CONFLICT")
    assert len((await api.get("/v1/jobs"))["items"]) == 1


async def test_headers_and_the_targets_own_authorization(api: Api) -> None:
    await api.target(target_id=TARGET)
    await api.target("https://b.example", target_id="tgt_b", auth={"type": "BEARER", "token": "t0ken"})
    headers = {"X-Team": "billing", "authorization": "Bearer mine"}
    job = await api.job(TARGET, headers=headers)
    assert job["headers"] == headers
    problem = await api.problem(
        "POST",
        "/v1/jobs",
        {"schedule": {"type": "NOW"}, "target": {"target_id": "tgt_b"}, "headers": headers},
        status=422,
        code="INVALID",
    )
    assert problem["errors"][0]["pointer"] == "/headers/authorization"


async def test_a_url_goes_to_the_longest_base_it_lies_under(api: Api) -> None:
    await api.target("https://api.example", target_id="tgt_root")
    await api.target("https://api.example/v1/mail", target_id="tgt_mail")
    for url, target_id, path in (
        ("https://API.example:443/v1/mail/send?now=1", "tgt_mail", "/send?now=1"),
        ("https://api.example/v1/mailbox", "tgt_root", "/v1/mailbox"),
        ("https://api.example", "tgt_root", ""),
    ):
        job = await api.ok("POST", "/v1/jobs", NOW_JOB | {"target": {"url": url}}, status=201)
        assert (job["target"]["target_id"], job["target"]["path"]) == (target_id, path)
    await api.problem(
        "POST", "/v1/jobs", NOW_JOB | {"target": {"url": "http://api.example/"}}, status=422,
        code="TARGET_NOT_REGISTERED",
    )  # fmt: skip


async def test_many_at_once_are_written_together(running: Cell) -> None:
    await running.api.target(target_id=TARGET)
    await running.api.job(TARGET)
    batches = running.metrics.registry.get_sample_value
    count = batches("cell_api_create_batch_jobs_count") or 0
    answers = await asyncio.gather(
        *(running.api.send("POST", "/v1/jobs", NOW_JOB | {"name": f"n{i}"}) for i in range(60))
    )
    assert {answer.status_code for answer in answers} == {201}
    assert (batches("cell_api_create_batch_jobs_count") or 0) - count <= 10
    assert len({answer.json()["job_id"] for answer in answers}) == 60


async def test_one_bad_job_of_a_batch_fails_alone(running: Cell) -> None:
    await running.api.target(target_id=TARGET)
    strict = NOW_JOB | {
        "schedule": {"type": "RATE", "every_seconds": 60},
        "priority": "CRITICAL",
        "dispatch_window_seconds": 0,
    }
    bodies = [NOW_JOB, strict, NOW_JOB | {"key": "k"}, NOW_JOB | {"key": "k"}, NOW_JOB] * 2
    answers = await asyncio.gather(*(running.api.send("POST", "/v1/jobs", body) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [201] * 5 + [409] * 5


async def test_a_write_that_fails_fails_its_batch_and_no_other(running: Cell) -> None:
    broken = True

    class Flaky:
        def __getattr__(self, name: str) -> Any:
            return getattr(running.store, name)

        async def create_jobs(self, *args: Any, **more: Any) -> Any:
            if broken:
                raise Retryable("the connection was lost")
            return await running.store.create_jobs(*args, **more)

    await running.api.target(target_id=TARGET)
    api = running.with_engines(store=Flaky())  # type: ignore[arg-type]
    answers = await asyncio.gather(*(api.send("POST", "/v1/jobs", NOW_JOB) for _ in range(5)))
    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(503, "UNAVAILABLE")}
    assert (await api.get("/v1/jobs"))["items"] == []
    broken = False
    await api.ok("POST", "/v1/jobs", NOW_JOB, status=201)


async def test_the_same_key_at_the_same_time(running: Cell) -> None:
    await running.api.target(target_id=TARGET)
    answers = await asyncio.gather(
        *(
            running.api.send("POST", "/v1/jobs", NOW_JOB, headers={"Idempotency-Key": "same"})
            for _ in range(8)
        )
    )
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses.count(201) == 1
    assert set(statuses) <= {200, 201, 409}
    for answer in answers:
        if answer.status_code == 409:
            assert answer.json()["code"] == "IDEMPOTENCY_IN_PROGRESS"
    assert len((await running.api.get("/v1/jobs"))["items"]) == 1


async def test_pages_and_filters(api: Api) -> None:
    await api.target(target_id=TARGET)
    await api.target("https://b.example", target_id="tgt_b")
    made = [
        await api.job(
            TARGET if i % 2 else "tgt_b",
            name=f"nightly {i}",
            tags=["even"] if i % 2 == 0 else ["odd"],
            schedule={"type": "ONCE", "run_at": f"2027-01-0{i + 1}T00:00:00Z"},
        )
        for i in range(7)
    ]
    await api.ok("DELETE", f"/v1/jobs/{made[6]['job_id']}")
    listed: list[str] = []
    path: str | None = "/v1/jobs?limit=3"
    pages = 0
    while path is not None:
        answer = await api.send("GET", path)
        assert answer.status_code == 200
        page = answer.json()
        listed += [item["job_id"] for item in page["items"]]
        pages += 1
        link = answer.headers.get("link")
        assert (link is None) == (page["next_cursor"] is None)
        path = link.partition(">")[0].lstrip("<") if link is not None else None
    assert pages == 3
    assert listed == sorted((job["job_id"] for job in made), reverse=True)

    async def found(query: str) -> list[str]:
        return sorted(item["name"] for item in (await api.get(f"/v1/jobs?{query}"))["items"])

    assert await found("tag=even") == ["nightly 0", "nightly 2", "nightly 4", "nightly 6"]
    assert await found("tag=even&state=SCHEDULED") == ["nightly 0", "nightly 2", "nightly 4"]
    assert await found("state=CANCELLED") == ["nightly 6"]
    assert await found("target=tgt_b&tag=even&limit=200") == [f"nightly {i}" for i in (0, 2, 4, 6)]
    assert await found("target=tgt_b&tag=odd") == []
    assert await found("name_prefix=nightly%201") == ["nightly 1"]
    assert await found("due_from=2027-01-02T00:00:00Z&due_until=2027-01-04T00:00:00Z") == [
        "nightly 1",
        "nightly 2",
    ]
    assert await found("tag=nothing") == []
    cursor = (await api.get("/v1/jobs?limit=3"))["next_cursor"]
    await api.problem("GET", f"/v1/jobs?limit=3&tag=odd&cursor={cursor}", status=422, code="INVALID")


async def test_reads_show_what_creation_said(api: Api) -> None:
    await api.target(target_id=TARGET)
    made = await api.job(
        TARGET, name="n", key="k", tags=["a", "b"], priority="HIGH", misfire_policy="SKIP",
        misfire_grace_seconds=5, retry_policy={"max_attempts": 1}, region_policy="SINGLE_REGION",
        schedule={"type": "CRON", "cron": "30 2 * * *", "time_zone": "Europe/Berlin",
                  "dst": {"gap": "SKIP", "overlap": "BOTH"}, "end_at": "2028-01-01T00:00:00Z"},
    )  # fmt: skip
    read = await api.get(f"/v1/jobs/{made['job_id']}")
    for name, value in made.items():
        if name not in ("notes", "payload_hidden", "created_at", "updated_at"):
            assert read[name] == value, name
    assert abs(parsed(read["created_at"]) - datetime.now(UTC)) < timedelta(minutes=1)
    assert read["payload"] is None
