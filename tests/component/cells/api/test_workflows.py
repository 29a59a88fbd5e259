"""Workflows over the API: definitions, starts, signals, and what a running engine makes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from cells.contract import Scope
from cells.observability.metrics import Metrics
from cells.workflows.bell import Bell
from cells.workflows.engine import WorkflowEngine
from tests.component.cells.api.harness import CELL, Api, Cell
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

ORDER = Path(__file__).parents[3].joinpath("cases/order_fulfillment.yaml").read_bytes()
VERSION = "/v1/workflow-definitions/order_fulfillment/versions/7"
START = {
    "workflow_id": "order-88213",
    "definition": "order_fulfillment",
    "version": 7,
    "input": {"order_id": 88213, "amount_cents": 4599},
}


@pytest_asyncio.fixture(loop_scope="session")
async def engine(running: Cell) -> AsyncIterator[None]:
    """An engine beside the API."""
    bell = Bell(running.valkey_url, cell=CELL)
    running.store.workflows_due = bell.ring
    stop = asyncio.Event()
    service = WorkflowEngine(running.store, running.queue, bell, running.host, running.clock, Metrics())
    task = asyncio.create_task(service.run(stop))
    yield
    stop.set()
    await task
    await bell.close()


async def poll(api: Api, queue: str) -> Any:
    body = {"worker_id": "w-1", "wait_seconds": 10}
    (task,) = (await api.ok("POST", f"/v1/task-queues/{queue}/tasks:poll", body))["tasks"]
    return task


async def do(api: Api, queue: str, outcome: str = "SUCCEEDED", **more: Any) -> Any:
    task = await poll(api, queue)
    body = {"epoch": task["epoch"], "outcome": outcome, **more}
    await api.ok("POST", f"/v1/runs/{task['run_id']}:complete", body)
    return task


async def started(api: Api) -> Any:
    await api.ok("PUT", VERSION, ORDER, status=201)
    return await api.ok("POST", "/v1/workflows", START, status=201)


async def has_status(api: Api, status: str, workflow_id: str = "order-88213") -> Any:
    async def look() -> Any:
        found = await api.get(f"/v1/workflows/{workflow_id}")
        return found if found["status"] == status else None

    return await eventually(look)


async def test_a_step_that_answers_too_much_fails_and_the_same_word_again_is_the_same_end(
    running: Cell, engine: None
) -> None:
    api = running.api
    await started(api)
    task = await poll(api, "payments")
    body = {"epoch": task["epoch"], "outcome": "SUCCEEDED", "result": "x" * 65_536}
    first = await api.ok("POST", f"/v1/runs/{task['run_id']}:complete", body)
    assert first["state"] == "FAILED"
    item = body | {"run_id": task["run_id"]}
    (again,) = (await api.ok("POST", "/v1/runs:complete", {"items": [item]}))["results"]
    assert (again["status"], again["state"]) == (200, "FAILED")
    run = await api.get(f"/v1/runs/{task['run_id']}")
    assert "65536 bytes (64 KiB) at most" in run["reason"]
    await do(api, "payments")
    await has_status(api, "COMPENSATED")


async def test_a_long_result_reaches_the_history(running: Cell, engine: None) -> None:
    api = running.api
    await started(api)
    await do(api, "payments", result={"rows": "x" * 60_000})
    await poll(api, "inventory")
    history = await api.get("/v1/workflows/order-88213/history")
    (done,) = [e for e in history["items"] if e["type"] == "ACTIVITY_COMPLETED"]
    assert len(done["data"]["result"]["rows"]) == 60_000


async def test_a_definition_is_registered_once(api: Api) -> None:
    made = await api.ok("PUT", VERSION, ORDER, status=201)
    assert made["steps"] == ["charge_card", "reserve_stock", "wait_for_pickup", "ship"]
    assert await api.ok("PUT", VERSION, ORDER, status=200) == made
    await api.problem("PUT", VERSION, ORDER + b"# other\n", status=409, code="CONFLICT")
    assert await api.get(VERSION) == made
    assert await api.get("/v1/workflow-definitions/order_fulfillment") == made
    (listed,) = (await api.get("/v1/workflow-definitions"))["items"]
    assert (listed["name"], listed["version"]) == ("order_fulfillment", 7)


async def test_every_fault_of_a_definition_has_its_line(api: Api) -> None:
    text = ORDER.replace(b"30s", b"soon", 1).replace(b"compensate_with: release_stock", b"compensate_with: x")
    problem = await api.problem("PUT", VERSION, text, status=422, code="INVALID")
    lines = [fault["line"] for fault in problem["errors"]]
    assert len(lines) >= 2
    assert all(isinstance(line, int) and line > 1 for line in lines)


async def test_an_order_from_start_to_end(api: Api, engine: None) -> None:
    first = await started(api)
    assert first["status"] == "RUNNING"
    assert first["run_id"].startswith("wr_")
    again = await api.ok("POST", "/v1/workflows", START, status=200)
    assert again["run_id"] == first["run_id"]
    other = {**START, "input": {"order_id": 1}}
    await api.problem("POST", "/v1/workflows", other, status=409, code="WORKFLOW_ID_IN_USE")
    charge = await do(api, "payments", result={"charge": "ch_1"})
    assert charge["idempotency_key"] == "order-88213:charge_card"
    assert (charge["activity_type"], charge["step"]) == ("CHARGE", "charge_card")
    assert charge["payload"] == START["input"]
    await do(api, "inventory")
    signal = {"signal_id": "courier-evt-5521", "payload": {"courier": "ACME"}}
    path = "/v1/workflows/order-88213/signals/picked_up"
    assert (await api.ok("POST", path, signal, status=202))["status"] == "accepted"
    assert (await api.ok("POST", path, signal, status=202))["status"] == "duplicate"
    await api.problem("POST", path, {**signal, "payload": None}, status=409, code="CONFLICT")
    await do(api, "shipping")
    done = await has_status(api, "COMPLETED")
    assert (done["current_steps"], done["pending_timers"]) == ([], [])
    history = (await api.get("/v1/workflows/order-88213/history"))["items"]
    assert [event["seq"] for event in history] == list(range(1, len(history) + 1))
    assert history[-1]["type"] == "COMPLETED"
    (came,) = (event["data"] for event in history if event["type"] == "SIGNAL_RECEIVED")
    assert came["payload"] == {"courier": "ACME"}
    steps = (await api.get("/v1/workflows/order-88213/timeline"))["steps"]
    assert [step["step"] for step in steps] == ["charge_card", "reserve_stock", "wait_for_pickup", "ship"]
    assert steps[0]["run"]["state"] == "SUCCEEDED"
    (item,) = (await api.get("/v1/workflows?definition=order_fulfillment&prefix=order-"))["items"]
    assert item["workflow_id"] == "order-88213"


async def test_a_failure_undoes_and_says_what(api: Api, engine: None) -> None:
    await started(api)
    await do(api, "payments")
    await do(api, "inventory", "FAILED", error="sold out", retryable=False)
    refund = await do(api, "payments")
    assert refund["idempotency_key"] == "order-88213:refund_card"
    assert refund["compensates"] == "order-88213:charge_card"
    done = await has_status(api, "COMPENSATED")
    assert done["error"] == "sold out"


async def test_another_version_must_have_done_the_same(api: Api, engine: None) -> None:
    await started(api)
    await do(api, "payments")
    same = ORDER.replace(b"version: 7", b"version: 8").replace(b"CREATE_SHIPMENT", b"SHIP")
    other = ORDER.replace(b"version: 7", b"version: 9").replace(b"charge_card", b"charge")
    for number, text in ((8, same), (9, other)):
        await api.ok("PUT", f"/v1/workflow-definitions/order_fulfillment/versions/{number}", text, status=201)
    checked = await api.ok("POST", VERSION.replace("/7", "/9") + ":check")
    assert (len(checked["compatible"]), len(checked["blocked"])) == (0, 1)
    assert checked["blocked"][0]["first_diverging_event"]["step"] == "charge_card"
    problem = await api.problem(
        "POST",
        "/v1/workflows/order-88213:migrate",
        {"version": 9},
        status=422,
        code="NONDETERMINISTIC_DEFINITION_CHANGE",
    )
    assert problem["first_diverging_event"]["seq"] == 2
    moved = await api.ok("POST", "/v1/workflows/order-88213:migrate", {"version": 8})
    assert moved["version"] == 8
    await do(api, "inventory")
    await api.ok("POST", "/v1/workflows/order-88213/signals/picked_up", {"signal_id": "s"}, status=202)
    assert (await do(api, "shipping"))["activity_type"] == "SHIP"
    await has_status(api, "COMPLETED")


async def naps(api: Api, name: str) -> bool:
    return (await api.get(f"/v1/workflows/{name}"))["current_steps"] == ["nap"]


async def test_a_check_walks_every_open_execution(api: Api, engine: None) -> None:
    """Page by page, each once; a cursor belongs to its candidate."""
    nap = b"steps: [{id: nap, sleep: 1h}]"
    await api.ok("PUT", "/v1/workflow-definitions/naps/versions/1", nap, status=201)
    await api.ok("PUT", "/v1/workflow-definitions/others/versions/1", nap, status=201)
    wanted = {f"n-{n}" for n in range(7)}
    for name in (*wanted, "gone"):
        await api.ok("POST", "/v1/workflows", {"workflow_id": name, "definition": "naps"}, status=201)
    await api.ok("POST", "/v1/workflows", {"workflow_id": "o-1", "definition": "others"}, status=201)
    await api.ok("POST", "/v1/workflows/gone:terminate", status=202)
    await has_status(api, "TERMINATED", "gone")
    for name in wanted:
        await eventually(lambda name=name: naps(api, name))
    check, other = "/v1/workflow-definitions/naps/versions/2:check", nap.replace(b"nap", b"doze")
    found: list[str] = []
    page = await api.ok("POST", f"{check}?limit=3", other)
    assert (page["open"], page["looked_at"]) == (7, 3)
    while True:
        assert (page["compatible"], page["undecided"]) == ([], [])
        found += [one["workflow_id"] for one in page["blocked"]]
        if page["next_cursor"] is None:
            break
        mine = f"{check}?limit=3&cursor={page['next_cursor']}"
        await api.problem("POST", mine, nap, status=422, code="INVALID")
        page = await api.ok("POST", mine, other)
        assert page["open"] is None
    assert sorted(found) == sorted(wanted)
    assert len((await api.ok("POST", check, nap))["compatible"]) == 7


async def test_back_to_a_step(api: Api, engine: None) -> None:
    first = await started(api)
    await do(api, "payments")
    await do(api, "inventory", "FAILED", error="sold out", retryable=False)
    await do(api, "payments")
    await has_status(api, "COMPENSATED")
    reset = "/v1/workflows/order-88213:reset"
    # The card was refunded: going on behind that would ship what nobody paid for.
    refused = await api.problem("POST", reset, {"step": "reserve_stock"}, status=409, code="CONFLICT")
    assert "choose charge_card" in refused["detail"]
    again = await api.ok("POST", reset, {"step": "charge_card"}, headers={"Idempotency-Key": "back"})
    assert again["run_id"] != first["run_id"]
    twice = await api.send("POST", reset, {"step": "charge_card"}, headers={"Idempotency-Key": "back"})
    assert (twice.json()["run_id"], twice.headers["idempotency-replayed"]) == (again["run_id"], "true")
    charge = await do(api, "payments")
    assert charge["idempotency_key"] == f"order-88213:{again['run_id']}:charge_card"
    reserve = await do(api, "inventory")
    assert reserve["idempotency_key"] == f"order-88213:{again['run_id']}:reserve_stock"
    await api.ok("POST", "/v1/workflows/order-88213/signals/picked_up", {"signal_id": "s"}, status=202)
    await do(api, "shipping")
    done = await has_status(api, "COMPLETED")
    assert done["run_id"] == again["run_id"]
    earlier = await api.get(f"/v1/workflows/order-88213?run_id={first['run_id']}")
    assert earlier["status"] == "COMPENSATED"


async def test_cancel_and_terminate(api: Api, engine: None) -> None:
    await started(api)
    await do(api, "payments")
    await api.ok("POST", "/v1/workflows/order-88213:cancel", {"reason": "changed my mind"}, status=202)
    await do(api, "payments")
    await has_status(api, "CANCELLED")
    await api.problem("POST", "/v1/workflows/order-88213:cancel", status=409, code="CONFLICT")
    await api.problem("POST", "/v1/workflows/nothing:terminate", status=404, code="NOT_FOUND")


async def test_without_the_right_nothing_is_shown_or_done(api: Api) -> None:
    await started(api)
    reader = api.with_scopes(Scope.WORKFLOWS_READ)
    history = (await reader.get("/v1/workflows/order-88213/history"))["items"]
    assert "input" not in history[0]["data"]
    await reader.problem("POST", "/v1/workflows/order-88213:cancel", status=403, code="FORBIDDEN")
    await api.with_scopes(Scope.JOBS_READ).problem("GET", "/v1/workflows", status=403, code="FORBIDDEN")


async def test_a_signal_that_no_step_waits_for_is_refused(api: Api, engine: None) -> None:
    await started(api)
    problem = await api.problem(
        "POST", "/v1/workflows/order-88213/signals/pickd_up", {"signal_id": "s"}, status=422, code="INVALID"
    )
    (fault,) = problem["errors"]
    assert fault["detail"] == (
        "no step of order_fulfillment 7 waits for a signal pickd_up; its steps wait for picked_up"
    )
    taken = await api.ok(
        "POST", "/v1/workflows/order-88213/signals/picked_up", {"signal_id": "s"}, status=202
    )
    assert taken["status"] == "accepted", "before anybody waits"


async def test_a_signal_that_another_version_waits_for_is_kept(api: Api, engine: None) -> None:
    await started(api)
    path = "/v1/workflows/order-88213/signals"
    await api.problem("POST", f"{path}/fetched", {"signal_id": "s-1"}, status=422, code="INVALID")
    later = ORDER.replace(b"version: 7", b"version: 8").replace(b"picked_up", b"fetched")
    await api.ok("PUT", VERSION.replace("/7", "/8"), later, status=201)
    taken = await api.ok("POST", f"{path}/fetched", {"signal_id": "s-1"}, status=202)
    assert taken["status"] == "accepted"
    again = await api.ok("POST", f"{path}/fetched", {"signal_id": "s-1"}, status=202)
    assert again["status"] == "duplicate"


async def test_a_signal_that_was_taken_has_its_answer_whatever_the_version_waits_for(
    api: Api, running: Cell, engine: None
) -> None:
    await started(api)
    signal = {"signal_id": "s-1", "payload": 1}
    await api.ok("POST", "/v1/workflows/order-88213/signals/picked_up", signal, status=202)
    async with running.store._database.transaction() as connection:
        await connection.execute(b"UPDATE workflow_signals SET name = 'before' WHERE signal_id = 's-1'")
    taken = await api.ok("POST", "/v1/workflows/order-88213/signals/before", signal, status=202)
    assert taken["status"] == "duplicate"
    await api.problem(
        "POST", "/v1/workflows/order-88213/signals/before", {"signal_id": "s-2"}, status=422, code="INVALID"
    )


async def test_another_start_under_the_id_of_a_closed_workflow_says_so(api: Api, engine: None) -> None:
    first = await started(api)
    assert first["previous"] is None
    await api.ok("POST", "/v1/workflows/order-88213:terminate", status=202)
    closed = await has_status(api, "TERMINATED")
    assert (await api.ok("POST", "/v1/workflows", START))["run_id"] == first["run_id"], "the same start"
    other = {**START, "input": {"order_id": 1, "amount_cents": 1}}
    problem = await api.problem(
        "POST", "/v1/workflows", {**other, "id_reuse": "REJECT"}, status=409, code="WORKFLOW_ID_IN_USE"
    )
    assert problem["detail"] == "A closed workflow had the id order-88213."
    second = await api.ok("POST", "/v1/workflows", other, status=201)
    assert second["previous"] == {
        "run_id": first["run_id"],
        "status": "TERMINATED",
        "closed_at": closed["closed_at"],
    }
    refused = await api.problem(
        "POST", "/v1/workflows/order-88213:cancel", {"run_id": first["run_id"]}, status=409, code="CONFLICT"
    )
    assert second["run_id"] in refused["detail"]
    assert (await api.get("/v1/workflows/order-88213"))["status"] == "RUNNING"


async def test_what_had_not_ended_when_the_workflow_did_is_abandoned(api: Api, engine: None) -> None:
    await started(api)
    await poll(api, "payments")
    await api.ok("POST", "/v1/workflows/order-88213:terminate", status=202)
    closed = await has_status(api, "TERMINATED")
    (step,) = (await api.get("/v1/workflows/order-88213/timeline"))["steps"]
    assert (step["state"], step["ended_at"]) == ("ABANDONED", closed["closed_at"])
