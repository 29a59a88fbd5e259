"""What is kept in one region alone: two stores of a cell behind one API, the local one reached over HTTP."""

from __future__ import annotations

import uuid

import pytest

from cells.api.building import member_of
from cells.domain import ids
from tests.component.cells.api.harness import Cell
from tests.component.cells.api.two_stores import AT_HOME, EVERY, Two
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

RATE = {"schedule": {"type": "RATE", "every_seconds": 3600}}
LATER = {"schedule": {"type": "ONCE", "run_at": "2099-01-01T00:00:00Z"}}


async def test_the_policy_says_the_store_and_the_id_names_it(two: Two) -> None:
    api = two.api
    target = await api.target()
    here = await api.job(target["target_id"])
    there = await api.job(target["target_id"], region_policy="SINGLE_REGION")
    assert [ids.store_of(_uuid(job["job_id"])) for job in (here, there)] == [0, 1]
    assert await two.local_jobs() == {there["job_id"]}

    path = f"/v1/jobs/{there['job_id']}"
    read = await api.get(path)
    assert (read["region_policy"], read["status"]) == ("SINGLE_REGION", "SCHEDULED")
    edited = await api.ok("PATCH", path, {"name": "kept at home"}, headers={"If-Match": '"1"'})
    assert (edited["name"], edited["version"]) == ("kept at home", 2)
    await api.problem("PATCH", path, {"region_policy": "HOME_ASYNC"}, status=422, code="INVALID")
    run = await api.ok("POST", f"{path}:trigger", status=201)
    assert (await api.get(f"/v1/runs/{run['run_id']}"))["state"] == "DUE"
    assert (await api.ok("POST", f"{path}:pause"))["status"] == "PAUSED"
    assert (await api.ok("DELETE", path))["status"] == "CANCELLED"
    assert (await api.get(path))["status"] == "CANCELLED"


async def test_lists_are_one_in_their_order_page_by_page(two: Two) -> None:
    api = two.api
    target = await api.target()
    made = [
        (await api.job(target["target_id"], name=f"j{n}", **policy))["job_id"]
        for n, policy in enumerate([{}, AT_HOME, AT_HOME, {}, {}, AT_HOME, AT_HOME, AT_HOME, {}])
    ]
    for limit in (1, 2, 4, 50):
        found: list[str] = []
        cursor = ""
        while True:
            page = await api.get(f"/v1/jobs?limit={limit}" + (f"&cursor={cursor}" if cursor else ""))
            assert len(page["items"]) <= limit
            found += [item["job_id"] for item in page["items"]]
            if (cursor := page["next_cursor"]) is None:
                break
        assert found == made[::-1]
    assert [j["name"] for j in (await api.get("/v1/jobs?name_prefix=j5"))["items"]] == ["j5"]
    for job_id in made[:3]:
        await api.ok("POST", f"/v1/jobs/{job_id}:trigger", status=201)
    runs = (await api.get("/v1/runs"))["items"]
    assert {run["run_id"].partition(":")[0] for run in runs} == set(made[:3])
    of_one = (await api.get(f"/v1/runs?job_id={made[1]}"))["items"]
    assert len(of_one) == 1
    await api.problem("GET", "/v1/jobs?cursor=m.xyz", status=422, code="INVALID")


async def test_keys_and_batches_are_each_stores_own(two: Two) -> None:
    api = two.api
    target = await api.target()
    body = LATER | {"target": {"target_id": target["target_id"]}}
    key = {"Idempotency-Key": "k-1"}
    first = await api.ok("POST", "/v1/jobs", body | AT_HOME, status=201, headers=key)
    again = await api.ok("POST", "/v1/jobs", body | AT_HOME, status=200, headers=key)
    assert first["job_id"] == again["job_id"]
    assert ids.store_of(_uuid(first["job_id"])) == 1

    made = await api.ok("POST", "/v1/jobs:batch", {"jobs": [body, body | AT_HOME, {"name": "bad"}, body]})
    assert [result["status"] for result in made["results"]] == [201, 201, 422, 201]
    assert (made["created"], made["failed"]) == (3, 1)
    assert [ids.store_of(_uuid(r["job_id"])) for r in made["results"] if r["status"] == 201] == [0, 1, 0]

    declared = RATE | {"target": {"target_id": target["target_id"]}}
    one = await api.ok("PUT", "/v1/jobs/by-key/nightly", declared | AT_HOME, status=201)
    same = await api.ok("PUT", "/v1/jobs/by-key/nightly", declared)
    assert (same["job_id"], same["changed"]) == (one["job_id"], False)
    assert (await api.get("/v1/jobs/by-key/nightly"))["job_id"] == one["job_id"]
    await api.ok("DELETE", "/v1/jobs/by-key/nightly")
    assert (await api.get(f"/v1/jobs/{one['job_id']}"))["status"] == "CANCELLED"


async def test_a_snapshot_follows_what_changes(two: Two) -> None:
    api = two.api
    target = await api.target()
    await api.job(target["target_id"], region_policy="SINGLE_REGION")
    tenant, name = api.tenant, target["target_id"]
    await api.problem("DELETE", f"/v1/targets/{name}", status=409, code="CONFLICT")
    await api.ok("PATCH", f"/v1/targets/{name}", {"description": "changed"}, headers={"If-Match": '"2"'})
    other = await api.target("https://other.internal/x")

    async def followed() -> bool:
        changed = await two.local.store.get_target(tenant, name)
        return (
            changed is not None
            and changed.description == "changed"
            and await two.local.store.get_target(tenant, other["target_id"]) is not None
        )

    async def gone() -> bool:
        return await two.local.store.get_target(tenant, other["target_id"]) is None

    async def limited() -> bool:
        found = await two.local.store.get_tenant(tenant)
        return found is not None and found.config.job_runs_per_second == 10

    async with two.telling():
        await eventually(followed)
        await api.ok("DELETE", f"/v1/targets/{other['target_id']}", status=204)
        await eventually(gone)
        await two.main.place(tenant, job_runs_per_second=40, pending_timers=2)
        await eventually(limited)


async def test_tasks_of_both_stores_are_polled(two: Two) -> None:
    api = two.api
    queue = {"type": "TASK_QUEUE", "task_queue": "both", "lease_seconds": 60}
    now = {"schedule": {"type": "NOW"}, "target": queue}
    await api.ok("POST", "/v1/jobs", now | AT_HOME, status=201)
    await _offer(two.local, api.tenant)
    poll = "/v1/task-queues/both/tasks:poll"
    polled = await api.ok("POST", poll, {"worker_id": "w", "wait_seconds": 5})
    (task,) = polled["tasks"]
    beat = {"items": [{"run_id": task["run_id"], "epoch": task["epoch"]}]}
    (result,) = (await api.ok("POST", "/v1/runs:heartbeat", beat))["results"]
    assert result["status"] == 200
    (named,) = (await api.get("/v1/task-queues"))["items"]
    assert (named["task_queue"], named["leases"]) == ("both", 1)
    assert 'clockhouse_task_queue_leases{task_queue="both"} 1' in (await api.send("GET", "/v1/metrics")).text
    assert (await two.control.get(f"/internal/tenants/{api.tenant_text}/use"))["running_runs"] == 1
    done = {"items": [{"run_id": task["run_id"], "epoch": task["epoch"], "outcome": "SUCCEEDED"}]}
    (result,) = (await api.ok("POST", "/v1/runs:complete", done))["results"]
    assert result["status"] == 200
    assert (await api.get(f"/v1/runs/{task['run_id']}"))["state"] == "SUCCEEDED"
    assert (await api.ok("POST", poll, {"worker_id": "w", "wait_seconds": 0}))["tasks"] == []


async def _offer(cell_: Cell, tenant: uuid.UUID) -> None:
    """Offer what is due to workers, as a dispatcher and an executor would."""

    async def ready() -> bool:
        (row,) = await cell_.store.list_jobs(tenant, EVERY, after=None, limit=9)
        member = member_of(row, tenant, version=row.version)
        if member is not None:
            await cell_.claim_members([member])
        return [queue.backlog for queue in await cell_.store.task_queues(tenant)] == [1]

    await eventually(ready)


def _uuid(text: str) -> uuid.UUID:
    found = ids.decode(ids.JOB, text)
    assert found is not None
    return found
