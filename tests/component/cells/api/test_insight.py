"""How targets and jobs have been doing, dead letters one by one, and trying a target out."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from standardwebhooks import Webhook

from cells.contract import Scope
from cells.domain.run import RunState
from tests.component.cells.api.harness import Cell
from tests.component.cells.execution.http_target import answering, http_target
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

TARGET = "tgt_email"
PAST = {"type": "ONCE", "run_at": "2026-01-05T09:00:00Z"}


async def folded(cell: Cell, path: str, calls: int) -> Any:
    """An answer, once that many calls are folded into it."""

    async def enough() -> Any:
        await cell.store.fold_stats()
        found = await cell.api.get(path)
        total = found["total"]["started"] if "total" in found else found["calls"]
        return found if total >= calls else None

    return await eventually(enough)


async def ran(cell: Cell, *states: RunState) -> list[Any]:
    jobs = [await cell.api.job(TARGET, schedule=PAST) for _ in states]
    for job, state in zip(jobs, states, strict=True):
        (claim,) = await cell.claim(job["job_id"])
        await cell.complete(claim, state)
    return jobs


async def test_a_targets_minutes_and_health(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET, latency_slo_ms=500)
    await api.target("https://other.internal", target_id="tgt_other")
    path = f"/v1/targets/{TARGET}/health"
    idle = await api.get(path)
    assert (idle["verdict"], idle["calls"], idle["success_rate"], idle["in_flight"]) == ("idle", 0, None, 0)
    await ran(running, RunState.SUCCEEDED, RunState.SUCCEEDED, RunState.FAILED)
    job = await api.job(TARGET, schedule=PAST)
    await running.claim(job["job_id"])
    health = await folded(running, path, 3)
    assert (health["succeeded"], health["failed"], health["retried"]) == (2, 1, 0)
    assert (health["verdict"], health["success_rate"], health["in_flight"]) == ("failing", 0.6667, 1)
    assert health["call_p95_ms"] <= 5
    (failure,) = health["recent_failures"]
    assert (failure["http_status"], failure["error"]) == (404, "not found")
    stats = await api.get(f"/v1/stats?target_id={TARGET}")
    assert stats["total"]["started"] == 3
    assert sum(minute["succeeded"] for minute in stats["minutes"]) == 2
    assert (await api.get("/v1/stats?target_id=tgt_other"))["minutes"] == []
    await api.problem("GET", "/v1/stats?target_id=tgt_none", status=404, code="NOT_FOUND")
    await api.problem("GET", f"/v1/targets/{TARGET}/health?minutes=0", status=422, code="INVALID")


async def test_a_tenants_figures_for_prometheus(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    job = await api.job(TARGET, schedule=PAST)
    await running.claim(job["job_id"])
    answer = await api.send("GET", "/v1/metrics")
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/plain")
    told = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert told["clockhouse_runs", "succeeded"] == 0
    assert told["clockhouse_runs_under_way",] == 1
    assert ("clockhouse_dispatch_lag_seconds", "0.5") not in told  # nothing has run in the last minutes
    await api.problem("GET", "/v1/metrics?x=1", status=422, code="INVALID")


async def test_a_jobs_minutes(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    good, bad = await ran(running, RunState.SUCCEEDED, RunState.FAILED)
    since = "since=2026-01-05T00:00:00Z&until=2026-01-06T00:00:00Z"
    stats = await api.get(f"/v1/stats?job_id={good['job_id']}&{since}")
    (minute,) = stats["minutes"]
    assert minute["minute"] == "2026-01-05T09:00:00Z"
    assert (minute["started"], minute["succeeded"], minute["failed"], minute["retried"]) == (1, 1, 0, 0)
    assert stats["total"] | {"minute": minute["minute"]} == minute
    assert minute["lag_p50_ms"] > 0
    assert (await api.get(f"/v1/stats?job_id={bad['job_id']}&{since}"))["total"]["failed"] == 1
    nothing = await api.get(f"/v1/stats?job_id={good['job_id']}")
    assert (nothing["minutes"], nothing["total"]["started"], nothing["total"]["lag_p50_ms"]) == ([], 0, None)
    await api.problem("GET", "/v1/stats?job_id=job_x", status=404, code="NOT_FOUND")
    both = f"/v1/stats?job_id={good['job_id']}&target_id={TARGET}"
    await api.problem("GET", both, status=422, code="INVALID")


async def test_dead_letters_are_filtered_and_read(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    first, second = await ran(running, RunState.FAILED, RunState.FAILED)
    everything = (await api.get("/v1/dlq"))["items"]
    assert [item["job_id"] for item in everything] == [second["job_id"], first["job_id"]]
    for query, found in (
        (f"job_id={first['job_id']}", [first]),
        ("reason=FAILED", [second, first]),
        ("reason=POISON", []),
        ("failed_from=2026-01-01T00:00:00Z", [second, first]),
        ("failed_until=2026-01-01T00:00:00Z", []),
    ):
        items = (await api.get(f"/v1/dlq?{query}"))["items"]
        assert [item["job_id"] for item in items] == [job["job_id"] for job in found], query
    run_id = everything[1]["run_id"]
    letter = await api.get(f"/v1/dlq/{run_id}")
    assert {name: letter[name] for name in everything[1]} == everything[1]
    assert (letter["state"], letter["earlier"], letter["run"]["state"]) == ("OPEN", [], "FAILED")
    assert letter["run"]["attempts"][0]["body"] == "what the target said"
    reader = await api.with_scopes(Scope.JOBS_READ).get(f"/v1/dlq/{run_id}")
    assert "body" not in reader["run"]["attempts"][0]
    (fine,) = await ran(running, RunState.SUCCEEDED)
    for unknown in (f"{fine['job_id']}:2026-01-05T09:00:00Z", "job_x"):
        await api.problem("GET", f"/v1/dlq/{unknown}", status=404, code="NOT_FOUND")
    await api.problem("GET", "/v1/dlq?job_id=x", status=422, code="INVALID")
    stranger = api.of(uuid.uuid4())
    await running.place(stranger.tenant)
    await stranger.problem("GET", f"/v1/dlq/{run_id}", status=404, code="NOT_FOUND")


async def test_a_test_call_is_signed_and_shown(running: Cell) -> None:
    async with running.near() as near, http_target(answering(201, "hello")) as server:
        made = await near.target(server.url + "/v1", target_id=TARGET)
        tested = await near.ok(
            "POST", f"/v1/targets/{TARGET}:test", {"path": "/try?x=1", "payload": {"n": 1.50}}
        )
        assert (tested["ok"], tested["status"], tested["error"], tested["body"]) == (True, 201, None, "hello")
        assert tested["url"] == f"{server.url}/v1/try?x=1"
        (received,) = server.received
        assert (received.method, received.path, received.body) == ("POST", "/v1/try?x=1", b'{"n":1.5}')
        assert received.headers["Idempotency-Key"] == tested["test_id"]
        secret = base64.b64encode(base64.b64decode(made["secret"].removeprefix("whsec_"))).decode()
        Webhook(secret).verify(received.body, dict(received.headers.items()) | _lower(received.headers))
        server.answer = answering(503, "busy")
        plain = near.with_scopes(Scope.JOBS_WRITE)
        failed = await plain.ok("POST", f"/v1/targets/{TARGET}:test")
        assert (failed["ok"], failed["status"], failed["body_hidden"]) == (False, 503, True)
        assert "body" not in failed
        await near.ok("PATCH", f"/v1/targets/{TARGET}", {"disabled": True})
        await plain.problem("POST", f"/v1/targets/{TARGET}:test", status=409, code="CONFLICT")
        assert (await near.ok("POST", f"/v1/targets/{TARGET}:test"))["status"] == 503
        await near.ok("PATCH", f"/v1/targets/{TARGET}", {"disabled": False, "max_concurrency": 1})
        await near.ok("POST", f"/v1/targets/{TARGET}:approve")
    job = await running.api.job(TARGET, schedule=PAST)
    (claim,) = await running.claim(job["job_id"])
    full = await running.api.problem("POST", f"/v1/targets/{TARGET}:test", status=409, code="CONFLICT")
    assert "1 calls under way" in full["detail"]
    await running.complete(claim, RunState.SUCCEEDED)
    async with running.near() as near:
        gone = await near.ok("POST", f"/v1/targets/{TARGET}:test", {"method": "GET"})
    assert (gone["status"], gone["ok"]) == (None, False)
    assert gone["error"].endswith("refused")
    (only,) = (await running.api.get("/v1/runs"))["items"]
    assert only["run_id"] == str(claim.key)

    async def events() -> Any:
        items = (await running.api.get("/v1/events?type=target.tested&cursor=start"))["items"]
        return items if len(items) == 4 else None

    items = await eventually(events)
    assert [item["data"]["ok"] for item in items] == [True, False, False, False]


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


async def test_a_test_call_stays_behind_the_guard(running: Cell) -> None:
    async with running.near() as near, http_target() as server:
        await near.target(server.url, target_id=TARGET)
        refused = await running.api.ok("POST", f"/v1/targets/{TARGET}:test")
        assert (refused["ok"], refused["status"]) == (False, None)
        assert "not allowed" in refused["error"]
        assert server.received == []
    near = running.api
    for body in ({"path": "no"}, {"timeout_seconds": 31}, {"method": "TRACE"}, {"x": 1}):
        await near.problem("POST", f"/v1/targets/{TARGET}:test", body, status=422, code="INVALID")
