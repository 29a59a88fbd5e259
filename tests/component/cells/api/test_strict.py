"""What is STRICT is done once another region has it, by whatever route; nothing else waits for that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio

from cells.contract import SHARDS
from cells.domain import ids
from cells.domain.run import RunState
from cells.execution.host_agent import HostAgent
from tests.component.cells.api.harness import Api, Cell
from tests.component.cells.api.test_workers import POLL, QUEUE, claim_run, task_job
from tests.component.cells.api.test_workflows import engine
from tests.component.cells.api.waiting import waiting_run
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
__all__ = ["engine"]

TARGET = "tgt_email"
DEFINITION = b"""
workflow: order
version: 1
region_policy: STRICT
steps:
  - id: wait
    wait_for_signal: { name: paid, timeout: 1h }
"""


@contextmanager
def cut(cell: Cell) -> Iterator[None]:
    """Meanwhile nobody confirms anything: the cell has other regions, and none of them is named."""
    cell.store._leased = True
    try:
        yield
    finally:
        cell.store._leased = False


@dataclass
class Patient(Api):
    """Asks again where the process had lost its lease meanwhile, as a machine that is busy makes it."""

    host: HostAgent | None = None

    async def send(self, *args: Any, **more: Any) -> httpx.Response:
        while (answer := await super().send(*args, **more)).status_code == 421 and self.host is not None:
            await self.host.wait_live()
        return answer


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def several(shared: Cell) -> Api:
    """The API as a cell with sites in several regions has it."""
    return shared.with_engines(leased=True)


@pytest.fixture
def api(several: Api, running: Cell) -> Api:
    """The same for a fresh tenant."""
    return Patient(several.app, several.http, running.clock, running.api.tenant, host=running.host)


class Asking:
    """Asks while nobody confirms, and again when somebody does."""

    def __init__(self, cell: Cell, api: Api, policy: str):
        self.cell, self.api, self.policy = cell, api, policy
        self.began = (datetime.now(UTC) - timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def __call__(self, method: str, path: str, body: Any = None, *, status: int, **more: Any) -> Any:
        with cut(self.cell):
            if self.policy == "STRICT":
                problem = await self.api.problem(method, path, body, status=503, code="UNCONFIRMED", **more)
                assert "Repeat" in problem["detail"]
            else:
                await self.api.ok(method, path, body, status=status, **more)
        answer = await self.api.send(method, path, body, **more)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def key(self, name: str) -> dict[str, dict[str, str]]:
        return {"headers": {"Idempotency-Key": f"{name}-{self.policy}"}}

    def body(self, **more: Any) -> dict[str, Any]:
        schedule = {"type": "RATE", "every_seconds": 3600, "start_at": self.began}
        target = {"target_id": TARGET}
        return {"schedule": schedule, "target": target, "region_policy": self.policy, **more}


async def dead(cell: Cell, api: Api, job_id: str) -> str:
    """A dead letter of that job."""
    run = await api.ok("POST", f"/v1/jobs/{job_id}:trigger", status=201)
    (claim,) = await cell.claim_members([waiting_run(run["run_id"], api.tenant, series=1)])
    await cell.complete(claim, RunState.FAILED)
    return str(run["run_id"])


@pytest.mark.parametrize("policy", ["STRICT", "HOME_ASYNC"])
async def test_every_change_of_a_strict_job_waits_for_another_region(
    running: Cell, api: Api, policy: str
) -> None:
    await api.target(target_id=TARGET)
    ask = Asking(running, api, policy)
    made = await ask("POST", "/v1/jobs", ask.body(), status=201, **ask.key("create"))
    job = f"/v1/jobs/{made['job_id']}"

    by_key = f"/v1/jobs/by-key/k-{policy}"
    first = await ask("PUT", by_key, ask.body(), status=201)
    same = await ask("PUT", by_key, ask.body(), status=200)
    changed = await ask("PUT", by_key, ask.body(name="n"), status=200)
    assert (first["job_id"], changed["version"]) == (same["job_id"], 2)
    assert not any(answer["changed"] for answer in (first, same, changed)), "each is a repeat by then"
    await ask("DELETE", by_key, status=200)

    assert (await ask("PATCH", job, {"name": "n"}, status=200))["name"] == "n"
    assert (await ask("POST", f"{job}:pause", status=200))["status"] == "PAUSED"
    await ask("POST", f"{job}:resume", status=200)
    run = await ask("POST", f"{job}:trigger", status=201, **ask.key("trigger"))
    assert len((await api.get(f"{job}"))["recent_runs"]) >= 1
    assert (await ask("POST", f"/v1/runs/{run['run_id']}:cancel", status=200))["state"] == "CANCELLED"

    now = datetime.now(UTC)
    stretch = {"from": (now - timedelta(hours=4)).isoformat(), "until": now.isoformat()}
    with cut(running):
        plan = await api.ok("POST", f"{job}:backfill", stretch | {"dry_run": True})
        shown = await api.get(job)
    assert plan["occurrences"] >= 3
    assert shown["region_policy"] == policy
    back = await ask("POST", f"{job}:backfill", stretch | {"max_per_second": 1}, status=202)
    await ask("POST", f"/v1/backfills/{back['backfill_id']}:stop", status=200)
    for item in (await api.get("/v1/backfills"))["items"]:
        await api.send("POST", f"/v1/backfills/{item['backfill_id']}:stop")

    letter = await dead(running, api, made["job_id"])
    await ask_once(ask, f"/v1/dlq/{letter}:redrive")
    for verb in ("redrive", "purge"):
        letters = {"filter": {"run_ids": [await dead(running, api, made["job_id"])]}}
        begun = await ask("POST", f"/v1/dlq:{verb}", letters, status=202, **ask.key(verb))
        await ask("POST", f"/v1/redrives/{begun['redrive_id']}:stop", status=200)

    chosen = {"action": "pause", "filter": {"job_ids": [made["job_id"]]}}
    selection = await api.ok("POST", "/v1/selections", chosen, status=201)
    apply = f"/v1/selections/{selection['selection_id']}:apply"
    operation = await ask("POST", apply, {"hash": selection["hash"]}, status=202)
    await ask("POST", f"/v1/operations/{operation['operation_id']}:stop", status=200)
    assert (await ask("DELETE", job, status=200))["status"] == "CANCELLED"


async def ask_once(ask: Asking, path: str) -> None:
    """A change that cannot be asked for twice."""
    with cut(ask.cell):
        answer = await ask.api.send("POST", path)
    assert answer.status_code == (503 if ask.policy == "STRICT" else 200), answer.text


async def arrival(cell: Cell) -> float:
    """Until when the tenant's releases are paid for (epoch ms); 0 where none was."""
    queue = cell.queue
    return float(await queue._valkey.command("HGET", queue.keys.gate, cell.api.tenant.bytes) or 0)


async def paid_at_gate(cell: Cell) -> float:
    now = cell.clock.now_ms()
    await cell.queue.release(now_ms=now, shards=range(SHARDS), budget=1000, fresh_after_ms=None)
    return await arrival(cell)


async def test_workers_get_what_another_region_knows_to_be_theirs(
    running: Cell, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cells.api.handing.ASIDE_SECONDS", 0.1)
    await running.queue.put_rates({api.tenant: 1})
    strict = await task_job(api, region_policy="STRICT", delivery="AT_MOST_ONCE")
    await running.claim(strict["job_id"])
    run_id = (await api.get(f"/v1/jobs/{strict['job_id']}"))["recent_runs"][0]["run_id"]
    paid = await eventually(lambda: paid_at_gate(running))
    with cut(running):
        nobody = await api.ok("POST", POLL, {"worker_id": "w", "wait_seconds": 0})
        assert nobody["tasks"] == []
        # What stands aside has cost nothing of what its tenant may run in a second.
        assert paid - await arrival(running) == pytest.approx(1000)
        aside = await api.get(f"/v1/runs/{run_id}")
        # What waits for nobody is not kept behind it, in the same queue and for the same worker.
        await claim_run(running, run_id)
        plain = await task_job(api)
        polling = asyncio.create_task(
            api.ok("POST", POLL, {"worker_id": "w", "wait_seconds": 20, "max_tasks": 2})
        )
        await running.claim(plain["job_id"])
        await running.services.desk.announce([(api.tenant, QUEUE)])
        (got,) = (await polling)["tasks"]
    assert (aside["state"], aside["attempts"]) == ("RETRY_WAIT", [])
    assert got["run_id"].startswith(plain["job_id"])
    await claim_run(running, run_id)

    # The look that somebody's poll began while nobody answered finds out that a region does again.
    tasks: list[Any] = []
    while not tasks:
        tasks = (await api.ok("POST", POLL, {"worker_id": "w", "wait_seconds": 1}))["tasks"]
        if not tasks and (await api.get(f"/v1/runs/{run_id}"))["state"] != "READY":
            await claim_run(running, run_id)
    (task,) = tasks
    assert task["run_id"] == run_id
    ends = {"items": [
        {"run_id": one["run_id"], "epoch": one["epoch"], "outcome": "SUCCEEDED"} for one in (got, task)
    ]}  # fmt: skip
    with cut(running):
        one = {"epoch": task["epoch"], "outcome": "SUCCEEDED"}
        await api.problem("POST", f"/v1/runs/{run_id}:complete", one, status=503, code="UNCONFIRMED")
        await api.problem("POST", f"/v1/runs/{run_id}:complete", one, status=503, code="UNCONFIRMED")
        many = (await api.ok("POST", "/v1/runs:complete", ends))["results"]
        assert [result["status"] for result in many] == [200, 503]
        assert many[1]["problem"]["code"] == "UNCONFIRMED"
    many = (await api.ok("POST", "/v1/runs:complete", ends))["results"]
    assert [(result["status"], result["state"]) for result in many] == [(200, "SUCCEEDED")] * 2


async def test_what_is_said_to_a_strict_workflow_waits_for_another_region(running: Cell, api: Api) -> None:
    path = "/v1/workflow-definitions/order/versions/1"
    refused = await running.api.problem("PUT", path, DEFINITION, status=422, code="INVALID")
    assert [fault["pointer"] for fault in refused["errors"]] == ["/region_policy"]
    ask = Asking(running, api, "STRICT")
    with cut(running):
        await ask.api.ok("PUT", path, DEFINITION, status=201)
    start = {"workflow_id": "o-1", "definition": "order"}
    await running.api.problem("POST", "/v1/workflows", start, status=409, code="CONFLICT")
    begun = await ask("POST", "/v1/workflows", start, status=201)
    shown = await ask.api.get("/v1/workflows/o-1")
    assert (shown["run_id"], shown["region_policy"]) == (begun["run_id"], "STRICT")
    signal = {"signal_id": "s-1", "payload": {"by": "card"}}
    await ask("POST", "/v1/workflows/o-1/signals/paid", signal, status=202)
    await ask("POST", "/v1/workflows/o-1:cancel", {}, status=202)
    moved = DEFINITION.replace(b"version: 1", b"version: 2")
    await ask.api.ok("PUT", path[:-1] + "2", moved, status=201)
    await ask("POST", "/v1/workflows/o-1:migrate", {"version": 2}, status=200)
    await ask("POST", "/v1/workflows/o-1:terminate", {}, status=202)
    assert ids.decode(ids.WORKFLOW_RUN, begun["run_id"]) is not None


PARENT = b"""
workflow: outer
version: 1
region_policy: STRICT
steps:
  - id: ship
    activity: { task_queue: shipping, type: ship }
  - id: sub
    start_workflow: { definition: inner }
"""
INNER = b"""
workflow: inner
version: 1
steps:
  - id: nap
    sleep: 1h
"""


async def test_what_a_strict_workflow_does_is_known_elsewhere_before_anybody_does_it(
    running: Cell, api: Api, engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cells.api.handing.ASIDE_SECONDS", 0.1)
    for name, text in (("outer", PARENT), ("inner", INNER)):
        await api.ok("PUT", f"/v1/workflow-definitions/{name}/versions/1", text, status=201)
    polls = "/v1/task-queues/shipping/tasks:poll"

    async def backlog() -> bool:
        answer = await api.send("GET", "/v1/task-queues/shipping")
        return answer.status_code == 200 and bool(answer.json()["backlog"])

    with cut(running):
        # The engine decides without waiting: what it has decided is nothing that anybody has done yet.
        await api.problem(
            "POST",
            "/v1/workflows",
            {"workflow_id": "o", "definition": "outer"},
            status=503,
            code="UNCONFIRMED",
        )
        await eventually(backlog)
        assert (await api.ok("POST", polls, {"worker_id": "w", "wait_seconds": 0}))["tasks"] == []
    (step,) = (await api.get("/v1/workflows/o/timeline"))["steps"]
    run_id = step["run"]["run_id"]

    async def handed_out() -> Any:
        if (await api.get(f"/v1/runs/{run_id}"))["state"] == "RETRY_WAIT":
            await claim_run(running, run_id)
        return (await api.ok("POST", polls, {"worker_id": "w", "wait_seconds": 0}))["tasks"]

    (task,) = await eventually(handed_out)
    # The log has one order: whoever has the claim has the decision and the start before it.
    await api.ok(
        "POST", f"/v1/runs/{task['run_id']}:complete", {"epoch": task["epoch"], "outcome": "SUCCEEDED"}
    )

    async def child() -> Any:
        return (await api.get("/v1/workflows?definition=inner"))["items"]

    (inner,) = await eventually(child)
    assert inner["region_policy"] == "STRICT", "a child has its parent's"
    ask = Asking(running, api, "STRICT")
    again = await ask("POST", "/v1/workflows/o:reset", {"step": "ship"}, status=200, **ask.key("reset"))
    assert again["region_policy"] == "STRICT"
