"""The table: kept current, remembered on disk, never trusted for too long."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time

import pytest
from aiohttp import web

from tests.component.controlplane.routing.surroundings import TENANT, Call, Listener, World, new_key
from tests.waiting import eventually


async def test_a_revoked_key_stops_working_within_five_seconds(world: World) -> None:
    assert (await world.call("GET", "/v1/jobs")).status == 200
    world.django.feed.set("key", world.key_id, None)
    began = time.monotonic()

    async def refused() -> bool:
        return (await world.call("GET", "/v1/jobs")).status == 401

    await eventually(refused)
    assert time.monotonic() - began < 5


async def test_it_starts_from_disk_with_everything_else_down(world: World) -> None:
    copy = world.folder / "router" / "feed.json"
    await eventually(copy.exists)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert await world.stop_router() == 0
    await world.django.stop()
    world.valkey_url = "redis://127.0.0.1:1/0"
    await world.start_router()
    answer = await world.call("GET", "/v1/jobs")
    assert answer.json["server"] == "cell-a"
    away = await world.call("GET", "/v1/tenant")
    assert (away.status, away.json["code"]) == (503, "UNAVAILABLE")
    world.place(TENANT, "cell-b", epoch=8)
    await world.django.start()

    async def moved() -> bool:
        return bool((await world.call("GET", "/v1/jobs")).json["server"] == "cell-b")

    await eventually(moved)


@pytest.mark.parametrize("fault", ["secret", "json"])
async def test_a_copy_that_cannot_sign_is_no_copy(world: World, fault: str) -> None:
    copy = world.folder / "router" / "feed.json"
    await eventually(copy.exists)
    assert await world.stop_router() == 0
    kept = json.loads(copy.read_bytes())
    for cell in kept["cells"].values():
        cell["secret_hex"] = "not hexadecimal"
    copy.write_bytes(json.dumps(kept).encode() if fault == "secret" else b"{")
    await world.start_router()  # Django has a good one
    assert (await world.call("GET", "/v1/jobs")).status == 200
    assert await world.stop_router() == 0
    await world.django.stop()
    copy.write_bytes(json.dumps(kept).encode() if fault == "secret" else b"{")
    await world.start_router(ready=False)
    assert (await world.call("GET", "/v1/jobs")).json["code"] == "UNAVAILABLE"


async def test_without_a_table_it_is_not_ready(world: World) -> None:
    await world.stop_router()
    await world.django.stop()
    (world.folder / "router" / "feed.json").write_bytes(b'{"cursor": "half')
    await world.start_router(ready=False)
    answer = await world.call("GET", "/v1/jobs")
    assert (answer.status, answer.json["code"]) == (503, "UNAVAILABLE")
    assert not await world.ready()
    await world.django.start()
    await eventually(world.ready)
    assert (await world.call("GET", "/v1/jobs")).status == 200


async def with_admin_key(world: World) -> str:
    key_id, admin = new_key()
    world.add_key(key_id, admin, tenant=TENANT, scopes=("admin",))

    async def known() -> bool:
        return (await world.call("GET", "/v1/jobs", key=admin)).status == 200

    await eventually(known)
    return admin


async def scopes_of(world: World, method: str, path: str, key: str) -> set[str]:
    """What a request may do at the cell."""
    assert (await world.call(method, path, key=key)).status == 200
    return set(world.cell.calls[-1].caller.scopes)


async def test_an_old_table_takes_privileged_scopes_from_writes_only(world: World) -> None:
    operator_id, operator = new_key("op")
    world.add_key(operator_id, operator, tenant=None, scopes=("operator",))
    admin = await with_admin_key(world)
    assert await scopes_of(world, "POST", "/v1/targets", admin) == {"admin"}
    await world.stop_router()
    await world.django.stop()
    world.settings["ROUTER_MAX_STALE_SECONDS"] = "1"
    await world.start_router()

    async def taken() -> bool:
        return "admin" not in await scopes_of(world, "POST", "/v1/targets", admin)

    await eventually(taken)
    left = await scopes_of(world, "POST", "/v1/jobs", admin)
    assert "jobs:write" in left
    assert not left & {"admin", "operator", "targets:approve"}
    assert await scopes_of(world, "GET", "/v1/jobs", admin) == {"admin"}
    calls = len(world.cell.calls)
    answer = await world.call("DELETE", "/v1/jobs/x", key=operator, headers={"X-Tenant-Id": TENANT})
    assert (answer.status, answer.json["code"]) == (503, "UNAVAILABLE")
    assert len(world.cell.calls) == calls
    await world.django.start()

    async def given_back() -> bool:
        return "admin" in await scopes_of(world, "POST", "/v1/targets", admin)

    await eventually(given_back)


async def test_a_copy_from_the_future_is_not_taken_for_a_fresh_one(world: World) -> None:
    admin = await with_admin_key(world)
    await world.stop_router()
    await world.django.stop()
    tomorrow = time.time() + 86_400
    os.utime(world.folder / "router" / "feed.json", (tomorrow, tomorrow))
    await world.start_router()
    assert "admin" not in await scopes_of(world, "POST", "/v1/targets", admin)
    assert await scopes_of(world, "GET", "/v1/jobs", admin) == {"admin"}


async def test_a_cursor_that_is_too_old_brings_a_new_snapshot(world: World) -> None:
    world.django.feed.oldest = 1000
    world.django.feed.log.clear()
    world.place(TENANT, "cell-b")

    async def moved() -> bool:
        return bool((await world.call("GET", "/v1/jobs")).json["server"] == "cell-b")

    await eventually(moved)


async def test_a_421_is_answered_by_the_new_owner_with_the_same_body(world: World) -> None:
    async def not_mine(request: web.Request, call: Call) -> web.StreamResponse:
        world.place(TENANT, "cell-b", epoch=8)
        return web.json_response({"code": "NOT_OWNER"}, status=421)

    world.cell.answer = not_mine
    body = bytes(range(256)) * 2000
    answer = await world.call("POST", "/v1/jobs", data=body)
    assert (answer.status, answer.json["server"]) == (200, "cell-b")
    assert world.other_cell.calls[-1].body == body
    assert world.other_cell.calls[-1].caller.epoch == 8


async def test_addresses_of_the_cell_that_said_421_are_not_asked_on(world: World) -> None:
    """They would take the new cell's signature for a forged one."""
    second = Listener("cell-a")
    second.secret = world.cell.secret
    await second.start()

    async def not_mine(request: web.Request, call: Call) -> web.StreamResponse:
        world.place(TENANT, "cell-b", epoch=8)
        return web.json_response({"code": "NOT_OWNER"}, status=421)

    both = f"{world.cell.url},{second.url}"
    try:
        world.django.feed.set(
            "cell", "cell-a", {"url": both, "secret_hex": second.secret.hex(), "state": "OPEN"}
        )

        async def heard_of_both() -> bool:
            assert (await world.call("GET", "/v1/jobs")).status == 200
            return bool(second.calls and world.cell.calls)

        await eventually(heard_of_both)
        world.cell.answer = second.answer = not_mine
        asked = len(second.calls) + len(world.cell.calls)
        answer = await world.call("GET", "/v1/jobs")
        assert (answer.status, answer.json["server"]) == (200, "cell-b")
        assert len(second.calls) + len(world.cell.calls) == asked + 1
    finally:
        await second.stop()


async def test_a_421_never_leaves_the_router(world: World) -> None:
    async def not_mine(request: web.Request, call: Call) -> web.StreamResponse:
        return web.json_response({"code": "NOT_OWNER"}, status=421)

    world.cell.answer = not_mine
    answer = await world.call("GET", "/v1/jobs")
    assert (answer.status, answer.json["code"]) == (503, "UNAVAILABLE")
    assert int(answer.headers["Retry-After"]) >= 1
    assert len(world.cell.calls) == 2


async def test_requests_wait_for_a_short_handoff_and_no_longer(world: World) -> None:
    world.place(TENANT, "cell-a", state="HANDOFF")

    async def held() -> bool:
        try:
            await asyncio.wait_for(world.call("GET", "/v1/jobs"), 0.5)
        except TimeoutError:
            return True
        return False

    await eventually(held)
    began = time.monotonic()
    answer = await world.call("GET", "/v1/jobs")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    assert 1.9 < time.monotonic() - began < 4
    waiting = asyncio.create_task(world.call("POST", "/v1/jobs", data=b"{}"))
    await asyncio.sleep(0)
    world.place(TENANT, "cell-b", epoch=9)
    answer = await waiting
    assert (answer.status, answer.json["server"]) == (200, "cell-b")


async def test_a_tenant_without_a_cell_is_told_to_wait(world: World) -> None:
    world.place(TENANT, "cell-a", state="SUSPENDED")
    assert (await world.call("GET", "/v1/jobs")).status == 200  # the cell decides what that means
    world.django.feed.set("tenant", TENANT, {"cell": None, "epoch": 0, "state": "ACTIVE"})

    async def unplaced() -> bool:
        return (await world.call("GET", "/v1/jobs")).status == 503

    await eventually(unplaced)


async def test_last_uses_are_reported(world: World) -> None:
    await world.call("GET", "/v1/jobs")
    await world.stop_router()  # reports what it has
    assert set(world.django.used) == {world.key_id}
    assert abs(world.django.used[world.key_id] - time.time() * 1000) < 60_000
