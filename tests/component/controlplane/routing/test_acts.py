"""What operators do to tenants is kept before it is done, and told to Django until it has it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import aiohttp
import pytest

from controlplane.routing import acts as acts_module
from controlplane.routing.acts import OperatorActs
from controlplane.routing.control import ControlPlane
from tests.component.controlplane.routing.surroundings import TENANT, Django, World, new_key, now_ms
from tests.waiting import eventually


async def _note(acts: OperatorActs, path: str = "/v1/jobs") -> None:
    await acts.note(
        actor="key:op", tenant_id=TENANT, method="DELETE", path=path, request_id="r", client="::1"
    )


async def test_an_act_survives_a_crash_and_a_control_plane_that_is_away(tmp_path: Path) -> None:
    django = Django()
    await django.start()
    async with aiohttp.ClientSession() as session:
        control = ControlPlane(session, django.url, django.secret, now_ms=now_ms)
        await django.stop()
        first = OperatorActs(tmp_path, host="router-a", now_ms=now_ms)
        await _note(first)
        assert await first.tell(control) == 0
        with (tmp_path / "acts" / "router-a.jsonl").open("ab") as spool:
            spool.write(b'{"act_id": "half of')  # killed while it wrote
        second = OperatorActs(tmp_path, host="router-b", now_ms=now_ms)
        await _note(second, "/v1/runs")
        assert second.untold == 2
        await django.start()
        assert await second.tell(control) == 2
        assert (second.untold, await second.tell(control)) == (0, 0)
        assert sorted(act["path"] for act in django.acts.values()) == ["/v1/jobs", "/v1/runs"]
        assert list((tmp_path / "acts").glob("*.jsonl")) == []
        assert await first.tell(control) == 1  # told twice: the id says that it is one
        assert len(django.acts) == 2
        await django.stop()


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_operators_requests_to_cells_are_told(world: World, method: str) -> None:
    key_id, key = new_key("op")
    headers = {"X-Tenant-Id": TENANT, "X-Request-Id": "req-17"}
    world.add_key(key_id, key, tenant=None, scopes=("operator",))

    async def known() -> bool:
        return (await world.call(method, "/v1/jobs/j:x?secret=1", key=key, headers=headers)).status == 200

    await eventually(known)
    await eventually(lambda: bool(world.django.acts))
    (act,) = world.django.acts.values()
    assert {name: act[name] for name in ("actor", "tenant_id", "method", "path", "request_id")} == {
        "actor": f"key:{key_id}",
        "tenant_id": TENANT,
        "method": method,
        "path": "/v1/jobs/j:x",
        "request_id": "req-17",
    }
    await world.call("GET", "/v1/tenant", key=key, headers=headers)  # Django audits what it does itself
    await world.call("GET", "/v1/jobs")
    assert await world.stop_router() == 0
    assert len(world.django.acts) == 1


async def test_what_cannot_be_kept_is_not_done(world: World) -> None:
    key_id, key = new_key("op")
    world.add_key(key_id, key, tenant=None, scopes=("operator",))
    spools = world.folder / "router" / "acts"
    spools.rmdir()
    spools.write_text("a file where the folder was")

    async def refused() -> bool:
        answer = await world.call("DELETE", "/v1/jobs/j", key=key, headers={"X-Tenant-Id": TENANT})
        return answer.status == 503 and "audited" in answer.json["detail"]

    await eventually(refused)
    assert world.cell.calls == []


async def test_what_is_refused_for_good_is_kept_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acts_module, "_MOST_REFUSED", 1000)
    django = Django()
    django.acts_status = 422
    await django.start()
    async with aiohttp.ClientSession() as session:
        control = ControlPlane(session, django.url, django.secret, now_ms=now_ms)
        acts = OperatorActs(tmp_path, host="router-a", now_ms=now_ms)
        for number in range(30):
            await _note(acts, f"/v1/jobs/{number}")
        assert await acts.tell(control) == 30
    await django.stop()
    refused = tmp_path / "acts" / "refused.json"
    assert b"/v1/jobs/29" in refused.read_bytes()
    sizes = [path.stat().st_size for path in (refused, refused.with_name("refused.json.old"))]
    assert all(0 < size < 1500 for size in sizes)


async def test_the_name_of_a_new_spool_is_flushed_whoever_left_acts_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    flush = acts_module.flush_folder
    monkeypatch.setattr(acts_module, "flush_folder", lambda folder: (flushed.append(folder), flush(folder)))
    await _note(OperatorActs(tmp_path, host="router-a", now_ms=now_ms))
    heir = OperatorActs(tmp_path, host="router-b", now_ms=now_ms)
    for _ in range(2):
        await _note(heir)
    assert flushed == [tmp_path / "acts"] * 2  # once by each process


async def test_a_slow_disk_keeps_nobody_else_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, may_go = threading.Event(), threading.Event()

    def slow(folder: Path) -> None:
        written.set()
        assert may_go.wait(10)

    monkeypatch.setattr(acts_module, "flush_folder", slow)
    acts = OperatorActs(tmp_path, host="router-a", now_ms=now_ms)
    noting = asyncio.create_task(_note(acts))
    await eventually(written.is_set)  # the loop runs on
    assert not noting.done()
    may_go.set()
    await noting
    assert acts.untold == 1
