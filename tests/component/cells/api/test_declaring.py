"""Jobs declared under a key: the same again changes nothing, and races make one job."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings

from cells.domain.run import RunState
from tests.component.cells.api.harness import Api, Cell
from tests.component.cells.api.test_fuzz import SETTINGS, job, text, value

pytestmark = pytest.mark.asyncio(loop_scope="session")

TARGET = "tgt_email"
PATH = "/v1/jobs/by-key/nightly"


def declared(**more: Any) -> dict[str, Any]:
    schedule = {"type": "CRON", "cron": "0 3 * * *", "time_zone": "Europe/Berlin"}
    return {"schedule": schedule, "target": {"target_id": TARGET}, **more}


async def put(api: Api, body: dict[str, Any], status: int = 200, path: str = PATH, **headers: str) -> Any:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return await api.ok("PUT", path, body, status=status, headers=named)


async def test_declaring_again_changes_nothing(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    made = await put(api, declared(payload={"a": 1, "b": [2.50]}, tags=["x"]), 201)
    assert (made["key"], made["version"], made["changed"]) == ("nightly", 1, True)
    for body in (
        declared(payload={"a": 1, "b": [2.50]}, tags=["x"]),
        declared(payload={"a": 1, "b": [2.50]}, tags=["x"], key="nightly", priority="DEFAULT"),
    ):
        same = await put(api, body)
        assert (same["job_id"], same["version"], same["changed"]) == (made["job_id"], 1, False)
    raw = b'{"schedule":{"type":"CRON","cron":"0 3 * * *","time_zone":"Europe/Berlin"},"target":{"target_id":'
    raw += b'"tgt_email"},"tags":["x"],"payload":{ "a": 1,\n"b":[2.50]} }'
    spaced = await api.send("PUT", PATH, raw.replace(b"2.50", b"2.5"))
    assert spaced.json()["changed"] is False  # white space is nothing
    other = await api.send("PUT", PATH, raw)
    assert other.json()["changed"] is True  # other digits are another body for the target
    read = await api.get(PATH)
    assert (read["job_id"], read["version"], read["payload"]) == (made["job_id"], 2, {"a": 1, "b": [2.5]})
    assert read["recent_runs"] == []


async def test_what_differs_is_edited(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    made = await put(api, declared(name="a", tags=["x"]), 201)
    after = await put(api, declared(name="b"))
    assert (after["version"], after["name"], after["tags"], after["changed"]) == (2, "b", [], True)
    assert after["next_run_at"] == made["next_run_at"]
    moved = await put(api, declared(schedule={"type": "CRON", "cron": "0 4 * * *"}))
    assert moved["next_run_at"] != made["next_run_at"]
    assert len((await api.get("/v1/jobs"))["items"]) == 1


async def test_a_job_is_created_paused_in_one_request(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    made = await put(api, declared(paused=True), 201)
    assert (made["status"], made["next_run_at"]) == ("PAUSED", None)
    assert await running.timers(made["job_id"]) == {}
    same = await put(api, declared(paused=True))
    assert (same["changed"], same["status"]) == (False, "PAUSED")
    await api.ok("POST", f"/v1/jobs/{made['job_id']}:resume", {})
    resumed = await put(api, declared(paused=True, name="b"))  # people resumed it: it stays so
    assert (resumed["status"], resumed["name"]) == ("SCHEDULED", "b")
    await api.ok("DELETE", f"/v1/jobs/{made['job_id']}")
    again = await put(api, declared(paused=True))
    assert (again["job_id"], again["status"]) == (made["job_id"], "PAUSED")
    posted = await api.ok("POST", "/v1/jobs", declared(paused=True), status=201)
    batch = await api.ok("POST", "/v1/jobs:batch", {"jobs": [declared(paused=True), declared()]})
    assert [posted["status"], *(result["job_id"] is not None for result in batch["results"])] == [
        "PAUSED", True, True,
    ]  # fmt: skip
    first = await api.get(f"/v1/jobs/{batch['results'][0]['job_id']}")
    assert first["status"] == "PAUSED"
    await api.problem("PATCH", f"/v1/jobs/{first['job_id']}", {"paused": False}, status=422, code="INVALID")


async def test_an_anchor_is_kept(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    made = await put(api, declared(schedule={"type": "RATE", "every_seconds": 600}), 201)
    running.clock.ahead_ms = 90_000
    again = await put(api, declared(schedule={"type": "RATE", "every_seconds": 600}))
    assert (again["changed"], again["schedule"]) == (False, made["schedule"])
    slower = await put(api, declared(schedule={"type": "RATE", "every_seconds": 1200}))
    assert (slower["changed"], slower["schedule"]["start_at"]) == (True, made["schedule"]["start_at"])


async def test_a_pause_survives_a_deploy_and_a_cancel_does_not(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    made = await put(api, declared(), 201)
    await api.ok("POST", f"/v1/jobs/{made['job_id']}:pause")
    assert (await put(api, declared()))["changed"] is False
    edited = await put(api, declared(name="while paused"))
    assert (edited["status"], edited["version"]) == ("PAUSED", 2)
    assert await running.timers(made["job_id"]) == {}
    cancelled = await api.ok("DELETE", PATH)
    assert cancelled == {"job_id": made["job_id"], "status": "CANCELLED"}
    back = await put(api, declared(name="while paused"))
    assert (back["job_id"], back["status"], back["version"], back["changed"]) == (
        made["job_id"],
        "SCHEDULED",
        3,
        True,
    )


async def test_the_queue_is_told(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    soon = {"type": "RATE", "every_seconds": 600}
    made = await put(api, declared(schedule=soon), 201)
    assert list(await running.timers(made["job_id"])) == [1]
    await put(api, declared(schedule=soon, name="b"))
    assert list(await running.timers(made["job_id"])) == [2]
    await api.ok("DELETE", PATH)
    assert list(await running.timers(made["job_id"])) == []
    await put(api, declared(schedule=soon, name="b"))
    assert list(await running.timers(made["job_id"])) == [3]


async def test_what_is_over_runs_again_only_on_another_schedule(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    past = {"type": "ONCE", "run_at": "2026-01-05T09:00:00Z"}
    made = await put(api, declared(schedule=past), 201)
    (claim,) = await running.claim(made["job_id"])
    await running.complete(claim, RunState.SUCCEEDED)
    assert (await put(api, declared(schedule=past)))["status"] == "COMPLETED"
    renamed = await put(api, declared(schedule=past, name="n"))
    assert (renamed["status"], renamed["version"], renamed["next_run_at"]) == ("COMPLETED", 2, None)
    at = f"{datetime.now(UTC) + timedelta(days=3):%Y-%m-%dT%H:%M:%SZ}"
    again = await put(api, declared(schedule={"type": "ONCE", "run_at": at}, name="n"))
    assert (again["job_id"], again["status"], again["next_run_at"]) == (made["job_id"], "SCHEDULED", at)


async def test_an_ended_schedule_can_be_declared_again(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    end = f"{datetime.now(UTC) + timedelta(hours=3):%Y-%m-%dT%H:%M:%SZ}"
    body = declared(schedule={"type": "RATE", "every_seconds": 3600, "end_at": end})
    await put(api, body, 201)
    running.clock.ahead_ms = 4 * 3600 * 1000
    assert (await put(api, body))["changed"] is False
    await api.ok("DELETE", PATH)
    problem = await api.problem("PUT", PATH, body, status=422, code="INVALID")
    assert problem["errors"][0]["pointer"] == "/schedule/end_at"
    assert (await api.get(PATH))["status"] == "CANCELLED"


async def test_conditions(api: Api) -> None:
    await api.target(target_id=TARGET)
    only_new, only_first = {"If-None-Match": "*"}, {"If-Match": '"1"'}
    gone = {"status": 412, "code": "PRECONDITION_FAILED"}
    await api.problem("PUT", PATH, declared(), headers=only_first, **gone)
    await put(api, declared(), 201, If_None_Match="*")
    await api.problem("PUT", PATH, declared(name="b"), headers=only_new, **gone)
    await api.problem("PUT", PATH, declared(name="b"), headers={"If-None-Match": '"1"'}, **gone)
    await put(api, declared(name="b"), If_Match='"1"')
    problem = await api.problem("PUT", PATH, declared(name="c"), headers=only_first, **gone)
    assert problem["version"] == 2
    await api.problem("DELETE", PATH, headers=only_first, **gone)
    assert (await api.get(PATH))["name"] == "b"


async def test_faults(api: Api) -> None:
    await api.target(target_id=TARGET)
    for body, pointer in (
        (declared(key="other"), "/key"),
        (declared(key=7), "/key"),
        (declared(schedule={"type": "CRON", "cron": "x"}), "/schedule/cron"),
        ({}, "/schedule"),
    ):
        problem = await api.problem("PUT", PATH, body, status=422, code="INVALID")
        assert pointer in [fault["pointer"] for fault in problem["errors"]]
    await api.problem("PUT", "/v1/jobs/by-key/" + "x" * 201, declared(), status=422, code="INVALID")
    await api.problem("PUT", "/v1/jobs/by-key/a%00b", declared(), status=404, code="NOT_FOUND")
    for path in ("/v1/jobs/by-key/none", "/v1/jobs/by-key/a%00b", "/v1/jobs/by-key/" + "x" * 201):
        await api.problem("GET", path, status=404, code="NOT_FOUND")
        await api.problem("DELETE", path, status=404, code="NOT_FOUND")
    made = await put(api, declared(region_policy="SINGLE_REGION"), 201)
    await api.problem("PUT", PATH, declared(region_policy="HOME_ASYNC"), status=422, code="INVALID")
    assert (await put(api, declared()))["region_policy"] == made["region_policy"]


async def test_keys_may_hold_anything_printable(api: Api) -> None:
    await api.target(target_id=TARGET)
    for path, key in (("a%2Fb:c%20%C3%A9", "a/b:c é"), ("x:pause", "x:pause"), ("by-key", "by-key")):
        made = await put(api, declared(), 201, path=f"/v1/jobs/by-key/{path}")
        assert made["key"] == key
        assert (await api.get(f"/v1/jobs/by-key/{path}"))["job_id"] == made["job_id"]


async def test_many_deploys_at_once_make_one_job(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    for body, version in ((declared(), 1), (declared(name="next"), 2)):
        answers = await asyncio.gather(*(api.send("PUT", PATH, body) for _ in range(10)))
        documents = [answer.json() for answer in answers]
        assert {answer.status_code for answer in answers} <= {200, 201}
        assert len({document["job_id"] for document in documents}) == 1
        assert {document["version"] for document in documents} == {version}
        assert [document["changed"] for document in documents].count(True) == 1
    assert len((await api.get("/v1/jobs"))["items"]) == 1
    mixed = await asyncio.gather(*(api.send("PUT", PATH, declared(name=str(i))) for i in range(5)))
    assert {answer.status_code for answer in mixed} == {200}
    assert (await api.get(PATH))["version"] == 7


async def test_a_declaration_beside_claims(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    every = {"type": "RATE", "every_seconds": 1, "start_at": "2026-01-05T09:00:00Z"}
    made = await put(api, declared(schedule=every, dispatch_window_seconds=1), 201)
    running.clock.ahead_ms = 0
    for i in range(3):
        await asyncio.gather(
            running.claim(made["job_id"]),
            put(api, declared(schedule=every, dispatch_window_seconds=1, name=str(i))),
        )
    assert (await api.get(PATH))["version"] == 4


@settings(SETTINGS, max_examples=40)
@given(body=job | value, key=text.filter(lambda key: key not in ("", ".", "..", "../..")))
async def test_any_declaration(running: Cell, body: Any, key: str) -> None:
    if not await running.store.get_target(running.api.tenant, TARGET):
        await running.api.target("https://email.internal/v1", target_id=TARGET)
    path = f"/v1/jobs/by-key/{quote(key.encode('utf-8', 'replace').decode(), safe='')}"
    for _ in range(2):
        answer = await running.api.send("PUT", path, body)
        assert answer.status_code in (200, 201, 400, 404, 409, 413, 422), answer.text
    if answer.status_code == 200:
        assert answer.json()["changed"] is False
        await running.api.ok("DELETE", path)
