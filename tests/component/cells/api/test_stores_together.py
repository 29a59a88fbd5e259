"""A tenant whose work is in several stores: events, quotas and figures, owners that are new, erasure."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from cells.erasure.service import ErasureService
from cells.store.transfer import TransferStore
from tests.component.cells.api.harness import CELL
from tests.component.cells.api.two_stores import AT_HOME, Two
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

RATE = {"schedule": {"type": "RATE", "every_seconds": 3600}}


async def test_the_parts_of_a_quota_are_together_what_was_said(two: Two) -> None:
    api, tenant = two.api, two.api.tenant
    said = {"job_runs_per_second": 40, "running_runs": 9, "pending_timers": 1, "strict_jobs_per_second": 0}
    await two.main.place(tenant, **said)

    async def parts(quota: str) -> list[int]:
        stores = (two.main.store, two.local.store)
        found = [await store.get_tenant(tenant) for store in stores]
        return [getattr(one.config, quota) for one in found if one is not None]

    assert await parts("job_runs_per_second") == [40]
    target = await api.target()
    await api.job(target["target_id"], region_policy="SINGLE_REGION")
    assert [await parts(quota) for quota in said] == [[30, 10], [7, 2], [1, 1], [0, 0]]
    shown = (await two.control.get(f"/internal/tenants/{api.tenant_text}"))["config"]
    assert {quota: shown[quota] for quota in said} == said
    await two.main.place(tenant, **said | {"job_runs_per_second": 80})
    assert (await parts("job_runs_per_second"))[0] == 60
    placed = await two.main.store.get_tenant(tenant)
    assert placed is not None
    assert placed.whole.job_runs_per_second == 80
    # Saying the same again is no news.
    assert not await two.main.store.put_tenant(replace(placed, config=placed.whole))


async def test_a_new_owner_asks_who_uses_a_store(two: Two) -> None:
    api = two.api
    target = await api.target()
    kept = await api.job(target["target_id"], region_policy="SINGLE_REGION")
    with psycopg.connect(two.main.database_url, autocommit=True) as sql:
        sql.execute("DELETE FROM local_stores WHERE tenant_id = %s", [api.tenant])

    async def listed() -> bool:
        return [job["job_id"] for job in (await api.get("/v1/jobs"))["items"]] == [kept["job_id"]]

    async with two.telling():
        await eventually(listed)
    assert [used.store for used in await two.main.store.local_stores_of(api.tenant)] == [1]


async def test_events_of_all_stores_are_one_feed(two: Two) -> None:
    api = two.api
    before = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    target = await api.target()
    first = (await api.get("/v1/events?type=job.created"))["next_cursor"]
    made = [(await api.job(target["target_id"], **policy))["job_id"] for policy in ({}, AT_HOME, AT_HOME, {})]

    async def told(cursor: str, limit: int) -> list[Any] | None:
        found: list[Any] = []
        more = True
        while more:
            page = await api.get(f"/v1/events?type=job.created&limit={limit}&cursor={cursor}")
            assert len(page["items"]) <= limit
            found, cursor, more = found + page["items"], page["next_cursor"], page["more"]
        return found if len(found) >= len(made) else None

    # A cursor from before the local store was used is good for both.
    for cursor, limit in (("start", 50), (first, 1), (first, 3)):
        items = await eventually(partial(told, cursor, limit))
        assert [item["subject"] for item in items] == made
        assert len({item["event_id"] for item in items}) == len(made)
    newest = await api.get("/v1/events?type=job.created&limit=2")
    assert [item["subject"] for item in newest["items"]] == made[2:]
    path = f"/v1/events?wait=20&type=job.created&cursor={newest['next_cursor']}"
    waiting = asyncio.create_task(api.get(path))
    later = await api.job(target["target_id"], **AT_HOME)
    assert [item["subject"] for item in (await waiting)["items"]] == [later["job_id"]]

    async def read(after: Any) -> Any:
        one = {"tenant_id": api.tenant_text, "since": before, "after": after}
        body = {"tenants": [one], "types": ["job.created"]}
        return (await two.control.ok("POST", "/internal/events:read", body))["items"]

    (item,) = await read(None)
    assert {event["subject"] for event in item["events"]} == {*made, later["job_id"]}
    assert len(item["reached"]) == 7, "a place in each store"
    assert await read(item["reached"]) == []
    (again,) = await read(item["reached"][:3])
    assert {event["subject"] for event in again["events"]} == {made[1], made[2], later["job_id"]}
    body = {"tenants": [{"tenant_id": api.tenant_text, "since": before, "after": [1, 2]}], "types": []}
    await two.control.problem("POST", "/internal/events:read", body, status=422, code="INVALID")


async def test_a_region_that_is_away_is_named(two: Two) -> None:
    api = two.api
    target = await api.target()
    kept = await api.job(target["target_id"], region_policy="SINGLE_REGION")
    own = await api.job(target["target_id"])
    cursor = (await api.get("/v1/events"))["next_cursor"]
    await two.door.close()
    try:
        await _is_away(two, kept, own)
        page = await api.get(f"/v1/events?cursor={cursor}")
        assert page["unreachable_regions"] == ["east"]
    finally:
        await two.door.open()
    on = await api.get(f"/v1/events?cursor={page['next_cursor']}")
    assert "unreachable_regions" not in on
    assert (await api.get(f"/v1/jobs/{kept['job_id']}"))["job_id"] == kept["job_id"]


async def _is_away(two: Two, kept: Any, own: Any) -> None:
    api = two.api
    problem = await api.problem("GET", f"/v1/jobs/{kept['job_id']}", status=503, code="HOME_REGION_DOWN")
    assert problem["region"] == "east"
    body = RATE | {"target": {"target_id": own["target"]["target_id"]}, "region_policy": "SINGLE_REGION"}
    await api.problem("POST", "/v1/jobs", body, status=503, code="HOME_REGION_DOWN")
    page = await api.get("/v1/jobs")
    assert [job["job_id"] for job in page["items"]] == [own["job_id"]]
    assert page["unreachable_regions"] == ["east"]
    assert page["next_cursor"] is None, "nobody asks for ever"
    for path in ("/v1/stats", "/v1/delays", "/v1/workflows/reconciliation"):
        assert (await api.get(path))["unreachable_regions"] == ["east"], path
    assert 'clockhouse_region_unreachable{region="east"} 1' in (await api.send("GET", "/v1/metrics")).text
    use = await two.control.get(f"/internal/tenants/{api.tenant_text}/use")
    assert (use["pending_timers"], use["unreachable_regions"]) == (1, ["east"])
    await api.job(own["target"]["target_id"])


async def test_an_erasure_reaches_every_store(two: Two) -> None:
    api = two.api
    target = await api.target()
    for policy in ({}, AT_HOME, AT_HOME):
        await api.job(target["target_id"], **policy)
    for each in (two.main, two.local):
        sessions = TransferStore(each.database_url, cell_name=CELL)
        each.services.erasures = ErasureService(sessions, each.queue, None)
        with psycopg.connect(each.database_url, autocommit=True) as sql:
            sql.execute("UPDATE cell SET metered_until = now() + interval '1 hour'")
            sql.execute("UPDATE meter_minutes SET shipped_at = now()")
    order = {"erasure_id": str(uuid.uuid4())}

    async def told() -> Any:
        path = f"/internal/tenants/{api.tenant_text}/erase"
        return await two.control.ok("POST", path, order, hashed=True)

    async def own_done() -> Any:
        found = await told()
        return found if found["own_done"] else None

    await two.door.close()
    try:
        waits = await eventually(own_done)
    finally:
        await two.door.open()
    (store,) = waits["stores"]
    assert (waits["done"], store["reached"], store["done"]) == (False, False, False)
    assert waits["why"].startswith("east does not answer")
    assert waits["removed"]["jobs"] == 1

    async def done() -> Any:
        found = await told()
        return found if found["done"] else None

    (store,) = (await eventually(done))["stores"]
    assert (store["store"], store["region"], store["removed"]["jobs"]) == (1, "east", 2)
    assert await two.local.store.is_erased(api.tenant)
    assert await two.local_jobs() == set()


async def test_what_is_strict_is_told_to_who_plans_a_move(two: Two) -> None:
    told = await two.control.get(f"/internal/tenants/{two.api.tenant_text}/stores")
    assert told == {"items": [], "strict": {"jobs": 0, "workflows": 0}}
