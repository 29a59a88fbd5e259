"""Bulk changes touch exactly what was shown, once, at their pace, and can be stopped."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cells.domain import ids
from cells.execution.operations import Operations
from cells.observability.metrics import Metrics
from cells.store import selections
from tests.component.cells.api.harness import Api, Cell
from tests.component.cells.api.test_fuzz import SETTINGS, nearly, text, value
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

TARGET = "tgt_email"


def worker(cell: Cell) -> Operations:
    return Operations(cell.store, cell.queue, cell.host, cell.clock, Metrics())


async def choose(api: Api, action: str, **filter_: Any) -> Any:
    return await api.ok("POST", "/v1/selections", {"action": action, "filter": filter_}, status=201)


async def apply(api: Api, selection: Any, status: int = 202, **more: Any) -> Any:
    path = f"/v1/selections/{selection['selection_id']}:apply"
    return await api.ok("POST", path, {"hash": selection["hash"], **more}, status=status)


async def worked(cell: Cell, operation: Any) -> Any:
    """Work until that operation has ended."""
    path = f"/v1/operations/{operation['operation_id']}"

    async def ended() -> Any:
        await worker(cell).step()
        found = await cell.api.get(path)
        return found if found["state"] != "RUNNING" else None

    return await eventually(ended)


async def states(api: Api) -> dict[str, str]:
    return {item["name"]: item["status"] for item in (await api.get("/v1/jobs?limit=200"))["items"]}


async def some(api: Api, count: int, **more: Any) -> list[Any]:
    await api.target(target_id=TARGET)
    soon = {"type": "RATE", "every_seconds": 600}
    return [await api.job(TARGET, name=f"j{i}", schedule=soon, **more) for i in range(count)]


async def test_exactly_what_was_shown_is_changed(running: Cell) -> None:
    api = running.api
    jobs = await some(api, 12, tags=["x"])
    await api.ok("POST", f"/v1/jobs/{jobs[0]['job_id']}:pause")
    await api.ok("DELETE", f"/v1/jobs/{jobs[1]['job_id']}")
    other = await api.job(TARGET, name="other")
    selection = await choose(api, "pause", tag="x")
    assert (selection["count"], selection["filter"]) == (10, {"tag": "x"})
    newest = [job["job_id"] for job in reversed(jobs[2:])]
    assert [item["job_id"] for item in selection["sample"]] == newest
    assert await api.get(f"/v1/selections/{selection['selection_id']}") == selection
    late = await api.job(TARGET, name="late", tags=["x"])
    await api.ok("DELETE", f"/v1/jobs/{jobs[3]['job_id']}")
    assert (await states(api))["j2"] == "SCHEDULED"

    begun = await apply(api, selection)
    assert (begun["state"], begun["total"], begun["processed"], begun["created_by"]) == (
        "RUNNING", 10, 0, "key:test",
    )  # fmt: skip
    assert (await apply(api, selection, 200))["operation_id"] == begun["operation_id"]
    summary = await worked(running, begun)
    assert (summary["state"], summary["done"], summary["unchanged"], summary["failed"]) == ("DONE", 9, 1, 0)
    assert summary["finished_at"] is not None
    found = await states(api)
    assert found.pop("j1") == found.pop("j3") == "CANCELLED"
    assert found.pop("other") == found.pop("late") == "SCHEDULED"
    assert set(found.values()) == {"PAUSED"}
    assert await running.timers(jobs[2]["job_id"]) == {}
    assert len(await running.timers(late["job_id"])) == 1
    assert other["job_id"] not in newest


async def test_resume_and_cancel(running: Cell) -> None:
    api = running.api
    jobs = await some(api, 4)
    await worked(running, await apply(api, await choose(api, "pause")))
    running.clock.ahead_ms = 1_300_000
    resumed = await worked(running, await apply(api, await choose(api, "resume", name_prefix="j")))
    assert (resumed["done"], resumed["action"]) == (4, "resume")
    job = await api.get(f"/v1/jobs/{jobs[0]['job_id']}")
    first = datetime.fromisoformat(jobs[0]["next_run_at"])
    assert datetime.fromisoformat(job["next_run_at"]) == first + timedelta(seconds=1200)
    assert [(run["state"], run["scheduled_for"]) for run in job["recent_runs"]] == [
        ("SKIPPED", jobs[0]["next_run_at"])
    ]
    assert len(await running.timers(jobs[0]["job_id"])) == 1
    run = await api.ok("POST", f"/v1/jobs/{jobs[1]['job_id']}:trigger", status=201)
    some_of = [jobs[0]["job_id"], jobs[1]["job_id"], jobs[0]["job_id"]]
    cancelled = await worked(running, await apply(api, await choose(api, "cancel", job_ids=some_of)))
    assert (cancelled["total"], cancelled["done"]) == (2, 2)
    assert (await api.get(f"/v1/runs/{run['run_id']}"))["state"] == "CANCELLED"
    assert sorted((await states(api)).values()) == ["CANCELLED", "CANCELLED", "SCHEDULED", "SCHEDULED"]


async def test_what_cannot_be_done_is_said(running: Cell) -> None:
    api = running.api
    await running.place(api.tenant, strict_jobs_per_second=1)
    await api.target(target_id=TARGET)
    at = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    strict = {
        "schedule": {"type": "ONCE", "run_at": at},
        "priority": "CRITICAL",
        "dispatch_window_seconds": 0,
    }
    first = await api.job(TARGET, **strict)
    await api.ok("POST", f"/v1/jobs/{first['job_id']}:pause")
    await api.job(TARGET, **strict)
    summary = await worked(running, await apply(api, await choose(api, "resume")))
    assert (summary["done"], summary["failed"]) == (0, 1)
    assert summary["reasons"] == {"no room in strict_jobs_per_second": 1}
    assert summary["failures"] == [{"job_id": first["job_id"], "reason": "no room in strict_jobs_per_second"}]
    await api.problem("POST", f"/v1/jobs/{first['job_id']}:resume", status=409,
                      code="STRICT_ALLOWANCE_EXCEEDED")  # fmt: skip


async def test_the_hash_and_the_time_are_checked(running: Cell) -> None:
    api = running.api
    await some(api, 2)
    selection = await choose(api, "cancel")
    other = await choose(api, "pause")
    assert selection["hash"] != other["hash"]
    path = f"/v1/selections/{selection['selection_id']}:apply"
    await api.problem("POST", path, {"hash": other["hash"]}, status=412, code="PRECONDITION_FAILED")
    await api.problem("POST", path, {"hash": "x"}, status=422, code="INVALID")
    await api.problem("POST", path, {}, status=422, code="INVALID")
    running.clock.ahead_ms = 901_000
    await api.problem("POST", path, {"hash": selection["hash"]}, status=409, code="CONFLICT")
    assert (await api.get("/v1/operations"))["items"] == []
    assert set((await states(api)).values()) == {"SCHEDULED"}
    for faulty in ({"action": "delete"}, {"action": "pause", "filter": {"job_ids": ["job_x"]}},
                   {"action": "pause", "filter": {"state": "DONE"}}, {"filter": {}}):  # fmt: skip
        await api.problem("POST", "/v1/selections", faulty, status=422, code="INVALID")
    for unknown in ("/v1/selections/sel_x", "/v1/operations/op_x", "/v1/operations/job_x"):
        await api.problem("GET", unknown, status=404, code="NOT_FOUND")


async def test_it_keeps_its_pace_and_can_be_stopped(running: Cell) -> None:
    api = running.api
    await some(api, 8)
    operation = await apply(api, await choose(api, "pause"), max_per_second=1)
    path = f"/v1/operations/{operation['operation_id']}"

    async def begun() -> bool:
        await worker(running).step()
        return (await api.get(path))["processed"] >= 2

    began = asyncio.get_running_loop().time()
    await eventually(begun)
    assert asyncio.get_running_loop().time() - began > 0.5
    stopped = await api.ok("POST", f"{path}:stop")
    assert (stopped["state"], stopped["stopped_by"]) == ("STOPPED", "key:test")
    assert await api.ok("POST", f"{path}:stop") == stopped
    assert await worker(running).step() is None
    paused = list((await states(api)).values()).count("PAUSED")
    assert paused == stopped["done"] < 8
    done = await worked(running, await apply(api, await choose(api, "pause")))
    assert done["done"] == 8 - paused
    await api.problem("POST", f"/v1/operations/{done['operation_id']}:stop", status=409, code="CONFLICT")
    listed = (await api.get("/v1/operations"))["items"]
    assert [item["operation_id"] for item in listed] == [done["operation_id"], operation["operation_id"]]
    assert (await api.get("/v1/operations?state=STOPPED"))["items"] == [stopped]
    first = await api.get("/v1/operations?limit=1")
    second = await api.get(f"/v1/operations?limit=1&cursor={first['next_cursor']}")
    assert [*first["items"], *second["items"]] == listed


async def test_many_workers_share_one_operation(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    hourly = {"schedule": {"type": "RATE", "every_seconds": 3600}, "target": {"target_id": TARGET}}
    await api.ok("POST", "/v1/jobs:batch", {"jobs": [hourly] * 600})
    operation = await apply(api, await choose(api, "cancel"), max_per_second=1000)
    path = f"/v1/operations/{operation['operation_id']}"

    async def work() -> None:
        mine = worker(running)
        while (await api.get(path))["state"] == "RUNNING":
            await mine.step()

    await asyncio.gather(*(work() for _ in range(4)))
    summary = await api.get(path)
    assert (summary["total"], summary["done"], summary["unchanged"], summary["failed"]) == (600, 600, 0, 0)


async def test_a_killed_worker_repeats_nothing(running: Cell) -> None:
    api = running.api
    await some(api, 3)
    operation = await apply(api, await choose(api, "pause"))
    step = asyncio.create_task(worker(running).step())
    await asyncio.sleep(0)
    step.cancel()
    await asyncio.gather(step, return_exceptions=True)
    summary = await worked(running, operation)
    assert (summary["done"], summary["unchanged"]) == (3, 0)


async def test_a_selection_of_nothing(running: Cell) -> None:
    selection = await choose(running.api, "cancel", tag="none")
    assert (selection["count"], selection["sample"]) == (0, [])
    assert (await worked(running, await apply(running.api, selection)))["state"] == "DONE"


@settings(SETTINGS, max_examples=60)
@given(body=nearly(action=st.sampled_from(["pause", "resume", "cancel"]),
                   filter=nearly(state=text, target=text, tag=text, name_prefix=text, due_from=text,
                                 job_ids=st.lists(text, max_size=2))) | value)  # fmt: skip
async def test_any_selection(running: Cell, body: Any) -> None:
    answer = await running.api.send("POST", "/v1/selections", body)
    assert answer.status_code in (201, 400, 422), answer.text


async def test_a_job_that_cannot_be_read_stands_in_nobodys_way(own: Cell) -> None:
    """A definition of another version of this program is noted; the others are changed."""
    api = own.api
    broken, fine = await some(api, 2, tags=["odd"])
    selection = await choose(api, "pause", tag="odd")
    job_id = ids.decode(ids.JOB, broken["job_id"])
    async with await psycopg.AsyncConnection.connect(own.database_url) as connection:
        await connection.execute(
            "INSERT INTO job_versions (tenant_id, job_id, version, definition, created_by)"
            " SELECT tenant_id, job_id, 2, '{\"schedule\": 7}', created_by"
            " FROM job_versions WHERE job_id = %s",
            (job_id,),
        )
        await connection.execute("UPDATE jobs SET version = 2 WHERE job_id = %s", (job_id,))
    begun = await apply(api, selection)
    for _ in range(3):
        await worker(own).step()
    ended = await api.get(f"/v1/operations/{begun['operation_id']}")
    assert (ended["state"], ended["done"], ended["failed"]) == ("DONE", 1, 1)
    assert (await api.get(f"/v1/jobs/{fine['job_id']}"))["status"] == "PAUSED"


async def test_a_selection_is_made_once_under_a_key(running: Cell) -> None:
    api = running.api
    await some(api, 2)
    body = {"action": "pause", "filter": {"target": TARGET}}
    key = {"Idempotency-Key": '"k-1"'}
    made = await api.ok("POST", "/v1/selections", body, status=201, headers=key)
    await api.job(TARGET, name="later")
    again = await api.send("POST", "/v1/selections", body, headers=key)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert again.json() == made
    other = body | {"action": "cancel"}
    await api.problem("POST", "/v1/selections", other, status=422, code="IDEMPOTENCY_KEY_REUSED", headers=key)


async def test_a_tenant_has_so_many_selections_open(running: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selections, "SELECTIONS_OPEN", 2)
    api = running.api
    await some(api, 1)
    first = await choose(api, "pause", target=TARGET)
    await choose(api, "pause", target=TARGET)
    body = {"action": "pause", "filter": {"target": TARGET}}
    refused = await api.problem("POST", "/v1/selections", body, status=429, code="QUOTA_EXCEEDED")
    assert (refused["quota"], refused["limit"]) == ("open_selections", 2)
    await apply(api, first)
    await choose(api, "pause", target=TARGET)


async def test_a_job_that_cannot_be_written_is_the_only_one_that_fails(running: Cell) -> None:
    api = running.api
    jobs = await some(api, 4)
    broken = uuid.UUID(bytes=ids.decode(ids.JOB, jobs[1]["job_id"]).bytes)  # type: ignore[union-attr]
    selection = await choose(api, "pause", target=TARGET)
    async with await psycopg.AsyncConnection.connect(running.database_url, autocommit=True) as sql:
        await sql.execute(
            f"""
            CREATE FUNCTION refuse_that_job() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation', CONSTRAINT = 'that_job';
            END $$;
            CREATE TRIGGER that_job BEFORE UPDATE ON jobs FOR EACH ROW
            WHEN (OLD.job_id = '{broken}') EXECUTE FUNCTION refuse_that_job()
            """.encode()
        )
        try:
            done = await worked(running, await apply(api, selection))
        finally:
            await sql.execute(b"DROP TRIGGER that_job ON jobs; DROP FUNCTION refuse_that_job()")
    assert (done["done"], done["failed"], done["processed"]) == (3, 1, 4)
    assert done["failures"] == [{"job_id": jobs[1]["job_id"], "reason": "the job cannot be written"}]
    assert await states(api) == {"j0": "PAUSED", "j1": "SCHEDULED", "j2": "PAUSED", "j3": "PAUSED"}
