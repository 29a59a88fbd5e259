"""Requests that concern several stores of a cell: each does its part, and none keeps up the others."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
import pytest_asyncio

from cells.api.building import member_of
from cells.api.spread import polls
from cells.api.spread.asked import store_named
from cells.domain import ids
from cells.domain.run import RunState
from cells.ports import JobFilter
from cells.records import Unconfirmed
from cells.serving import HttpServer
from cells.stores.elsewhere import Elsewhere
from cells.stores.link import Refused
from cells.stores.ports import Snapshot
from cells.stores.registry import LocalStore, Registry
from tests.component.cells.api.harness import Api, Cell, cell
from tests.component.cells.api.waiting import waiting_run
from tests.engines import TestEngines
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

AT_HOME = {"region_policy": "SINGLE_REGION"}
ELSEWHERE = {"region_policy": "HOME_ASYNC"}
HOURLY = {"type": "RATE", "every_seconds": 3600}
POLL = "/v1/task-queues/both/tasks:poll"
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
#: Nobody listens there.
CLOSED = 1


@dataclass(kw_only=True)
class Two:
    """The cell's own store and a local one behind a server at a port, with a tenant of one test."""

    main: Cell
    local: Cell
    port: int

    @property
    def api(self) -> Api:
        return self.main.api

    @property
    def elsewhere(self) -> Elsewhere:
        found = self.main.services.elsewhere
        assert found is not None
        return found

    def local_is_at(self, port: int) -> LocalStore:
        """The server in front of the local store is at that port from now on."""
        store = _store(port)
        self.elsewhere.registry = Registry(local=(store,))
        self.elsewhere._silent.clear()
        return store


def _store(port: int) -> LocalStore:
    return LocalStore(number=1, region="east", url=f"http://127.0.0.1:{port}")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pair(postgres_url: str, cell_template: str, engines: TestEngines) -> AsyncIterator[Two]:
    """One pair of stores for all of these tests."""
    names = ("cell_spread_own", "cell_spread_local")
    own_url, local_url = map(engines.database_url, names)
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        for name in names:
            admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{cell_template}" STRATEGY FILE_COPY')
        try:
            async with cell(local_url, engines.valkey_url(14), stores=Registry(own=1)) as local:
                server = HttpServer(local.api.app, host="127.0.0.1", port=0, lifespan=False, drain_seconds=1)
                serving = asyncio.create_task(server.serve())
                stores = Registry(local=(_store(server.port),))
                async with cell(own_url, engines.valkey_url(14), stores=stores) as main:
                    yield Two(main=main, local=local, port=server.port)
                server.stop()
                await serving
        finally:
            for name in names:
                admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest_asyncio.fixture(loop_scope="session")
async def two(pair: Two) -> AsyncIterator[Two]:
    """The same for a tenant that is new."""
    main = pair.main.for_tenant()
    for one in (main, pair.local):
        await one.host.wait_live()
    await main.place(main.api.tenant)
    yield replace(pair, main=main)
    pair.local_is_at(pair.port)


async def _changed(two: Two, statement: str, *values: object) -> None:
    """Of the cell's own store, past everything."""
    async with await psycopg.AsyncConnection.connect(two.main.database_url, autocommit=True) as sql:
        assert (await sql.execute(statement.encode(), values)).rowcount == 1


@asynccontextmanager
async def _says(answer: bytes) -> AsyncIterator[int]:
    """The port of something that says this to every request, or never a word."""
    held: list[asyncio.StreamWriter] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in held:
            writer.close()


# --- snapshots ---------------------------------------------------------------------------
async def test_a_tenant_that_is_erased_never_wakes_in_a_local_store(two: Two) -> None:
    api, tenant = two.api, two.api.tenant
    target = await api.target()
    await api.job(target["target_id"], **AT_HOME)
    (store,) = two.elsewhere.registry

    async def state() -> str:
        await two.elsewhere.tell(tenant, store)
        found = await two.local.store.get_tenant(tenant)
        assert found is not None
        return found.state

    assert await state() == "ACTIVE"
    halt = "UPDATE tenants SET state = %s WHERE tenant_id = %s"
    for here, there in (("BARRIER", "ACTIVE"), ("SUSPENDED", "SUSPENDED"), ("MOVED", "SUSPENDED")):
        await _changed(two, halt, here, tenant)
        assert await state() == there
    erased = "INSERT INTO erased_tenants (tenant_id, erasure_id) VALUES (%s, %s)"
    await _changed(two, erased, tenant, uuid.uuid4())
    await _changed(two, halt, "MOVED", tenant)
    assert await state() == "MOVED"
    # An owner that took over may not know of it.
    snapshot = msgspec.json.decode(await two.main.store.snapshot_of(tenant, 1), type=Snapshot)
    later = msgspec.structs.replace(snapshot, epoch=snapshot.epoch + 1, erased=False, state="ACTIVE")
    assert await two.local.store.take_snapshot(tenant, later)
    found = await two.local.store.get_tenant(tenant)
    assert found is not None
    assert found.state == "MOVED"


async def test_one_whose_snapshot_is_refused_keeps_up_nobody_else(two: Two) -> None:
    other = two.main.for_tenant()
    await other.place(other.api.tenant)
    names = {}
    for api in (two.api, other.api):
        target = await api.target()
        names[api.tenant] = target["target_id"]
        await api.job(target["target_id"], **AT_HOME)
    # The first one's configuration is damaged: no store takes that.
    damaged = (
        'UPDATE tenants SET config = config || \'{"default_window_seconds": "many"}\' WHERE tenant_id = %s'
    )
    await _changed(two, damaged, two.api.tenant)
    path = f"/v1/targets/{names[other.api.tenant]}"
    await other.api.ok("PATCH", path, {"description": "new"}, headers={"If-Match": '"2"'})

    async def behind(**more: Any) -> list[uuid.UUID]:
        found = await two.main.store.local_stores_behind(limit=99, **more)
        return [tenant for tenant, _ in found if tenant in names]

    assert await behind() == [two.api.tenant, other.api.tenant]
    (store,) = two.elsewhere.registry
    with pytest.raises(Refused):
        await two.elsewhere.tell(two.api.tenant, store)
    assert await two.elsewhere._tell_all(set()) == set()
    told = await two.local.store.get_target(other.api.tenant, names[other.api.tenant])
    assert told is not None
    assert told.description == "new"
    assert await behind() == [two.api.tenant]
    assert await behind(but_not=two.elsewhere._put_off) == []
    repaired = "UPDATE tenants SET config = config - 'default_window_seconds' WHERE tenant_id = %s"
    await _changed(two, repaired, two.api.tenant)
    two.elsewhere._put_off.clear()  # its time is over
    await two.elsewhere._tell_all(set())
    assert await behind() == []


async def test_another_region_knows_a_store_before_anything_is_made_there(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = await two.api.target()
    store, tenant = two.main.store, two.api.tenant
    asked: list[tuple[int, bool]] = []

    async def confirm() -> None:
        (used,) = await store.local_stores_of(tenant)
        asked.append((used.store, await two.local.store.get_tenant(tenant) is None))
        raise Unconfirmed("nobody answers")

    monkeypatch.setattr(store, "confirm", confirm)
    for _ in range(2):
        await two.api.job(target["target_id"], **AT_HOME)
    assert asked == [(1, True)]


# --- what is chosen, begun and declared --------------------------------------------------
async def test_letters_are_dealt_with_wherever_they_are(two: Two) -> None:
    api = two.api
    target = await api.target()
    await _dead(two.local, two, target["target_id"], **AT_HOME)
    begun = await api.ok("POST", "/v1/dlq:redrive", {"max_per_second": 10}, status=202)
    assert (store_named(begun["redrive_id"]), begun["elsewhere"]) == (1, [])
    assert (await api.get(f"/v1/redrives/{begun['redrive_id']}"))["redrive_id"] == begun["redrive_id"]

    own = await _dead(two.main, two, target["target_id"])
    kept = await _dead(two.local, two, target["target_id"], **AT_HOME)
    purged = await api.ok("POST", "/v1/dlq:purge", {"filter": {"run_ids": [own, kept]}}, status=202)
    assert store_named(purged["redrive_id"]) == 0
    assert [store_named(each["redrive_id"]) for each in purged["elsewhere"]] == [1]

    nothing: dict[str, Any] = {"filter": {"target_id": "tgt_nobody"}}
    await api.problem("POST", "/v1/dlq:redrive", nothing, status=409, code="CONFLICT")
    two.local_is_at(CLOSED)
    await api.problem("POST", "/v1/dlq:redrive", nothing, status=503, code="HOME_REGION_DOWN")


async def _dead(store: Cell, two: Two, target: str, **more: Any) -> str:
    """The run id of a dead letter in the store of that policy."""
    job = await two.api.job(target, **more)
    run = await two.api.ok("POST", f"/v1/jobs/{job['job_id']}:trigger", status=201)
    (claim,) = await store.claim_members([waiting_run(run["run_id"], two.api.tenant)])
    await store.complete(claim, RunState.FAILED)
    return str(run["run_id"])


async def test_a_backfill_is_named_after_its_store(two: Two) -> None:
    api = two.api
    target = await api.target()
    since = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
    stretch = {"from": since.isoformat(), "until": (since + timedelta(hours=3)).isoformat()}
    for number, policy in enumerate((ELSEWHERE, AT_HOME)):
        anchored = HOURLY | {"start_at": stretch["from"]}
        job = await api.job(target["target_id"], schedule=anchored, **policy)
        path, key = f"/v1/jobs/{job['job_id']}:backfill", {"Idempotency-Key": f"b-{number}"}
        begun = await api.ok("POST", path, stretch, status=202, headers=key)
        assert store_named(begun["backfill_id"]) == number
        again = await api.ok("POST", path, stretch, status=202, headers=key)
        assert again["backfill_id"] == begun["backfill_id"]
        assert (await api.get(f"/v1/backfills/{begun['backfill_id']}"))["job_id"] == job["job_id"]


async def test_a_key_is_one_job_whatever_a_declaration_says(two: Two) -> None:
    api = two.api
    target = await api.target()
    declared = {"schedule": HOURLY, "target": {"target_id": target["target_id"]}}
    path = "/v1/jobs/by-key/nightly"
    one = await api.ok("PUT", path, declared | AT_HOME, status=201)
    problem = await api.problem("PUT", path, declared | ELSEWHERE, status=422, code="INVALID")
    assert {fault["pointer"] for fault in problem["errors"]} == {"/region_policy"}
    assert (await api.ok("PUT", path, declared | AT_HOME))["job_id"] == one["job_id"]
    own = await api.ok("PUT", "/v1/jobs/by-key/hourly", declared | ELSEWHERE, status=201)
    await api.problem("PUT", "/v1/jobs/by-key/hourly", declared | AT_HOME, status=422, code="INVALID")
    assert (await api.ok("PUT", "/v1/jobs/by-key/hourly", declared))["job_id"] == own["job_id"]
    # A store that cannot say whether it has the key: nothing is made anywhere.
    async with _says(BUSY) as port:
        two.local_is_at(port)
        await api.problem(
            "PUT", "/v1/jobs/by-key/daily", declared | ELSEWHERE, status=503, code="UNAVAILABLE"
        )
    two.local_is_at(two.port)
    assert [job["key"] for job in (await api.get("/v1/jobs"))["items"]] == ["hourly", "nightly"]


# --- polls -------------------------------------------------------------------------------
async def test_polls_of_a_queue_begin_at_another_store_each_time(two: Two) -> None:
    for _ in range(2):
        await _offer(two, two.main)
        await _offer(two, two.local, **AT_HOME)
    assert sorted([await _polled(two), await _polled(two)]) == [0, 1]
    assert sorted([await _polled(two), await _polled(two)]) == [0, 1]
    assert await _polled(two) is None


async def test_who_waits_hears_of_tasks_in_any_store(two: Two) -> None:
    await _offer(two, two.local, **AT_HOME)
    assert await _polled(two) == 1
    for store, policy, number in ((two.main, ELSEWHERE, 0), (two.local, AT_HOME, 1)):
        waiting = asyncio.create_task(_polled(two, wait=30))

        async def waits() -> bool:
            return bool(len(two.main.services.desk))

        await eventually(waits)
        await _offer(two, store, **policy)
        assert await waiting == number


async def test_a_silent_store_is_passed_over(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    await _offer(two, two.local, **AT_HOME)
    assert await _polled(two) == 1
    monkeypatch.setattr(polls, "LOOK_SECONDS", 0.1)
    async with _says(b"") as port:
        silent = two.local_is_at(port)
        assert await _polled(two) is None
        assert two.elsewhere.is_silent(silent)
        waiting = asyncio.create_task(_polled(two, wait=30))
        await _offer(two, two.main)
        assert await waiting == 0
    monkeypatch.undo()
    two.local_is_at(two.port)
    await _offer(two, two.local, **AT_HOME)
    assert await _polled(two) == 1


async def _polled(two: Two, *, wait: int = 0) -> int | None:
    """The store of the task that a poll has; None where it has none."""
    tasks = (await two.api.ok("POST", POLL, {"worker_id": "w", "wait_seconds": wait}))["tasks"]
    return store_named(tasks[0]["run_id"]) if tasks else None


async def _offer(two: Two, store: Cell, **policy: Any) -> None:
    """One task more in a store, as a dispatcher and an executor would offer it."""
    tenant = two.api.tenant
    queue = {"type": "TASK_QUEUE", "task_queue": "both", "lease_seconds": 60}
    job = await two.api.ok(
        "POST", "/v1/jobs", {"schedule": {"type": "NOW"}, "target": queue} | policy, status=201
    )

    async def ready() -> bool:
        rows = await store.store.list_jobs(tenant, JobFilter(), after=None, limit=99)
        (row,) = [row for row in rows if ids.encode(ids.JOB, row.job_id) == job["job_id"]]
        member = member_of(row, tenant, version=row.version)
        if member is not None:
            await store.claim_members([member])
        return member is None

    await eventually(ready)
    await store.services.desk.announce([(tenant, "both")])
