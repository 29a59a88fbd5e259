"""What is kept in one region alone: two stores of a cell behind one API, the local one reached over HTTP."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psycopg
import pytest
import pytest_asyncio

from cells.api.building import member_of
from cells.domain import ids
from cells.ports import JobFilter
from cells.serving import HttpServer
from cells.stores.elsewhere import Elsewhere
from cells.stores.registry import LocalStore, Registry
from tests.component.cells.api.harness import Api, Cell, cell
from tests.engines import TestEngines
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

_EVERY = JobFilter()
_AT_HOME = {"region_policy": "SINGLE_REGION"}
RATE = {"schedule": {"type": "RATE", "every_seconds": 3600}}
LATER = {"schedule": {"type": "ONCE", "run_at": "2099-01-01T00:00:00Z"}}


@dataclass
class Two:
    """The cell's own store and a local one, with a way to take the latter's API away."""

    main: Cell
    local: Cell
    server: HttpServer

    @property
    def api(self) -> Api:
        return self.main.api

    @property
    def elsewhere(self) -> Elsewhere:
        found = self.main.services.elsewhere
        assert found is not None
        return found

    async def local_jobs(self) -> set[str]:
        """Ids of the tenant's jobs in the local store."""
        rows = await self.local.store.list_jobs(self.api.tenant, _EVERY, after=None, limit=100)
        return {ids.encode(ids.JOB, row.job_id) for row in rows}


@asynccontextmanager
async def _served(cell_: Cell) -> AsyncIterator[HttpServer]:
    server = HttpServer(cell_.api.app, host="127.0.0.1", port=0, lifespan=False, drain_seconds=1)
    serving = asyncio.create_task(server.serve())
    try:
        yield server
    finally:
        server.stop()
        await serving


@pytest_asyncio.fixture(loop_scope="session")
async def two(
    postgres_url: str, cell_template: str, engines: TestEngines, cell_database_url: str, valkey_url: str
) -> AsyncIterator[Two]:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "cell_local" TEMPLATE "{cell_template}" STRATEGY FILE_COPY')
    try:
        local_url = engines.database_url("cell_local")
        async with cell(local_url, valkey_url, stores=Registry(own=1)) as local, _served(local) as server:
            store = LocalStore(number=1, region="east", url=f"http://127.0.0.1:{server.port}")
            async with cell(cell_database_url, valkey_url, stores=Registry(local=(store,))) as main:
                yield Two(main, local, server)
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute('DROP DATABASE "cell_local" WITH (FORCE)')


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
        for n, policy in enumerate([{}, _AT_HOME, _AT_HOME, {}, {}, _AT_HOME, _AT_HOME, _AT_HOME, {}])
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
    first = await api.ok("POST", "/v1/jobs", body | _AT_HOME, status=201, headers=key)
    again = await api.ok("POST", "/v1/jobs", body | _AT_HOME, status=200, headers=key)
    assert first["job_id"] == again["job_id"]
    assert ids.store_of(_uuid(first["job_id"])) == 1

    made = await api.ok("POST", "/v1/jobs:batch", {"jobs": [body, body | _AT_HOME, {"name": "bad"}, body]})
    assert [result["status"] for result in made["results"]] == [201, 201, 422, 201]
    assert (made["created"], made["failed"]) == (3, 1)
    assert [ids.store_of(_uuid(r["job_id"])) for r in made["results"] if r["status"] == 201] == [0, 1, 0]

    declared = RATE | {"target": {"target_id": target["target_id"]}}
    one = await api.ok("PUT", "/v1/jobs/by-key/nightly", declared | _AT_HOME, status=201)
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
    stop = asyncio.Event()
    telling = asyncio.create_task(two.elsewhere.run(stop))

    async def followed() -> bool:
        changed = await two.local.store.get_target(tenant, name)
        return (
            changed is not None
            and changed.description == "changed"
            and await two.local.store.get_target(tenant, other["target_id"]) is not None
        )

    await eventually(followed)
    await api.ok("DELETE", f"/v1/targets/{other['target_id']}", status=204)

    async def gone() -> bool:
        return await two.local.store.get_target(tenant, other["target_id"]) is None

    await eventually(gone)
    await two.main.place(tenant, job_runs_per_second=40, pending_timers=2)

    async def limited() -> bool:
        found = await two.local.store.get_tenant(tenant)
        return found is not None and found.config.job_runs_per_second == 10

    await eventually(limited)
    stop.set()
    await telling


async def test_a_region_that_is_away_is_named(two: Two) -> None:
    api = two.api
    target = await api.target()
    kept = await api.job(target["target_id"], region_policy="SINGLE_REGION")
    own = await api.job(target["target_id"])
    two.server.stop()

    async def away() -> bool:
        answer = await api.send("GET", f"/v1/jobs/{kept['job_id']}")
        return answer.status_code == 503

    await eventually(away)
    problem = await api.problem("GET", f"/v1/jobs/{kept['job_id']}", status=503, code="HOME_REGION_DOWN")
    assert problem["region"] == "east"
    body = RATE | {"target": {"target_id": target["target_id"]}, "region_policy": "SINGLE_REGION"}
    await api.problem("POST", "/v1/jobs", body, status=503, code="HOME_REGION_DOWN")
    page = await api.get("/v1/jobs")
    assert [job["job_id"] for job in page["items"]] == [own["job_id"]]
    assert page["unreachable_regions"] == ["east"]
    assert page["next_cursor"] is None, "nobody asks for ever"
    await api.job(target["target_id"])


async def test_tasks_of_both_stores_are_polled(two: Two) -> None:
    api = two.api
    queue = {"type": "TASK_QUEUE", "task_queue": "both", "lease_seconds": 60}
    now = {"schedule": {"type": "NOW"}, "target": queue}
    await api.ok("POST", "/v1/jobs", now | _AT_HOME, status=201)
    await _offer(two.local, api.tenant)
    poll = "/v1/task-queues/both/tasks:poll"
    polled = await api.ok("POST", poll, {"worker_id": "w", "wait_seconds": 5})
    (task,) = polled["tasks"]
    beat = {"items": [{"run_id": task["run_id"], "epoch": task["epoch"]}]}
    (result,) = (await api.ok("POST", "/v1/runs:heartbeat", beat))["results"]
    assert result["status"] == 200
    (named,) = (await api.get("/v1/task-queues"))["items"]
    assert (named["task_queue"], named["leases"]) == ("both", 1)
    done = {"items": [{"run_id": task["run_id"], "epoch": task["epoch"], "outcome": "SUCCEEDED"}]}
    (result,) = (await api.ok("POST", "/v1/runs:complete", done))["results"]
    assert result["status"] == 200
    assert (await api.get(f"/v1/runs/{task['run_id']}"))["state"] == "SUCCEEDED"
    assert (await api.ok("POST", poll, {"worker_id": "w", "wait_seconds": 0}))["tasks"] == []


async def _offer(cell_: Cell, tenant: uuid.UUID) -> None:
    """Offer what is due to workers, as a dispatcher and an executor would."""

    async def ready() -> bool:
        (row,) = await cell_.store.list_jobs(tenant, _EVERY, after=None, limit=9)
        member = member_of(row, tenant, version=row.version)
        if member is not None:
            await cell_.claim_members([member])
        return [queue.backlog for queue in await cell_.store.task_queues(tenant)] == [1]

    await eventually(ready)


def _uuid(text: str) -> uuid.UUID:
    found = ids.decode(ids.JOB, text)
    assert found is not None
    return found
