"""The feed: everything people should hear of, once, in an order that never changes."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from cells.api import pagination
from cells.api.events import WAITERS
from cells.contract import Scope
from cells.domain import ids
from cells.domain.run import RunState
from tests.component.cells.api.harness import Api, Cell
from tests.component.cells.api.test_selections import apply, choose, worked
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

TARGET = "tgt_email"


async def told(api: Api, type_: str = "", count: int = 1) -> list[Any]:
    """The events of a type, once there are that many: they show when older transactions are over."""
    path = "/v1/events?cursor=start&limit=200" + (f"&type={type_}" if type_ else "")

    async def enough() -> list[Any] | None:
        items: list[Any] = (await api.get(path))["items"]
        return items if len(items) >= count else None

    return await eventually(enough)


async def test_decisions_are_told_with_their_maker(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(TARGET, name="nightly")
    path = f"/v1/jobs/{job['job_id']}"
    await api.ok("PATCH", path, {"name": "weekly"})
    for verb in ("pause", "pause", "resume"):
        await api.ok("POST", f"{path}:{verb}")
    await api.ok("DELETE", path)
    await api.ok("DELETE", path)
    items = await told(api, count=7)
    assert [item["type"] for item in items] == [
        "target.created", "target.approved", "job.created", "job.edited", "job.paused", "job.resumed",
        "job.cancelled",
    ]  # fmt: skip
    assert {item["actor"] for item in items} == {"key:test"}
    assert [item["subject"] for item in items] == [TARGET] * 2 + [job["job_id"]] * 5
    assert items[2]["data"] == {"count": 1, "job_ids": [job["job_id"]], "name": "nightly"}
    assert items[3]["data"] == {"version": 2, "name": "weekly"}
    assert len({item["event_id"] for item in items}) == 7


async def test_targets(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    path = f"/v1/targets/{TARGET}"
    await api.ok("PATCH", path, {"max_concurrency": 3})
    await api.ok("PATCH", path, {"base_url": "https://new.example"})
    await api.ok("POST", f"{path}:approve")
    await api.ok("PATCH", path, {"disabled": True})
    await api.ok("POST", f"{path}:rotate-secret", {"overlap_seconds": 60})
    await api.ok("DELETE", path, status=204)
    items = await told(api, "target", 8)
    assert [item["type"].removeprefix("target.") for item in items] == [
        "created", "approved", "edited", "pending", "approved", "disabled", "secret_rotated", "deleted",
    ]  # fmt: skip
    assert items[6]["data"] == {"purpose": "SIGNING", "overlap_seconds": 60}
    assert "whsec" not in str(items)


async def test_dead_letters_and_gone_targets(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    past = {"type": "ONCE", "run_at": "2026-01-05T09:00:00Z"}
    jobs = [await api.job(TARGET, schedule=past, name=f"nightly {n}", tags=["prod"]) for n in range(3)]
    claims = [claim for job in jobs for claim in await running.claim(job["job_id"])]
    await running.complete(claims[0], RunState.SUCCEEDED)
    await running.complete(claims[1], RunState.FAILED)
    await running.complete(claims[2], RunState.FAILED, target_gone=True)
    first, second = await told(api, "run.dead_lettered", 2)
    assert first["subject"] == str(claims[1].key)
    assert first["actor"] is None
    assert first["data"]["count"] == 1
    assert (first["data"]["reason"], first["data"]["http_status"]) == ("FAILED", 404)
    (named,) = first["data"]["jobs"]
    assert named == {"job_id": jobs[1]["job_id"], "name": "nightly 1", "tags": ["prod"]}
    assert first["data"]["fingerprint"] == second["data"]["fingerprint"]
    (gone,) = await told(api, "target.gone")
    assert gone["subject"] == TARGET


async def test_bulk_operations_tell_once(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    hourly = {"schedule": {"type": "RATE", "every_seconds": 3600}, "target": {"target_id": TARGET}}
    await api.ok("POST", "/v1/jobs:batch", {"jobs": [hourly] * 120})
    operation = await apply(api, await choose(api, "pause"))
    await worked(running, operation)
    begun, ended = await told(api, "operation", 2)
    assert (begun["type"], ended["type"]) == ("operation.started", "operation.ended")
    assert begun["subject"] == ended["subject"] == operation["operation_id"]
    assert ended["data"] == {"action": "pause", "total": 120, "done": 120, "unchanged": 0, "failed": 0}
    (created,) = await told(api, "job")
    assert (created["data"]["count"], len(created["data"]["job_ids"])) == (120, 20)


async def test_a_limit_is_told_once_in_a_while(running: Cell) -> None:
    api = running.api
    await running.place(api.tenant, pending_timers=1)
    await api.target(target_id=TARGET)
    await api.job(TARGET)
    body = {"schedule": {"type": "RATE", "every_seconds": 60}, "target": {"target_id": TARGET}}
    for _ in range(3):
        await api.problem("POST", "/v1/jobs", body, status=429, code="QUOTA_EXCEEDED")
    (reached,) = await told(api, "quota.reached")
    assert reached["subject"] == api.tenant_text
    assert reached["data"] == {"quota": "pending_timers", "limit": 1}


async def test_the_newest_and_then_on(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    empty = await api.get("/v1/events?type=run")
    assert (empty["items"], empty["more"]) == ([], False)
    jobs = [await api.job(TARGET, name=str(i)) for i in range(5)]
    await told(api, "job", 5)
    newest = await api.get("/v1/events?limit=2&type=job.created")
    assert [item["data"]["name"] for item in newest["items"]] == ["3", "4"]
    nothing = await api.get(f"/v1/events?type=job.created&cursor={newest['next_cursor']}")
    assert (nothing["items"], nothing["next_cursor"]) == ([], newest["next_cursor"])
    waiting = asyncio.create_task(
        api.get(f"/v1/events?type=job.created&wait=10&cursor={newest['next_cursor']}")
    )
    await asyncio.sleep(0)
    late = await api.job(TARGET, name="late")
    assert [item["subject"] for item in (await waiting)["items"]] == [late["job_id"]]
    seen, cursor = [], "start"
    while True:
        page = await api.get(f"/v1/events?type=job&limit=2&cursor={cursor}")
        seen += [item["subject"] for item in page["items"]]
        cursor = page["next_cursor"]
        if not page["more"]:
            break
    assert seen == [job["job_id"] for job in jobs] + [late["job_id"]]
    for wrong in ("cursor=x", "wait=21", "limit=0", f"cursor={cursor}"):
        await api.problem("GET", f"/v1/events?{wrong}", status=422, code="INVALID")


async def test_nothing_is_added_before_a_cursor(running: Cell) -> None:
    """A transaction that began earlier and commits later is neither lost nor overtaken."""
    api = running.api
    await api.target(target_id=TARGET)
    await told(api, count=2)
    async with await psycopg.AsyncConnection.connect(running.database_url) as slow:
        await slow.execute(
            b"INSERT INTO events (tenant_id, epoch, type, subject, data)"
            b" SELECT tenant_id, ownership_epoch, 'test', 'x', '{}' FROM tenants WHERE tenant_id = %s",
            (api.tenant,),
        )
        job = await api.job(TARGET)
        assert [item["type"] for item in (await api.get("/v1/events?cursor=start"))["items"]] == [
            "target.created",
            "target.approved",
        ]
        await slow.commit()
    items = await told(api, count=4)
    assert [item["subject"] for item in items[2:]] == ["x", job["job_id"]]


async def test_everybody_reads_their_own(running: Cell) -> None:
    await running.api.target(target_id=TARGET)
    await told(running.api, count=2)
    stranger = running.api.of(uuid.uuid4())
    await running.place(stranger.tenant)
    assert (await stranger.get("/v1/events?cursor=start"))["items"] == []


async def test_a_search_without_a_find_moves_on(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(TARGET)
    for verb in ("pause", "resume"):
        await api.ok("POST", f"/v1/jobs/{job['job_id']}:{verb}")
    all_of_them = await told(api, count=5)
    store, tenant, place, seen = running.store, api.tenant, (0, 0, 0), []
    while True:
        found = await store.events(tenant, after=place, type_="job.resumed", limit=5, looks=2)
        seen.append([event.type for event in found.events])
        if found.reached is None or not found.more:
            break
        place = found.reached
    assert seen == [[], [], ["job.resumed"]]
    # Nothing at all of a type: the cursor stands behind everything there is all the same.
    for start in ("&cursor=start", ""):
        page = await api.get(f"/v1/events?type=target.gone{start}")
        assert (page["items"], page["more"]) == ([], False)
        await api.ok("PATCH", f"/v1/jobs/{job['job_id']}", {"name": f"later{start}"})
        epoch, xid, seq = (int(part) for part in all_of_them[-1]["event_id"].split("_")[1:])
        reached = pagination.read_cursor(
            page["next_cursor"], "events", {"type": "target.gone"}, tuple[int, int, int]
        )
        assert reached >= (epoch, xid, seq)


async def test_few_may_wait(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    cursor = (await api.get("/v1/events?type=target.gone"))["next_cursor"]
    path = f"/v1/events?type=target.gone&cursor={cursor}&wait=20"
    waiting = [asyncio.create_task(api.send("GET", path)) for _ in range(WAITERS)]
    waiters = running.api.app.state.services.event_waiters

    async def all_wait() -> bool:
        return bool(waiters[api.tenant] == WAITERS)

    await eventually(all_wait)
    told_off = await api.problem("GET", path, status=429, code="QUOTA_EXCEEDED")
    assert (told_off["scope"], told_off["quota"], told_off["limit"]) == ("tenant", "event_waiters", WAITERS)
    assert (await api.get(path.replace("wait=20", "wait=0")))["items"] == []
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert api.tenant not in waiters


async def test_late_and_on_time_again(running: Cell) -> None:
    """Told once each; work that its people paused is not late."""
    api, store, host = running.api, running.store, running.host.host_id
    await api.target(target_id=TARGET)
    job = await api.job(TARGET, schedule={"type": "ONCE", "run_at": "2026-01-05T09:00:00Z"})
    await running.place(api.tenant, paused=True)
    await store.tell_late(after_seconds=0, host_id=host)
    await running.place(api.tenant, paused=False)
    for _ in range(2):
        await store.tell_late(after_seconds=0, host_id=host)
    (late,) = await told(api, "dispatch.late")
    assert late["subject"] == api.tenant_text
    assert late["data"]["slo_seconds"] == 0
    assert late["data"]["oldest_due_at"]
    await api.ok("DELETE", f"/v1/jobs/{job['job_id']}")
    for _ in range(2):
        await store.tell_late(after_seconds=0, host_id=host)
    assert len(await told(api, "dispatch.recovered")) == 1
    assert len(await told(api, "dispatch.late")) == 1


async def test_the_control_plane_reads_many_feeds(running: Cell) -> None:
    api = running.api
    before = datetime.now(UTC) - timedelta(hours=1)
    await api.target(target_id=TARGET)
    for n in range(3):
        await api.job(TARGET, name=str(n))
    await told(api, "job", 3)
    control = Api(
        api.app,
        api.http,
        running.clock,
        api.tenant,
        scopes=(Scope.INTERNAL.value,),
        actor="service:control-plane",
    )

    async def read(after: Any, since: datetime, *types: str) -> Any:
        one = {"tenant_id": api.tenant_text, "since": since.isoformat(), "after": after}
        nobody = {**one, "tenant_id": ids.encode(ids.TENANT, uuid.UUID(int=7))}
        body = {"tenants": [one, nobody], "types": list(types)}
        return await control.ok("POST", "/internal/events:read", body)

    first = await read(None, before, "job.created", "target.created")
    (mine,) = first["items"]
    assert first["epoch"] >= 1
    assert [event["type"] for event in mine["events"]] == ["target.created"] + ["job.created"] * 3
    assert mine["more"] is False
    assert (await read(mine["reached"], before, "job.created"))["items"] == []
    (none,) = (await read(None, before, "run.dead_lettered"))["items"]
    assert (none["events"], none["reached"]) == ([], mine["reached"]), "it was looked at all the same"
    assert (await read(None, datetime.now(UTC) + timedelta(hours=1), "job.created"))["items"] == []
    await api.job(TARGET, name="later")
    await told(api, "job", 4)
    (on,) = (await read(mine["reached"], before, "job.created"))["items"]
    assert [event["data"]["name"] for event in on["events"]] == ["later"]
    empty: dict[str, Any] = {"tenants": [], "types": []}
    await api.problem("POST", "/internal/events:read", empty, status=403, code="FORBIDDEN")
