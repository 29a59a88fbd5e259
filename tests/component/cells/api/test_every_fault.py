"""One answer has every fault of a job, its target's and those of whom it tells among them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.component.cells.api.harness import Api

pytestmark = pytest.mark.asyncio(loop_scope="session")

BAD_SCHEDULE = {"type": "CRON", "cron": "61 8 * * *", "time_zone": "Nowhere/Else"}
NOWHERE = {"target_id": "tgt_nowhere"}
KEY = "/v1/jobs/by-key/nightly"


def pointers(problem: Any) -> set[str]:
    return {fault["pointer"] for fault in problem["errors"]}


async def test_a_bad_schedule_and_an_unknown_target(api: Api) -> None:
    body = {"schedule": BAD_SCHEDULE, "target": NOWHERE, "on_failure": {"target_id": "tgt_nobody"}}
    everything = {"/schedule/cron", "/schedule/time_zone", "/target/target_id", "/on_failure/target_id"}
    for method, path in (("POST", "/v1/jobs"), ("PUT", KEY)):
        problem = await api.problem(method, path, body, status=422, code="INVALID")
        assert pointers(problem) == everything
        assert problem["detail"] == "4 faults; see errors."
    answer = await api.ok("POST", "/v1/jobs:batch", {"jobs": [body]})
    assert pointers(answer["results"][0]["problem"]) == everything
    assert (await api.get("/v1/jobs"))["items"] == []


async def test_what_cannot_be_read_hides_no_fault_of_the_rest(api: Api) -> None:
    body = {"schedule": BAD_SCHEDULE, "target": NOWHERE, "priority": "URGENT", "colour": "red"}
    problem = await api.problem("POST", "/v1/jobs", body, status=422, code="INVALID")
    assert pointers(problem) == {
        "/schedule/cron", "/schedule/time_zone", "/target/target_id", "/priority", "/colour",
    }  # fmt: skip
    told = {fault["pointer"]: fault["detail"] for fault in problem["errors"]}
    assert told["/priority"] == "is URGENT; it may be CRITICAL, HIGH, DEFAULT or LOW"
    assert told["/target/target_id"] == "there is no target tgt_nowhere; register one with POST /v1/targets"


async def test_one_fault_keeps_its_own_code(api: Api) -> None:
    body = {"schedule": {"type": "NOW"}, "target": NOWHERE}
    await api.problem("POST", "/v1/jobs", body, status=422, code="TARGET_NOT_REGISTERED")


async def test_an_edit_names_all_that_is_wrong_and_changes_nothing(api: Api) -> None:
    made = await api.target()
    job = await api.job(made["target_id"])
    patch = {"schedule": BAD_SCHEDULE, "target": NOWHERE, "region_policy": "SINGLE_REGION"}
    problem = await api.problem("PATCH", f"/v1/jobs/{job['job_id']}", patch, status=422, code="INVALID")
    assert pointers(problem) == {
        "/schedule/cron", "/schedule/time_zone", "/target/target_id", "/region_policy",
    }  # fmt: skip
    assert (await api.get(f"/v1/jobs/{job['job_id']}"))["version"] == 1


async def test_a_strict_window_says_what_to_change(api: Api) -> None:
    made = await api.target()
    body = {
        "schedule": {"type": "RATE", "every_seconds": 60}, "target": {"target_id": made["target_id"]},
        "dispatch_window_seconds": 0, "max_concurrent": 2, "retry_policy": {"max_attempts": 1000},
    }  # fmt: skip
    problem = await api.problem("POST", "/v1/jobs", body, status=422, code="INVALID")
    told = {fault["pointer"]: fault["detail"] for fault in problem["errors"]}
    assert told == {
        "/dispatch_window_seconds": "is 0, a start at the very second, which only jobs of priority CRITICAL"
        " may ask for; this one's is DEFAULT: make it CRITICAL, or the window 1 or more",
        "/max_concurrent": "is 2, and means something only beside a concurrency_key",
        "/retry_policy/max_attempts": "is 1000; the most is 100",
    }


async def test_a_problem_names_the_request_it_answers(api: Api) -> None:
    for path, status in (("/v1/jobs?limit=x", 422), ("/v1/nothing", 404), ("/v1/jobs/%c3%28", 400)):
        answer = await api.send("GET", path, headers={"X-Request-Id": "req_17"})
        assert (answer.status_code, answer.json()["request_id"]) == (status, "req_17")
        assert "request_id" not in (await api.send("GET", path)).json()
        strange = await api.send("GET", path, headers={"X-Request-Id": "a b<c>"})
        assert "request_id" not in strange.json()
