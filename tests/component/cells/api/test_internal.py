"""What the control plane tells and asks."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cells.contract import Scope
from cells.domain import ids
from cells.ports import Retryable
from tests.component.cells.api.harness import Api, Cell

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONFIG = {"job_runs_per_second": 2000, "strict_jobs_per_second": 100, "pending_timers": 5}
TENANT = {"state": "ACTIVE", "ownership_epoch": 7, "config_version": 3, "config": CONFIG}


@pytest.fixture
def control(running: Cell) -> Api:
    return Api(
        running.api.app,
        running.api.http,
        running.clock,
        running.api.tenant,
        scopes=(Scope.INTERNAL.value,),
        actor="service:control-plane",
    )


async def put(control: Api, path: str, body: Any) -> Any:
    return await control.ok("PUT", path, body, hashed=True)


async def test_what_a_tenant_uses(running: Cell, control: Api) -> None:
    tenant = uuid.uuid4()
    path = f"/internal/tenants/{ids.encode('tnt', tenant)}"
    await control.problem("GET", path + "/use", status=404, code="NOT_FOUND")
    await put(control, path, TENANT)
    api = running.api.of(tenant)
    await api.target(target_id="tgt_email")
    nothing = await control.get(path + "/use")
    del nothing["at"]
    assert nothing == {
        "job_runs_per_second": 0.0, "pending_timers": 0, "running_runs": 0, "strict_jobs_per_second": 0,
    }  # fmt: skip
    for n in range(3):
        hour = datetime.fromtimestamp(running.clock.now_ms() // 1000, UTC) + timedelta(hours=1)
        at = hour.replace(second=0) + timedelta(seconds=n // 2)  # two in one second
        await api.ok("POST", "/v1/jobs", {
            "schedule": {"type": "ONCE", "run_at": at.isoformat()}, "target": {"target_id": "tgt_email"},
            "priority": "CRITICAL", "dispatch_window_seconds": 0,
        }, status=201)  # fmt: skip
    await api.job("tgt_email")
    used = await control.get(path + "/use")
    assert (used["pending_timers"], used["strict_jobs_per_second"], used["running_runs"]) == (4, 2, 0)
    await api.problem("GET", path + "/use", status=403, code="FORBIDDEN")


async def test_a_tenant_is_placed(running: Cell, control: Api) -> None:
    tenant = uuid.uuid4()
    path = f"/internal/tenants/{ids.encode('tnt', tenant)}"
    await control.problem("GET", path, status=404, code="NOT_FOUND")
    newcomer = running.api.of(tenant)
    await newcomer.problem("GET", "/v1/jobs", status=421, code="NOT_OWNER")
    first = await put(control, path, TENANT)
    assert first["applied"] is True
    assert (first["state"], first["ownership_epoch"], first["config_version"]) == ("ACTIVE", 7, 3)
    assert first["config"]["job_runs_per_second"] == 2000
    assert first["config"]["default_window_seconds"] == 300
    await newcomer.get("/v1/jobs")  # at once, not after the cache's second
    older = await put(control, path, TENANT | {"config_version": 2, "state": "MOVED"})
    assert (older["applied"], older["state"], older["config_version"]) == (False, "ACTIVE", 3)
    newer = await put(control, path, TENANT | {"config_version": 4, "later_field": {"x": 1}})
    assert (newer["applied"], newer["config_version"]) == (True, 4)
    moved = await put(control, path, TENANT | {"config_version": 5, "state": "MOVED", "ownership_epoch": 8})
    assert moved["state"] == "MOVED"
    await newcomer.problem("GET", "/v1/jobs", status=421, code="NOT_OWNER")
    read = await control.get(path)
    assert read == {name: value for name, value in moved.items() if name != "applied"}
    everyone = await control.get("/internal/tenants")
    assert read in everyone["items"]


async def test_only_the_control_plane_with_a_signed_body(running: Cell, control: Api) -> None:
    path = f"/internal/tenants/{running.api.tenant_text}"
    before = await control.get(path)
    for scopes in ([Scope.ADMIN], [Scope.OPERATOR], list(set(Scope) - {Scope.INTERNAL})):
        other = running.api.with_scopes(*scopes)
        for method, where in (
            ("PUT", path),
            ("GET", path),
            ("GET", "/internal/tenants"),
            ("GET", "/internal/status"),
        ):
            await other.problem(method, where, TENANT, status=403, code="FORBIDDEN", hashed=True)
    await control.problem("PUT", path, TENANT, status=401, code="UNAUTHENTICATED")
    await control.problem("GET", "/v1/jobs", status=403, code="FORBIDDEN")
    assert await control.get(path) == before


async def test_how_the_cell_is(running: Cell, control: Api) -> None:
    await running.api.target(target_id="tgt_email")
    once = {"type": "ONCE", "run_at": "2020-01-05T09:00:00Z"}
    job = await running.api.job("tgt_email", schedule=once)
    status = await control.get("/internal/status")
    assert (status["cell"], status["region"]) == ("local-shared-1", "local")
    assert [host["name"] for host in status["hosts"] if host["live"]] == [running.host.name]
    assert status["queue"] == {"CRITICAL": 0, "HIGH": 0, "DEFAULT": 0, "LOW": 0}
    assert status["past_quota"] == 0
    # Other tests of this folder left timers in the same database: ours may not be the oldest.
    assert status["oldest_due_at"] <= job["due_at"]
    assert status["lag_ms"] > 0
    assert status["tenants"]["ACTIVE"] >= 1
    assert status["promised_runs_per_second"] >= 100
    await running.api.ok("DELETE", f"/v1/jobs/{job['job_id']}")

    class Down:
        async def depths(self) -> Any:
            raise Retryable("no route to host")

    blind = running.with_engines(queue=Down())  # type: ignore[arg-type]
    blind.scopes = control.scopes
    status = await blind.get("/internal/status")
    assert (status["queue"], status["past_quota"]) == (None, None)


async def test_wrong_tenants_are_refused(running: Cell, control: Api) -> None:
    path = f"/internal/tenants/{running.api.tenant_text}"
    before = await control.get(path)
    for wrong, pointer in (
        ({"state": "GONE"}, "/state"),
        ({"ownership_epoch": 0}, "/ownership_epoch"),
        ({"config_version": -1}, "/config_version"),
        ({"config": {"job_runs_per_second": "many"}}, "/config"),
    ):
        problem = await control.problem("PUT", path, TENANT | wrong, status=422, code="INVALID", hashed=True)
        assert [fault["pointer"] for fault in problem["errors"]] == [pointer]
    await control.problem("PUT", "/internal/tenants/tnt_x", TENANT, status=404, code="NOT_FOUND", hashed=True)
    assert await control.get(path) == before
