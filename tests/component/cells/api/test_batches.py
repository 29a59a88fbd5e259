"""Many jobs at once: each has its own fate, and the same batch can be sent again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cells.contract import Scope
from cells.ports import LeaseLost, Retryable
from cells.records import Unconfirmed
from tests.component.cells.api.harness import Api, Cell
from tests.component.cells.api.test_fuzz import SETTINGS, job, value

pytestmark = pytest.mark.asyncio(loop_scope="session")

TARGET = "tgt_email"


def hourly(**more: Any) -> dict[str, Any]:
    return {"schedule": {"type": "RATE", "every_seconds": 3600}, "target": {"target_id": TARGET}, **more}


async def send(api: Api, *jobs: Any, key: str | None = None) -> Any:
    headers = {"Idempotency-Key": key} if key is not None else {}
    return await api.ok("POST", "/v1/jobs:batch", {"jobs": jobs}, headers=headers)


async def test_each_job_has_its_own_result(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    await api.job(TARGET, key="taken")
    answer = await send(
        api,
        hourly(name="a", payload={"n": 1}),
        hourly(schedule={"type": "CRON", "cron": "61 * * * *"}, priority="URGENT"),
        hourly(key="taken"),
        hourly(key="twice"),
        hourly(key="twice"),
        hourly(target={"target_id": "tgt_none"}),
        hourly(payload="x" * (256 * 1024)),
        "no job",
        hourly(name="z"),
    )
    assert [result["status"] for result in answer["results"]] == [201, 422, 409, 201, 409, 422, 413, 422, 201]
    assert (answer["created"], answer["failed"]) == (3, 6)
    faults = answer["results"][1]["problem"]["errors"]
    assert {fault["pointer"] for fault in faults} == {"/schedule/cron", "/priority"}
    assert answer["results"][5]["problem"]["code"] == "TARGET_NOT_REGISTERED"
    items = (await api.get("/v1/jobs"))["items"]
    assert sorted(item["name"] or item["key"] for item in items) == ["a", "taken", "twice", "z"]
    first = answer["results"][0]
    read = await api.get(f"/v1/jobs/{first['job_id']}")
    assert (read["payload"], read["due_at"], read["next_run_at"]) == (
        {"n": 1},
        first["due_at"],
        first["next_run_at"],
    )
    assert len(await running.timers(first["job_id"])) == 1


async def test_a_batch_can_be_sent_again(api: Api) -> None:
    await api.target(target_id=TARGET)
    jobs = [hourly(name=str(i)) for i in range(3)]
    first = await send(api, *jobs, key="k1")
    again = await send(api, *jobs, key="k1")
    assert [r["status"] for r in again["results"]] == [200] * 3
    assert [r["job_id"] for r in again["results"]] == [r["job_id"] for r in first["results"]]
    assert [r["due_at"] for r in again["results"]] == [r["due_at"] for r in first["results"]]
    assert all(r["replayed"] for r in again["results"])
    changed = await send(api, jobs[0], hourly(name="other"), key="k1")
    assert [r["status"] for r in changed["results"]] == [200, 422]
    assert changed["results"][1]["problem"]["code"] == "IDEMPOTENCY_KEY_REUSED"
    assert len((await api.get("/v1/jobs"))["items"]) == 3


async def test_a_job_is_known_by_its_own_key_in_any_batch(api: Api) -> None:
    await api.target(target_id=TARGET)
    mine = hourly(name="mine", idempotency_key="order-1")
    (first,) = (await send(api, mine))["results"]
    answers = await asyncio.gather(*(send(api, hourly(), mine, mine) for _ in range(4)))
    for answer in answers:
        assert [r["status"] for r in answer["results"]] == [201, 200, 200]
        assert {r["job_id"] for r in answer["results"][1:]} == {first["job_id"]}
    assert len((await api.get("/v1/jobs?name_prefix=mine"))["items"]) == 1
    for wrong in ("", "ä", "x" * 256, 7, "a\nb"):
        (refused,) = (await send(api, hourly(idempotency_key=wrong)))["results"]
        assert refused["status"] == 422
        assert refused["problem"]["errors"][0]["pointer"] == "/idempotency_key"


async def test_the_envelope(api: Api) -> None:
    for body in ({}, {"jobs": {}}, {"jobs": []}, {"jobs": [], "x": 1}, [], {"jobs": [{}] * 1001}):
        await api.problem("POST", "/v1/jobs:batch", body, status=422, code="INVALID")
    for raw in (b"", b"{", b'{"jobs":[{}', b"\xff"):
        await api.problem("POST", "/v1/jobs:batch", raw, status=400, code="MALFORMED")
    await api.problem(
        "POST",
        "/v1/jobs:batch",
        b'{"jobs":["' + b"x" * (10 << 20) + b'"]}',
        status=413,
        code="PAYLOAD_TOO_LARGE",
    )
    reader = api.with_scopes(Scope.JOBS_READ, Scope.JOBS_TRIGGER)
    await reader.problem("POST", "/v1/jobs:batch", {"jobs": [hourly()]}, status=403, code="FORBIDDEN")
    assert (await api.get("/v1/jobs"))["items"] == []


async def test_a_thousand_jobs_and_limits(running: Cell) -> None:
    await running.place(running.api.tenant, pending_timers=900)
    api = running.api
    await api.target(target_id=TARGET)
    answer = await send(api, *(hourly(name=str(i), payload={"n": i, "x": "y" * 1500}) for i in range(1000)))
    assert (answer["created"], answer["failed"]) == (900, 100)
    assert {r["status"] for r in answer["results"][900:]} == {429}


async def test_a_job_is_stored_as_it_was_answered(api: Api) -> None:
    await api.target(target_id=TARGET)
    made = await api.job(TARGET)
    read = await api.get(f"/v1/jobs/{made['job_id']}")
    assert {name: read[name] for name in made if name in read} == {
        name: made[name] for name in made if name in read
    }


@settings(SETTINGS, max_examples=60)
@given(bodies=st.lists(job | value, min_size=1, max_size=4))
async def test_any_batch(running: Cell, bodies: list[Any]) -> None:
    if not await running.store.get_target(running.api.tenant, TARGET):
        await running.api.target("https://email.internal/v1", target_id=TARGET)
    answer = await send(running.api, *bodies)
    for result in answer["results"]:
        assert result["status"] in (201, 409, 413, 422)
        if result["status"] == 201:
            await running.api.ok("DELETE", f"/v1/jobs/{result['job_id']}")


async def test_jobs_that_are_alike_keep_what_is_their_own(running: Cell) -> None:
    """Read once, apart from names; a wrong name among them is told with every other fault of its job."""
    api = running.api
    await api.target(target_id="tgt_alike")
    base: dict[str, Any] = {
        "schedule": {"type": "RATE", "every_seconds": 3600},
        "target": {"target_id": "tgt_alike", "path": "/a"},
        "tags": ["x"],
    }
    jobs = [
        {**base, "name": "first", "payload": {"n": 1}},
        {**base, "name": "second", "key": "second", "payload": {"n": 2}},
        {**base, "payload": {"n": 3}},
        {**base, "name": ""},
        {**base, "name": "fifth", "paused": True},
        {**base, "name": "bad", "tags": ["x", "x"]},
        {**base, "name": None, "key": "second"},
    ]
    done = await api.ok("POST", "/v1/jobs:batch", {"jobs": jobs})
    statuses = [item["status"] for item in done["results"]]
    assert statuses == [201, 201, 201, 422, 201, 422, 409]
    assert [fault["pointer"] for fault in done["results"][3]["problem"]["errors"]] == ["/name"]
    read = [await api.get(f"/v1/jobs/{item['job_id']}") for item in done["results"] if item["status"] == 201]
    shown = [(job["name"], job["key"], job["status"], job.get("payload")) for job in read]
    assert shown == [
        ("first", None, "SCHEDULED", {"n": 1}),
        ("second", "second", "SCHEDULED", {"n": 2}),
        (None, None, "SCHEDULED", {"n": 3}),
        ("fifth", None, "PAUSED", None),
    ]


async def test_jobs_that_differ_in_their_schedules_only_are_as_if_each_came_alone(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    schedules: list[Any] = [
        {"type": "ONCE", "run_at": "2099-01-01T00:00:00Z"},
        {"type": "ONCE", "run_at": "2099-01-02T00:00:00", "time_zone": "Europe/Berlin"},
        {"type": "CRON", "cron": "0 8 * * *", "time_zone": "UTC"},
        # Where it says nothing, it starts when it is asked for: in another second, maybe.
        {"type": "RATE", "every_seconds": 60, "start_at": "2099-01-01T00:00:00Z"},
        {"type": "NOW"},
        {"type": "CRON", "cron": "61 * * * *", "time_zone": "UTC"},
        {"type": "CRON", "cron": "0 8 * * *", "time_zone": "UTC", "calendar": "cal_none"},
        {"type": "NEVER"},
        {"type": "ONCE", "run_at": "2099-01-03T00:00:00Z", "more": 1},
        None,
    ]
    for more in ({}, {"dispatch_window_seconds": 600, "tags": ["x"]}, {"dispatch_window_seconds": 0}):
        jobs = [hourly(**more, schedule=schedule) for schedule in schedules]
        results = (await send(api, *jobs))["results"]
        for sent, result in zip(jobs, results, strict=True):
            (alone,) = (await send(api, sent))["results"]
            assert result["status"] == alone["status"], sent
            if result["status"] != 201:
                assert result["problem"]["errors"] == alone["problem"]["errors"]
                continue
            together, single = [await api.get(f"/v1/jobs/{each['job_id']}") for each in (result, alone)]
            for name in ("schedule", "dispatch_window_seconds", "tags", "target", "priority"):
                assert together[name] == single[name], sent


@pytest.mark.parametrize("fault", [Unconfirmed("nobody"), Retryable("no connection"), LeaseLost("over")])
async def test_what_no_other_region_confirms_costs_the_strict_jobs_alone(
    running: Cell, fault: Exception
) -> None:
    class Alone:
        def __getattr__(self, name: str) -> Any:
            return getattr(running.store, name)

        async def confirm(self) -> None:
            raise fault

    await running.api.target(target_id=TARGET)
    api = running.with_engines(store=Alone(), leased=True)  # type: ignore[arg-type]
    answer = await send(api, hourly(), hourly(region_policy="STRICT"), hourly())
    assert [result["status"] for result in answer["results"]] == [201, 503, 201]
    assert answer["results"][1]["problem"]["code"] == "UNCONFIRMED"
    assert (answer["created"], answer["failed"]) == (2, 1)
