"""Who may: signatures, scopes, tenants, placement. And what must not change when one may not."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cells.contract import SIGNATURE_TOLERANCE_MS, Caller, Scope, sign_request
from cells.domain import ids
from cells.domain.run import RunState
from tests.component.cells.api.harness import CELL, KEY, Api, Cell
from tests.component.cells.api.waiting import waiting_run

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def snapshot(api: Api) -> dict[str, Any]:
    """All of a tenant that this API shows."""
    return {path: await api.get(path) for path in ("/v1/jobs", "/v1/runs", "/v1/targets", "/v1/dlq")}


async def furnished(cell: Cell) -> dict[str, str]:
    """A target, a job, a run, a selection and an operation to point at."""
    target = await cell.api.target(target_id="tgt_email")
    job = await cell.api.job("tgt_email", key="nightly")
    run = await cell.api.ok("POST", f"/v1/jobs/{job['job_id']}:trigger", status=201)
    chosen = {"action": "resume", "filter": {"job_ids": [job["job_id"]]}}
    selection = await cell.api.ok("POST", "/v1/selections", chosen, status=201)
    path = f"/v1/selections/{selection['selection_id']}:apply"
    operation = await cell.api.ok("POST", path, {"hash": selection["hash"]}, status=202)
    letter = await cell.api.ok("POST", f"/v1/jobs/{job['job_id']}:trigger", status=201)
    (claim,) = await cell.claim_members([waiting_run(letter["run_id"], cell.api.tenant)])
    await cell.complete(claim, RunState.FAILED)
    purge = await cell.api.ok("POST", "/v1/dlq:purge", {}, status=202)
    await cell.api.ok("POST", f"/v1/redrives/{purge['redrive_id']}:stop")
    await cell.api.ok("PUT", "/v1/calendars/cal_of_mine", {"dates": ["2099-12-25"]}, status=201)
    since = {"type": "RATE", "every_seconds": 3600, "start_at": "2026-01-01T00:00:00Z"}
    hourly = await cell.api.job(target["target_id"], schedule=since)
    now = datetime.now(UTC)
    stretch = {"from": (now - timedelta(hours=3)).isoformat(), "until": now.isoformat()}
    backfill = await cell.api.ok("POST", f"/v1/jobs/{hourly['job_id']}:backfill", stretch, status=202)
    queue = {"type": "TASK_QUEUE", "task_queue": "ledger"}
    pulled = await cell.api.ok("POST", "/v1/jobs", {"schedule": {"type": "NOW"}, "target": queue}, status=201)
    task = await cell.api.ok("POST", f"/v1/jobs/{pulled['job_id']}:trigger", status=201)
    await cell.claim_members([waiting_run(task["run_id"], cell.api.tenant)])
    definition = "/v1/workflow-definitions/refund/versions/1"
    await cell.api.ok("PUT", definition, {"steps": [{"id": "rest", "sleep": "30d"}]}, status=201)
    started = {"workflow_id": "refund-1", "definition": "refund"}
    await cell.api.ok("POST", "/v1/workflows", started, status=201)
    return {
        "definition": "refund",
        "version": "1",
        "workflow": "refund-1",
        "signal": "arrived",
        "task": task["run_id"],
        "queue": "ledger",
        "target": target["target_id"],
        "job": job["job_id"],
        "run": run["run_id"],
        "key": "nightly",
        "selection": selection["selection_id"],
        "operation": operation["operation_id"],
        "redrive": purge["redrive_id"],
        "calendar": "cal_of_mine",
        "backfill": backfill["backfill_id"],
    }


#: Every route about a tenant: method, path, body, the scope it needs.
ROUTES: list[tuple[str, str, Any, Scope]] = [
    (
        "POST",
        "/v1/jobs",
        {"schedule": {"type": "NOW"}, "target": {"target_id": "tgt_email"}},
        Scope.JOBS_WRITE,
    ),
    (
        "POST",
        "/v1/jobs:batch",
        {"jobs": [{"schedule": {"type": "NOW"}, "target": {"target_id": "tgt_email"}}]},
        Scope.JOBS_WRITE,
    ),
    ("GET", "/v1/jobs", None, Scope.JOBS_READ),
    ("GET", "/v1/jobs/{job}", None, Scope.JOBS_READ),
    ("GET", "/v1/jobs/by-key/{key}", None, Scope.JOBS_READ),
    (
        "PUT",
        "/v1/jobs/by-key/{key}",
        {"schedule": {"type": "NOW"}, "target": {"target_id": "tgt_email"}},
        Scope.JOBS_WRITE,
    ),
    ("DELETE", "/v1/jobs/by-key/{key}", None, Scope.JOBS_WRITE),
    ("GET", "/v1/jobs/{job}/occurrences", None, Scope.JOBS_READ),
    ("PATCH", "/v1/jobs/{job}", {"name": "other"}, Scope.JOBS_WRITE),
    ("DELETE", "/v1/jobs/{job}", None, Scope.JOBS_WRITE),
    ("POST", "/v1/jobs/{job}:pause", None, Scope.JOBS_WRITE),
    ("POST", "/v1/jobs/{job}:resume", None, Scope.JOBS_WRITE),
    ("POST", "/v1/jobs/{job}:trigger", None, Scope.JOBS_TRIGGER),
    ("POST", "/v1/schedules:preview", {"schedule": {"type": "NOW"}}, Scope.JOBS_READ),
    ("GET", "/v1/runs", None, Scope.JOBS_READ),
    ("GET", "/v1/runs/{run}", None, Scope.JOBS_READ),
    ("POST", "/v1/runs/{run}:cancel", None, Scope.JOBS_WRITE),
    ("POST", "/v1/selections", {"action": "cancel"}, Scope.JOBS_WRITE),
    ("GET", "/v1/selections/{selection}", None, Scope.JOBS_READ),
    ("POST", "/v1/selections/{selection}:apply", {"hash": "0" * 64}, Scope.JOBS_WRITE),
    ("GET", "/v1/operations", None, Scope.JOBS_READ),
    ("POST", "/v1/dlq:redrive", {"dry_run": True}, Scope.JOBS_WRITE),
    ("POST", "/v1/dlq:purge", {"dry_run": True}, Scope.JOBS_WRITE),
    ("POST", "/v1/dlq/{run}:redrive", None, Scope.JOBS_WRITE),
    ("GET", "/v1/redrives", None, Scope.JOBS_READ),
    ("GET", "/v1/redrives/{redrive}", None, Scope.JOBS_READ),
    ("POST", "/v1/redrives/{redrive}:stop", None, Scope.JOBS_WRITE),
    ("GET", "/v1/operations/{operation}", None, Scope.JOBS_READ),
    ("POST", "/v1/operations/{operation}:stop", None, Scope.JOBS_WRITE),
    ("PUT", "/v1/calendars/{calendar}", {"dates": ["2099-12-25"]}, Scope.JOBS_WRITE),
    ("GET", "/v1/calendars", None, Scope.JOBS_READ),
    ("GET", "/v1/calendars/{calendar}", None, Scope.JOBS_READ),
    ("DELETE", "/v1/calendars/{calendar}", None, Scope.JOBS_WRITE),
    (
        "POST",
        "/v1/jobs/{job}:backfill",
        {"from": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"},
        Scope.JOBS_TRIGGER,
    ),
    ("GET", "/v1/backfills", None, Scope.JOBS_READ),
    ("GET", "/v1/backfills/{backfill}", None, Scope.JOBS_READ),
    ("POST", "/v1/backfills/{backfill}:stop", None, Scope.JOBS_TRIGGER),
    ("GET", "/v1/dlq", None, Scope.JOBS_READ),
    ("GET", "/v1/targets/{target}/health", None, Scope.JOBS_READ),
    ("POST", "/v1/targets/{target}:test", {}, Scope.JOBS_WRITE),
    ("GET", "/v1/dlq/{run}", None, Scope.JOBS_READ),
    ("GET", "/v1/stats", None, Scope.JOBS_READ),
    ("GET", "/v1/delays", None, Scope.JOBS_READ),
    ("GET", "/v1/metrics", None, Scope.JOBS_READ),
    ("GET", "/v1/herd", None, Scope.JOBS_READ),
    ("GET", "/v1/events", None, Scope.JOBS_READ),
    ("POST", "/v1/targets", {"base_url": "https://new.example"}, Scope.JOBS_WRITE),
    ("GET", "/v1/targets", None, Scope.JOBS_READ),
    ("GET", "/v1/targets/{target}", None, Scope.JOBS_READ),
    ("PATCH", "/v1/targets/{target}", {"max_concurrency": 1}, Scope.JOBS_WRITE),
    ("DELETE", "/v1/targets/{target}", None, Scope.JOBS_WRITE),
    ("POST", "/v1/targets/{target}:approve", None, Scope.TARGETS_APPROVE),
    ("POST", "/v1/targets/{target}:rotate-secret", {}, Scope.TARGETS_APPROVE),
    ("GET", "/v1/task-queues", None, Scope.JOBS_READ),
    ("GET", "/v1/task-queues/{queue}", None, Scope.JOBS_READ),
    ("POST", "/v1/task-queues/{queue}:pause", None, Scope.JOBS_WRITE),
    ("POST", "/v1/task-queues/{queue}:resume", None, Scope.JOBS_WRITE),
    ("POST", "/v1/task-queues/{queue}/tasks:poll", {"worker_id": "w", "wait_seconds": 0}, Scope.WORKERS),
    ("POST", "/v1/task-queues/{queue}/workers:leave", {"worker_id": "w"}, Scope.WORKERS),
    ("POST", "/v1/runs/{task}:heartbeat", {"epoch": 1}, Scope.WORKERS),
    ("POST", "/v1/runs/{task}:complete", {"epoch": 1, "outcome": "SUCCEEDED"}, Scope.WORKERS),
    ("POST", "/v1/runs/{task}:release", {"epoch": 1}, Scope.WORKERS),
    ("POST", "/v1/runs:heartbeat", {"items": [{"run_id": "job_x", "epoch": 1}]}, Scope.WORKERS),
    (
        "PUT",
        "/v1/workflow-definitions/{definition}/versions/{version}",
        {"steps": [{"id": "rest", "sleep": "30d"}]},
        Scope.WORKFLOWS_WRITE,
    ),
    ("GET", "/v1/workflow-definitions", None, Scope.WORKFLOWS_READ),
    ("GET", "/v1/workflow-definitions/{definition}", None, Scope.WORKFLOWS_READ),
    ("GET", "/v1/workflow-definitions/{definition}/versions/{version}", None, Scope.WORKFLOWS_READ),
    ("POST", "/v1/workflow-definitions/{definition}/versions/{version}:check", None, Scope.WORKFLOWS_READ),
    ("POST", "/v1/workflows", {"workflow_id": "refund-2", "definition": "refund"}, Scope.WORKFLOWS_WRITE),
    ("GET", "/v1/workflows", None, Scope.WORKFLOWS_READ),
    ("GET", "/v1/workflows/reconciliation", None, Scope.WORKFLOWS_READ),
    ("GET", "/v1/regions/reconciliation", None, Scope.JOBS_READ),
    ("GET", "/v1/workflows/{workflow}", None, Scope.WORKFLOWS_READ),
    ("GET", "/v1/workflows/{workflow}/history", None, Scope.WORKFLOWS_READ),
    ("GET", "/v1/workflows/{workflow}/timeline", None, Scope.WORKFLOWS_READ),
    ("POST", "/v1/workflows/{workflow}/signals/{signal}", {"signal_id": "s-1"}, Scope.WORKFLOWS_WRITE),
    ("POST", "/v1/workflows/{workflow}:cancel", None, Scope.WORKFLOWS_WRITE),
    ("POST", "/v1/workflows/{workflow}:terminate", None, Scope.WORKFLOWS_WRITE),
    (
        "POST",
        "/v1/workflows/{workflow}:resolve",
        {"action": "close", "note": "by hand"},
        Scope.WORKFLOWS_WRITE,
    ),
    ("POST", "/v1/workflows/{workflow}:reset", {"step": "rest"}, Scope.WORKFLOWS_WRITE),
    ("POST", "/v1/workflows/{workflow}:migrate", {"version": 1}, Scope.WORKFLOWS_WRITE),
    (
        "POST",
        "/v1/runs:complete",
        {"items": [{"run_id": "job_x", "epoch": 1, "outcome": "SUCCEEDED"}]},
        Scope.WORKERS,
    ),
]


async def test_the_list_of_routes_is_complete(api: Api) -> None:
    known = {(route[0], route[1]) for route in ROUTES}
    for path, operations in (await api.get("/v1/openapi.json"))["paths"].items():
        path = path.replace("_id}", "}")
        if path.startswith("/v1/runs/{run}:") and not path.endswith(":cancel"):
            path = path.replace("{run}", "{task}")
        for method in operations:
            assert (method.upper(), path) in known


async def test_without_the_scope_nothing_happens(running: Cell) -> None:
    named = await furnished(running)
    before = await snapshot(running.api)
    for method, path, body, scope in ROUTES:
        others = [s for s in Scope if s not in (scope, Scope.ADMIN, Scope.OPERATOR)]
        problem = await running.api.with_scopes(*others).problem(
            method, path.format(**named), body, status=403, code="FORBIDDEN"
        )
        assert problem["needed_scope"] == scope.value
    assert await snapshot(running.api) == before


async def test_the_scope_alone_is_enough_to_pass(running: Cell) -> None:
    named = await furnished(running)
    for method, path, body, scope in ROUTES:
        answer = await running.api.with_scopes(scope).send(method, path.format(**named), body)
        assert answer.status_code not in (401, 403, 405, 421, 500, 503), (method, path, answer.text)


async def test_nobody_sees_or_changes_what_is_somebody_elses(running: Cell) -> None:
    named = await furnished(running)
    stranger = running.api.of(uuid.uuid4())
    await running.place(stranger.tenant)
    before = await snapshot(running.api)
    for method, path, body, _ in ROUTES:
        if "{task}" in path:  # whose run it is nobody is told: it is not this worker's
            answer = await stranger.send(method, path.format(**named), body)
            assert answer.json()["code"] in ("NOT_FOUND", "EPOCH_SUPERSEDED")
        elif "{" in path and method != "PUT" and "{queue}/" not in path:  # names are free for every tenant
            await stranger.problem(method, path.format(**named), body, status=404, code="NOT_FOUND")
    problem = await stranger.problem(
        "POST",
        "/v1/jobs",
        {"schedule": {"type": "NOW"}, "target": {"target_id": "tgt_email"}},
        status=422,
        code="TARGET_NOT_REGISTERED",
    )
    assert problem["errors"][0]["pointer"] == "/target/target_id"
    assert await snapshot(running.api) == before
    mine = await snapshot(stranger)
    assert [mine[path]["items"] for path in mine] == [[], [], [], []]


async def test_what_is_no_id_is_not_found(api: Api) -> None:
    for path in ("/v1/jobs/job_x", "/v1/jobs/tgt_email", "/v1/runs/job_x", "/v1/targets/a%00b"):
        await api.problem("GET", path, status=404, code="NOT_FOUND")


async def test_unsigned_and_wrongly_signed_requests(running: Cell) -> None:
    api = running.api
    path, body = "/v1/targets", b'{"base_url":"https://new.example"}'
    good = api.signed("POST", path, body=body, hashed=True)
    now = running.clock.now_ms()
    caller = Caller(tenant_id=api.tenant_text, actor="key:test", scopes=api.scopes)
    foreign = sign_request(kid=CELL, secret=b"x" * 32, now_ms=now, method="POST", target=path, caller=caller)
    unknown = sign_request(kid="other", secret=KEY, now_ms=now, method="POST", target=path, caller=caller)
    refused: dict[str, tuple[str, str, bytes, dict[str, str]]] = {
        "unsigned": ("POST", path, body, {}),
        "foreign key": ("POST", path, body, foreign),
        "unknown key": ("POST", path, body, unknown),
        "too old": ("POST", path, body, api.signed("POST", path, now_ms=now - SIGNATURE_TOLERANCE_MS - 5000)),
        "from the future": (
            "POST", path, body, api.signed("POST", path, now_ms=now + SIGNATURE_TOLERANCE_MS + 5000),
        ),
        "other method": ("PUT", path, body, good),
        "other path": ("POST", "/v1/jobs", body, good),
        "query added": ("POST", path + "?limit=1", body, good),
        "other body": ("POST", path, body.replace(b"new", b"bad"), good),
        "more scopes": ("POST", path, body, good | {"X-Clockhouse-Scopes": "operator"}),
        "other tenant": ("POST", path, body, good | {"X-Clockhouse-Tenant": ids.encode("tnt", uuid.uuid4())}),
        "other actor": ("POST", path, body, good | {"X-Clockhouse-Actor": "user:root"}),
        "other epoch": ("POST", path, body, good | {"X-Clockhouse-Epoch": "7"}),
        "hash dropped": ("POST", path, body, good | {"X-Clockhouse-Content-SHA256": "-"}),
        "garbage": ("POST", path, body, good | {"X-Clockhouse-Signature": "v1;kid=x;t=1e9;sig="}),
    }  # fmt: skip
    for why, (method, where, content, headers) in refused.items():
        answer = await api.http.request(method, where, content=content, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED"), why
        assert answer.headers["content-type"] == "application/problem+json"
        assert "www-authenticate" in answer.headers
    assert (await api.get("/v1/targets"))["items"] == []
    twice = await api.http.request(
        "POST", path, content=body, headers=[*good.items(), ("X-Clockhouse-Scopes", "operator")]
    )
    assert twice.status_code == 401
    assert (await api.http.request("POST", path, content=body, headers=good)).status_code == 201


async def test_a_tenant_that_is_not_placed_here(running: Cell) -> None:
    elsewhere = running.api.of(uuid.uuid4())
    problem = await elsewhere.problem("GET", "/v1/jobs", status=421, code="NOT_OWNER")
    assert problem["cell"] == CELL
    assert problem["tenant_id"] == elsewhere.tenant_text
    assert problem["tenant_state"] is None
    for state in ("BARRIER", "SEALED", "MOVED"):
        await running.place(elsewhere.tenant, state=state, epoch=3)
        problem = await elsewhere.problem("GET", "/v1/jobs", status=421, code="NOT_OWNER")
        assert (problem["tenant_state"], problem["ownership_epoch"]) == (state, 3)
    await running.place(elsewhere.tenant, epoch=4)
    assert await elsewhere.get("/v1/jobs") == {"items": [], "next_cursor": None}


async def test_a_suspended_tenant_reads_only(running: Cell) -> None:
    named = await furnished(running)
    before = await snapshot(running.api)
    await running.place(running.api.tenant, state="SUSPENDED")
    assert await snapshot(running.api) == before
    for method, path, body, _ in ROUTES:
        if path.endswith((":heartbeat", ":complete", ":release")):
            continue  # facts about what is under way
        if method != "GET" and not path.endswith((":preview", ":check")):
            await running.api.problem(method, path.format(**named), body, status=403, code="FORBIDDEN")
    assert await snapshot(running.api) == before


async def test_a_newer_epoch_is_looked_up_at_once(running: Cell) -> None:
    tenant = running.api.tenant
    await running.api.get("/v1/jobs")  # now it is known
    placement = await running.store.get_tenant(tenant)
    assert placement is not None
    await running.place(tenant, epoch=2)
    await running.api.target()
    ahead = Api(running.api.app, running.api.http, running.clock, tenant, epoch=9)
    await ahead.target("https://other.example")  # a hint that is wrong costs a read, no more


async def test_a_call_about_no_tenant(running: Cell) -> None:
    nobody = Api(running.api.app, running.api.http, running.clock, running.api.tenant, scopes=("operator",))
    headers = sign_request(
        kid=CELL,
        secret=KEY,
        now_ms=running.clock.now_ms(),
        method="GET",
        target="/v1/jobs",
        caller=Caller(actor="key:operator", scopes=("operator",)),
    )
    answer = await nobody.http.get("/v1/jobs", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "MALFORMED")
    assert (await nobody.get("/v1/jobs"))["items"] == []


async def test_payloads_are_for_those_who_may_read_them(running: Cell) -> None:
    await running.api.target(target_id="tgt_email")
    job = await running.api.job("tgt_email", payload={"secret": "s3cr3t"})
    assert "s3cr3t" not in str(job)
    path = f"/v1/jobs/{job['job_id']}"
    reader = running.api.with_scopes(Scope.JOBS_READ, Scope.JOBS_WRITE)
    for answer in (
        await reader.send("GET", path),
        await reader.send("GET", "/v1/jobs"),
        await reader.send("PATCH", path, {"payload": {"more": 1}}),
        await reader.send("POST", path + ":pause"),
    ):
        assert answer.status_code == 200
        assert "s3cr3t" not in answer.text
        assert "payload_hidden" in answer.text
    entitled = running.api.with_scopes(Scope.JOBS_READ, Scope.PAYLOADS_READ)
    assert (await entitled.get(path))["payload"] == {"secret": "s3cr3t", "more": 1}
